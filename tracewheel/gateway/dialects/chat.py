"""OpenAI's Chat Completions: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracewheel.gateway.dialects import openai_errors
from tracewheel.gateway.dialects.chat_messages import read_messages
from tracewheel.gateway.dialects.chat_stream import chat_events
from tracewheel.gateway.dialects.chat_words import created_by, logprob_list, usage
from tracewheel.gateway.dialects.dialect import Asked, Dialect, Event
from tracewheel.gateway.dialects.fields import Fields, refuse, unsupported, wrong_value
from tracewheel.gateway.dialects.messages import check_calls, checked_tools, said
from tracewheel.gateway.dialects.pieces import content_tokens
from tracewheel.gateway.dialects.said import Said
from tracewheel.gateway.dialects.tool_choice import ToolChoice, openai_choice
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Refusal

READ = {"messages", "model", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "max_tokens", "n", "stop"}
READ |= {"stream", "stream_options", "logprobs", "top_logprobs", "temperature", "top_p", "seed", "response_format"}
READ |= {"return_token_ids"}
# What is for the vendor's own accounts, caches and machines, or a wish that a template decides.
WITHOUT_EFFECT = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options"}
WITHOUT_EFFECT |= {"prompt_cache_retention", "reasoning_effort", "verbosity"}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "moderation": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
}
MOST_ANSWERS, MOST_STOPS, MOST_ALTERNATIVES = 128, 4, 20


class ChatCompletions(Dialect):
    """The dialect of `/v1/chat/completions`."""

    END = "[DONE]"

    def read(self, body: Any, said: Said) -> Asked:
        """See `Dialect`."""
        fields = Fields(body)
        fields.check_known(READ | WITHOUT_EFFECT, NEUTRAL)
        if (form := fields.inner("response_format")) is not None and form.text("type") != "text":
            raise unsupported("the model's text cannot be held to a schema here; offer a tool instead", "response_format")
        choice = _tool_choice(fields)
        messages = read_messages(fields)
        check_calls(messages, "messages")
        alternatives = fields.whole("top_logprobs", 0, MOST_ALTERNATIVES)
        wants_logprobs = fields.flag("logprobs")
        if alternatives and not wants_logprobs:
            raise refuse("'top_logprobs' needs 'logprobs' to be true.", "top_logprobs", "invalid_value")
        if (options := fields.inner("stream_options")) is not None and not fields.flag("stream"):
            raise refuse("'stream_options' is only allowed when 'stream' is enabled.", options.path, "invalid_value")
        request = ChatRequest(
            messages,
            choice.tools,
            model=fields.text("model"),
            max_tokens=fields.whole("max_completion_tokens", 1) or fields.whole("max_tokens", 1),
            temperature=fields.number("temperature", 0.0, 2.0),
            top_p=fields.number("top_p", 0.0, 1.0),
            stop=fields.texts("stop", MOST_STOPS),
            tool=choice.tool,
            must_call=choice.must_call,
            parallel=fields.flag("parallel_tool_calls", True),
            logprobs=(alternatives or 0) if wants_logprobs else None,
            seed=fields.whole("seed", -(2**63)),
        )
        fields.flag("return_token_ids")
        return Asked(request, fields.value, fields.flag("stream"), fields.whole("n", 1, MOST_ANSWERS) or 1)

    def write(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> dict[str, Any]:
        """See `Dialect`."""
        choices = [_choice(asked, reply, index) for index, reply in enumerate(replies)]
        head = {**created_by(asked, replies[0], created), "object": "chat.completion"}
        if asked.body.get("return_token_ids"):
            head["prompt_token_ids"] = list(replies[0].prompt_ids)
        return {**head, "choices": choices, "usage": usage(replies)}

    def events(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
        """See `Dialect`."""
        return chat_events(asked, replies, created)

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """See `Dialect`."""
        return openai_errors.error_body(refusal)

    def error_event(self, refusal: Refusal, request_id: str) -> Event:
        """See `Dialect`."""
        return Event(None, openai_errors.error_body(refusal))


def _choice(asked: Asked, reply: ChatReply, index: int) -> dict[str, Any]:
    whole = bool(asked.body.get("return_token_ids"))
    choice: dict[str, Any] = {"index": index, "message": {**said(reply.message), "refusal": None}, "logprobs": None}
    choice["finish_reason"] = reply.finish_reason
    if asked.request.logprobs is not None:
        tokens = list(reply.tokens) if whole else content_tokens(reply)
        choice["logprobs"] = logprob_list(tokens, asked.request.logprobs)
    if whole:
        choice["token_ids"] = [token.id for token in reply.tokens]
    return choice


def _tool_choice(fields: Fields) -> ToolChoice:
    for tool in fields.objects("tools"):
        if tool.text("type") != "function":
            raise wrong_value(tool.text("type"), ["function"], tool.at("type"))
        function = tool.needed("function")
        function.text("name")
        function.inner("parameters")
        function.optional_text("description")
    return openai_choice(fields, checked_tools(fields.listed("tools")), nested=True)
