"""OpenAI's Responses: requests and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracewheel import Asked, ChatReply, ChatRequest, Dialect, Event, Fields, Refusal, Said, ToolCall, ToolChoice
from tracewheel_dialects.response_input import Stored, earlier_messages, read_input, sealed, stored

Others = Sequence[tuple[str, float]]
EMPTY: dict[str, Any] = {"content": [], "arguments": "", "input": ""}  # what an item begins with in a stream
ENCRYPTED = "reasoning.encrypted_content"


def make_output(asked: Asked, reply: ChatReply) -> list[dict[str, Any]]:
    """Thinking, text and calls of a turn as items."""
    calls = reply.calls
    status = "incomplete" if reply.finish_reason == "length" else "completed"
    items: list[dict[str, Any]] = []
    if thought := reply.reasoning:
        item: dict[str, Any] = {"id": f"rs_{reply.id}", "type": "reasoning", "summary": [], "status": status}
        item["content"] = [{"type": "reasoning_text", "text": thought}]
        if ENCRYPTED in (asked.body.get("include") or ()):
            item["encrypted_content"] = sealed(thought)
        items.append(item)
    if reply.text or not calls:
        part: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        if asked.request.logprobs is not None:
            part["logprobs"] = text_logprobs(reply, asked.request.logprobs, with_bytes=True)
        items.append({"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "status": status, "content": [part]})
    customs = asked.custom_tools
    for index, call in enumerate(calls):
        custom = call.name in customs
        items.append(
            {
                "id": f"{'ctc' if custom else 'fc'}_{reply.id}_{index}",
                "type": "custom_tool_call" if custom else "function_call",
                "status": status,
                "call_id": call.id,
                "name": call.name,
                **({"input": call.text} if custom else {"arguments": call.arguments}),
            }
        )
    return items


def text_logprobs(reply: ChatReply, wanted: int, *, with_bytes: bool = False) -> list[dict[str, Any]]:
    """The log-probabilities of a text's tokens, with the likeliest others; the vendor gives bytes in whole answers only."""
    return [
        _logprob(token.text, token.logprob, token.alternatives[:wanted], with_bytes=with_bytes)
        for token in reply.content_tokens
    ]


def _logprob(text: str, value: float, others: Others, *, with_bytes: bool = False) -> dict[str, Any]:
    def one(text: str, value: float) -> dict[str, Any]:
        return {"token": text, "logprob": value, **({"bytes": list(text.encode())} if with_bytes else {})}

    return {**one(text, value), "top_logprobs": [one(*other) for other in others]}


def response_usage(reply: ChatReply) -> dict[str, Any]:
    """Tokens of the context and of the turn."""
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": len(reply.tokens),
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.prompt_tokens + len(reply.tokens),
    }


def response_events(asked: Asked, reply: ChatReply, opening: dict[str, Any], whole: dict[str, Any]) -> list[Event]:
    """All events: `opening` is the answer before anything was said, `whole` the complete one."""
    events: list[dict[str, Any]] = [{"type": f"response.{state}", "response": opening} for state in ("created", "in_progress")]
    for index, item in enumerate(whole["output"]):
        before = {**item, "status": "in_progress", **{name: empty for name, empty in EMPTY.items() if name in item}}
        before.pop("encrypted_content", None)
        events.append({"type": "response.output_item.added", "output_index": index, "item": before})
        place = {"item_id": item["id"], "output_index": index}
        events += ({**event, **place} for event in _within(item, reply, asked.request.logprobs))
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [Event(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]


def _within(item: dict[str, Any], reply: ChatReply, wanted: int | None) -> Iterator[dict[str, Any]]:
    """What happens to an item between its beginning and its end."""
    if item["type"] == "custom_tool_call":
        for text in ToolCall.pieces(item["input"]):
            yield {"type": "response.custom_tool_call_input.delta", "delta": text}
        yield {"type": "response.custom_tool_call_input.done", "input": item["input"]}
        return
    if item["type"] == "function_call":
        for text in ToolCall.pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": text}
        yield {"type": "response.function_call_arguments.done", "name": item["name"], "arguments": item["arguments"]}
        return
    part = item["content"][0]
    name = "response.reasoning_text" if item["type"] == "reasoning" else "response.output_text"
    yield _part("added", {**part, "text": "", **({"logprobs": []} if "logprobs" in part else {})})
    for piece in reply.reasoning_pieces() if item["type"] == "reasoning" else reply.content_pieces():
        shown = (
            []
            if wanted is None or (token := piece.token) is None
            else [_logprob(token.text, token.logprob, token.alternatives[:wanted])]
        )
        yield {"type": f"{name}.delta", "content_index": 0, "delta": piece.text} | _logprobs(item, shown)
    bare = [] if wanted is None else text_logprobs(reply, wanted)
    yield {"type": f"{name}.done", "content_index": 0, "text": part["text"]} | _logprobs(item, bare)
    yield _part("done", part)


def _logprobs(item: dict[str, Any], shown: list[dict[str, Any]]) -> dict[str, Any]:
    return {"logprobs": shown} if item["type"] == "message" else {}


def _part(what: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"response.content_part.{what}", "content_index": 0, "part": part}


READ = {"input", "instructions", "model", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "stream", "text"}
READ |= {
    "truncation",
    "temperature",
    "top_p",
    "top_logprobs",
    "include",
    "previous_response_id",
    "store",
    "metadata",
    "reasoning",
    "user",
}
# What is for the vendor's own accounts, caches, tools and machines, or a wish that a template decides.
WITHOUT_EFFECT = {"service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
WITHOUT_EFFECT |= {"max_tool_calls", "stream_options", "client_metadata", "context_management"}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "background_options": (),
    "conversation": (),
    "prompt": (),
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

    PATHS = ("/responses",)
    KEPT_PATHS = ("/responses/{identity}",)

    def read(self, body: Any, said: Said) -> Asked:
        """See `Dialect`."""
        fields = Fields(body)
        fields.check_known(READ | WITHOUT_EFFECT, NEUTRAL)
        text = fields.inner("text")
        form = text.openai_form("format", nested=False) if text is not None else None
        for position, one in enumerate(includes := fields.texts("include")):
            if one not in INCLUDES:
                raise Refusal.wrong_value(one, INCLUDES, f"include[{position}]")
        if fields.choice("truncation", ["auto", "disabled"]) == "auto":  # what is too long is refused all the same
            fields.dropped.add("truncation")
        if fields.listed("context_management"):
            fields.dropped.add("context_management")
        fields.inner("reasoning")
        fields.inner("metadata")
        fields.flag("store", True)
        choice = ToolChoice.openai(fields, *_added_tools(fields), nested=False)
        history = [*earlier_messages(fields, said), *read_input(fields, said)]
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
            form=form,
            dropped=frozenset(fields.dropped),
        )
        request.check_calls("input")
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
            Stored([*asked.history, replies[0].shown], self.write(asked, replies, created)).keep(said)

    def kept(self, identity: str, said: Said, *, drop: bool) -> dict[str, Any]:
        """See `Dialect`."""
        found = stored(said, identity)
        if found is None:
            raise Refusal("not_found", f"Response with id {identity!r:.80} not found.")
        if not drop:
            return found.body
        said.drop("response", identity)
        return {"id": identity, "object": "response", "deleted": True}

    def events(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
        """See `Dialect`."""
        opening = {**response_head(asked, replies[0], created), "status": "in_progress", "output": [], "usage": None}
        return response_events(asked, replies[0], opening, self.write(asked, replies, created))

    def error_event(self, refusal: Refusal, request_id: str) -> Event:
        """See `Dialect`. The vendor's clients raise what stands under `error`."""
        error = self.error(refusal, request_id)["error"]
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


def _added_tools(fields: Fields) -> Iterator[Fields]:
    """Items of the input that add tools: they are offered from the beginning."""
    for item in fields.objects("input") if isinstance(fields.get("input"), list) else ():
        if item.get("type") == "additional_tools":
            yield item
