"""OpenAI's Chat Completions: requests and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracewheel.gateway.dialects.dialect import Asked, Dialect, Event, Said
from tracewheel.gateway.dialects.fields import Fields
from tracewheel.gateway.dialects.tool_choice import ToolChoice
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Message, Refusal, SampledToken, ToolCall, chat_message


def created_by(asked: Asked, reply: ChatReply, created: int) -> dict[str, Any]:
    """The head of an answer. Its fingerprint is the policy's version."""
    return {
        "id": f"chatcmpl-{reply.id}",
        "created": created,
        "model": asked.request.model,
        "system_fingerprint": f"policy-{reply.policy_version}",
    }


def usage(replies: Sequence[ChatReply]) -> dict[str, Any]:
    """Tokens of the context, once, and of all answers."""
    completion = sum(len(reply.tokens) for reply in replies)
    return {
        "prompt_tokens": replies[0].prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": replies[0].prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": replies[0].cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": sum(reply.reasoning_tokens for reply in replies)},
    }


def logprob_list(tokens: Sequence[SampledToken], alternatives: int) -> dict[str, Any] | None:
    """Log-probabilities of tokens; None where there is no token, as for a call without text."""
    content = [
        {**_logprob(token.text, token.logprob), "top_logprobs": [_logprob(*one) for one in token.alternatives[:alternatives]]}
        for token in tokens
    ]
    return {"content": content, "refusal": None} if content else None


def _logprob(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def chat_events(asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
    """The chunks of all answers, and at the end the usage where it is asked for."""
    head = {**created_by(asked, replies[0], created), "object": "chat.completion.chunk"}
    wants_usage = bool((asked.body.get("stream_options") or {}).get("include_usage"))
    extra: dict[str, Any] = {"usage": None} if wants_usage else {}
    events = [
        Event(None, {**head, "choices": [{"index": index, "finish_reason": None, "logprobs": None, **choice}], **extra})
        for index, reply in enumerate(replies)
        for choice in _choices(asked, reply)
    ]
    if asked.body.get("return_token_ids"):
        events[0].data["prompt_token_ids"] = list(replies[0].prompt_ids)
    if wants_usage:
        events.append(Event(None, {**head, "choices": [], "usage": usage(replies)}))
    return events


def _choices(asked: Asked, reply: ChatReply) -> Iterator[dict[str, Any]]:
    """What is new in each chunk. Log-probabilities come with their text, or all at the end beside all ids."""
    whole, wanted = bool(asked.body.get("return_token_ids")), asked.request.logprobs
    calls, content = reply.calls, reply.content_pieces()
    yield {"delta": {"role": "assistant", "content": None if calls and not content else "", "refusal": None}}
    for piece in reply.reasoning_pieces():
        yield {"delta": {"reasoning_content": piece.text}}
    spelled = any(piece.token is not None for piece in content)
    for piece in content:
        choice: dict[str, Any] = {"delta": {"content": piece.text}}
        if wanted is not None and not whole and piece.token is not None:
            choice["logprobs"] = logprob_list([piece.token], wanted)
        yield choice
    customs = asked.custom_tools
    for index, call in enumerate(calls):
        if call.name in customs:
            made = {"name": call.name, "input": call.text}
            yield {"delta": {"tool_calls": [{"index": index, "id": call.id, "type": "custom", "custom": made}]}}
            continue
        opened = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield {"delta": {"tool_calls": [{"index": index, **opened}]}}
        for text in call.pieces(call.arguments):
            yield {"delta": {"tool_calls": [{"index": index, "function": {"arguments": text}}]}}
    last: dict[str, Any] = {"delta": {}, "finish_reason": reply.finish_reason}
    if wanted is not None and (whole or (content and not spelled)):
        last["logprobs"] = logprob_list(reply.tokens, wanted)
    if whole:
        last["token_ids"] = [token.id for token in reply.tokens]
    yield last


ROLES = ("system", "developer", "user", "assistant", "tool")
REASONING = ("reasoning_content", "reasoning")  # the second is what newer servers call it


def read_messages(fields: Fields) -> list[Message]:
    """The messages in one form; `developer` is the newer name of `system`.

    Raises:
        Refusal: there are none, or one is wrong.
    """
    messages = [_read(message) for message in fields.objects("messages")]
    if fields.get("messages") is None:
        raise fields.missing("messages")
    if not messages:
        raise Refusal.invalid(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.", "messages", "empty_array"
        )
    return messages


def _read(message: Fields) -> Message:
    role = message.text("role")
    if role not in ROLES:
        raise Refusal.wrong_value(role, ROLES, message.at("role"))
    if role == "assistant":
        return _assistant(message)
    if message.get("content") is None:
        raise message.missing("content")
    content = message.content("content")
    if role == "tool":
        return chat_message("tool", content, call_id=message.text("tool_call_id"))
    made = chat_message("system" if role == "developer" else role, content)
    if name := message.optional_text("name"):
        made["name"] = name
    return made


def _assistant(message: Fields) -> Message:
    for name in ("audio", "function_call"):
        if message.get(name) is not None:
            raise Refusal.unsupported("not supported by this endpoint", message.at(name))
    calls = [_call(one) for one in message.objects("tool_calls")]
    if message.get("content") is None and not calls and message.get("refusal") is None:
        raise message.missing("content")
    text = message.content("content") or message.optional_text("refusal") or ""
    return chat_message("assistant", text, reasoning=_reasoning(message), calls=calls)


def _reasoning(message: Fields) -> str:
    return next((found for name in REASONING if (found := message.optional_text(name))), "")


def _call(one: Fields) -> ToolCall:
    if one.choice("type", ["function", "custom"]) is None:
        raise one.missing("type")
    if one.get("type") == "custom":
        custom = one.needed("custom")
        return ToolCall.custom(one.text("id"), custom.text("name"), custom.text("input"))
    function = one.needed("function")
    return ToolCall(one.text("id"), function.text("name"), function.text("arguments"))


READ = {"messages", "model", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "max_tokens", "n", "stop"}
READ |= {"stream", "stream_options", "logprobs", "top_logprobs", "temperature", "top_p", "seed", "response_format"}
READ |= {"return_token_ids"}
# What is for the vendor's own accounts, caches and machines, or a wish that a template decides.
WITHOUT_EFFECT = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options"}
WITHOUT_EFFECT |= {"prompt_cache_retention", "reasoning_effort", "verbosity"}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "moderation": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
}
MOST_ANSWERS, MOST_STOPS, MOST_ALTERNATIVES = 128, 4, 20


class ChatCompletions(Dialect):
    """The dialect of `/v1/chat/completions`."""

    PATHS = ("/chat/completions",)
    END = "[DONE]"

    def read(self, body: Any, said: Said) -> Asked:
        """See `Dialect`."""
        fields = Fields(body)
        fields.check_known(READ | WITHOUT_EFFECT, NEUTRAL)
        form = fields.openai_form("response_format", nested=True)
        choice = ToolChoice.openai(fields, nested=True)
        messages = read_messages(fields)
        alternatives = fields.whole("top_logprobs", 0, MOST_ALTERNATIVES)
        wants_logprobs = fields.flag("logprobs")
        if alternatives and not wants_logprobs:
            raise Refusal.invalid("'top_logprobs' needs 'logprobs' to be true.", "top_logprobs", "invalid_value")
        if (options := fields.inner("stream_options")) is not None and not fields.flag("stream"):
            raise Refusal.invalid("'stream_options' is only allowed when 'stream' is enabled.", options.path, "invalid_value")
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
            form=form,
            dropped=frozenset(fields.dropped),
        )
        request.check_calls("messages")
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


def _choice(asked: Asked, reply: ChatReply, index: int) -> dict[str, Any]:
    whole = bool(asked.body.get("return_token_ids"))
    choice: dict[str, Any] = {"index": index, "message": {**reply.shown, "refusal": None}, "logprobs": None}
    choice["finish_reason"] = reply.finish_reason
    customs = asked.custom_tools
    for shown, call in zip(choice["message"].get("tool_calls") or (), reply.calls, strict=True):
        if call.name in customs:
            del shown["function"]
            shown |= {"type": "custom", "custom": {"name": call.name, "input": call.text}}
    if asked.request.logprobs is not None:
        tokens = list(reply.tokens) if whole else reply.content_tokens
        choice["logprobs"] = logprob_list(tokens, asked.request.logprobs)
    if whole:
        choice["token_ids"] = [token.id for token in reply.tokens]
    return choice
