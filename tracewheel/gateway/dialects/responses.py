"""OpenAI's Responses: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracewheel.gateway.dialects import openai_errors
from tracewheel.gateway.dialects.dialect import Asked, Dialect, Event
from tracewheel.gateway.dialects.fields import Fields, unsupported, wrong_value
from tracewheel.gateway.dialects.messages import check_calls, checked_tools
from tracewheel.gateway.dialects.messages import said as shown
from tracewheel.gateway.dialects.response_input import earlier_messages, read_input
from tracewheel.gateway.dialects.response_output import make_output, response_usage
from tracewheel.gateway.dialects.response_stream import response_events
from tracewheel.gateway.dialects.said import Said
from tracewheel.gateway.dialects.tool_choice import ToolChoice, openai_choice
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Refusal

READ = {"input", "instructions", "model", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "stream", "text"}
READ |= {"temperature", "top_p", "top_logprobs", "include", "previous_response_id", "store", "metadata", "reasoning", "user"}
# What is for the vendor's own accounts, caches, tools and machines, or a wish that a template decides.
WITHOUT_EFFECT = {"service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
WITHOUT_EFFECT |= {"max_tool_calls", "stream_options", "client_metadata"}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "background_options": (),
    "conversation": (),
    "context_management": ([],),
    "prompt": (),
    "truncation": ("disabled",),
    "moderation": (),
    "image": (),
    "access_programs": (),
}
INCLUDES: tuple[str, ...] = (
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "file_search_call.results",
    "web_search_call.results",
)
INCLUDES += ("web_search_call.action.sources", "message.input_image.image_url", "computer_call_output.output.image_url")
INCLUDES += ("code_interpreter_call.outputs",)  # of tools that are refused: nothing to include
LOGPROBS = "message.output_text.logprobs"
MOST_ALTERNATIVES = 20


class Responses(Dialect):
    """The dialect of `/v1/responses`."""

    def read(self, body: Any, said: Said) -> Asked:
        """See `Dialect`."""
        fields = Fields(body)
        fields.check_known(READ | WITHOUT_EFFECT, NEUTRAL)
        text = fields.inner("text")
        form = text.inner("format") if text is not None else None
        if form is not None and form.text("type") != "text":
            raise unsupported("the model's text cannot be held to a schema here; offer a tool instead", form.path)
        for position, one in enumerate(includes := fields.texts("include")):
            if one not in INCLUDES:
                raise wrong_value(one, INCLUDES, f"include[{position}]")
        fields.inner("reasoning")
        fields.inner("metadata")
        fields.flag("store", True)
        choice = _tool_choice(fields)
        history = [*earlier_messages(fields, said), *read_input(fields, said)]
        check_calls(history, "input")
        instructions = fields.optional_text("instructions")
        alternatives = fields.whole("top_logprobs", 0, MOST_ALTERNATIVES)
        request = ChatRequest(
            [*([{"role": "system", "content": instructions}] if instructions else []), *history],
            choice.tools,
            model=fields.text("model"),
            max_tokens=fields.whole("max_output_tokens", 1),
            temperature=fields.number("temperature", 0.0, 2.0),
            top_p=fields.number("top_p", 0.0, 1.0),
            tool=choice.tool,
            must_call=choice.must_call,
            parallel=fields.flag("parallel_tool_calls", True),
            logprobs=(alternatives or 0) if alternatives is not None or LOGPROBS in includes else None,
        )
        return Asked(request, fields.value, fields.flag("stream"), history=history)

    def write(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> dict[str, Any]:
        """See `Dialect`."""
        reply = replies[0]
        cut = reply.finish_reason == "length"
        return {
            **response_head(asked, reply, created),
            "status": "incomplete" if cut else "completed",
            "completed_at": None if cut else created,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": make_output(asked, reply),
            "usage": response_usage(reply),
        }

    def remember(self, asked: Asked, replies: Sequence[ChatReply], created: int, said: Said) -> None:
        """See `Dialect`. With `store`, a later request may continue from this one."""
        super().remember(asked, replies, created, said)
        if asked.body.get("store") is not False:
            said.keep_response(self.write(asked, replies, created), [*asked.history, shown(replies[0].message)])

    def events(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
        """See `Dialect`."""
        opening = {**response_head(asked, replies[0], created), "status": "in_progress", "output": [], "usage": None}
        return response_events(asked, replies[0], opening, self.write(asked, replies, created))

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """See `Dialect`."""
        return openai_errors.error_body(refusal)

    def error_event(self, refusal: Refusal, request_id: str) -> Event:
        """See `Dialect`. The vendor's clients raise what stands under `error`."""
        error = openai_errors.error_body(refusal)["error"]
        flat = {"message": error["message"], "code": error["code"], "param": error["param"]}
        return Event("error", {"type": "error", "sequence_number": 0, **flat, "error": error})


def response_head(asked: Asked, reply: ChatReply, created: int) -> dict[str, Any]:
    """What an answer repeats of its request, and what it has before it is complete."""
    body = asked.body

    def given(name: str, default: Any = None) -> Any:
        return default if body.get(name) is None else body[name]

    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": created,
        "model": asked.request.model,
        "error": None,
        "incomplete_details": None,
        "instructions": given("instructions"),
        "max_output_tokens": given("max_output_tokens"),
        "metadata": given("metadata", {}),
        "parallel_tool_calls": asked.request.parallel,
        "previous_response_id": given("previous_response_id"),
        "reasoning": {"effort": None, "summary": None, **given("reasoning", {})},
        "store": given("store", True),
        "temperature": given("temperature"),
        "text": given("text", {"format": {"type": "text"}}),
        "tool_choice": given("tool_choice", "auto"),
        "tools": given("tools", []),
        "top_p": given("top_p"),
        "truncation": "disabled",
        "user": given("user"),
    }


def _tool_choice(fields: Fields) -> ToolChoice:
    for tool in fields.objects("tools"):
        if tool.text("type") != "function":
            text = "this endpoint has no tools of its own; supported values are: 'function'"
            raise unsupported(text, tool.at("type"))
        tool.text("name")
        tool.inner("parameters")
        tool.optional_text("description")
    return openai_choice(fields, checked_tools(fields.listed("tools")), nested=False)
