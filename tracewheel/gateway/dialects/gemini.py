"""Gemini's generateContent: requests and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracewheel.gateway.dialects.answer_forms import GEMINI_SCHEMAS, gemini_form
from tracewheel.gateway.dialects.dialect import (
    Asked,
    Dialect,
    Event,
    Said,
    content_pieces,
    content_tokens,
    reasoning_pieces,
    reasoning_tokens,
)
from tracewheel.gateway.dialects.fields import check_calls, checked_tools, object_arguments
from tracewheel.gateway.dialects.gemini_contents import Proto, read_contents, sealed, system_text
from tracewheel.gateway.dialects.tool_choice import ToolChoice, choose
from tracewheel.gateway.exchange import ChatReply, ChatRequest, Refusal

READ = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "model"}
# What is for the vendor's own filters, accounts and caches.
WITHOUT_EFFECT = {"safetySettings", "modelArmorConfig", "labels", "serviceTier", "store"}
NEUTRAL: dict[str, tuple[Any, ...]] = {"cachedContent": ()}
CONFIG = {"temperature", "topP", "seed", "maxOutputTokens", "stopSequences", "candidateCount", "responseLogprobs", "logprobs"}
CONFIG |= {"thinkingConfig", "mediaResolution", "audioTimestamp", "enableEnhancedCivicAnswers"}
CONFIG |= {"responseMimeType", "responseFormat", *GEMINI_SCHEMAS}
SAMPLED = {"topK": "top_k", "presencePenalty": "presence_penalty", "frequencyPenalty": "frequency_penalty"}
CONFIG_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "responseModalities": (["TEXT"], []),
    "speechConfig": (),
    "imageConfig": (),
}
MODES = {"AUTO": "auto", "VALIDATED": "auto", "MODE_UNSPECIFIED": "auto", "ANY": "required", "NONE": "none"}
MOST_ANSWERS, MOST_STOPS, MOST_ALTERNATIVES = 8, 5, 20
ERRORS = {
    "invalid_request": "INVALID_ARGUMENT",
    "context_length_exceeded": "INVALID_ARGUMENT",
    "authentication": "UNAUTHENTICATED",
    "not_found": "NOT_FOUND",
    "too_large": "INVALID_ARGUMENT",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "server_error": "INTERNAL",
    "overloaded": "UNAVAILABLE",
}
TOO_LONG = "The input token count exceeds the maximum number of tokens allowed"  # words that programs look for


class Gemini(Dialect):
    """The dialect of `/v1beta/models/MODEL:generateContent` and `:streamGenerateContent`.

    Args:
        model: As the path names it.
        stream: Whether the answer is a stream.
        listed: Whether a stream is one JSON list; else server-sent events.
    """

    KEEP_ALIVE = b"\n"  # the vendor's clients take a comment for data

    def __init__(self, model: str = "", *, stream: bool = False, listed: bool = False) -> None:
        self._model, self._stream, self._listed = model, stream, listed

    def read(self, body: Any, said: Said) -> Asked:
        """See `Dialect`."""
        return self._read(Proto(body))

    def read_for_count(self, body: Any) -> ChatRequest:
        """The request whose tokens are to be counted."""
        fields = Proto(body)
        return self._read(fields.inner("generateContentRequest") or fields, counted=True).request

    def _read(self, fields: Proto, *, counted: bool = False) -> Asked:
        fields.check_known(READ | WITHOUT_EFFECT, NEUTRAL)
        config = fields.inner("generationConfig") or Proto({}, "generationConfig", fields.dropped)
        config.check_known(CONFIG | SAMPLED.keys(), CONFIG_NEUTRAL)
        fields.dropped |= {told for name, told in SAMPLED.items() if config.get(name)}
        choice = _tool_choice(fields)
        messages = read_contents(fields)
        if not counted:
            check_calls(messages, "contents")
        if system := system_text(fields):
            messages.insert(0, {"role": "system", "content": system})
        alternatives = config.whole("logprobs", 0, MOST_ALTERNATIVES)
        request = ChatRequest(
            messages,
            choice.tools,
            model=self._model,
            max_tokens=config.whole("maxOutputTokens", 1),
            temperature=config.number("temperature", 0.0, 2.0),
            top_p=config.number("topP", 0.0, 1.0),
            stop=config.texts("stopSequences", MOST_STOPS),
            tool=choice.tool,
            must_call=choice.must_call,
            logprobs=(alternatives or 0) if config.flag("responseLogprobs") else None,
            seed=config.whole("seed", -(2**63)),
            form=gemini_form(config),
            dropped=frozenset(fields.dropped),
        )
        answers = config.whole("candidateCount", 1, MOST_ANSWERS) or 1
        shown = config.inner("thinkingConfig")
        options = {"thoughts": shown is not None and shown.flag("includeThoughts")}
        return Asked(request, options, self._stream and not self._listed, answers)

    def write(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> Any:
        """See `Dialect`."""
        if self._listed:
            return [event.data for event in self.events(asked, replies, created)]
        candidates = [_ended(asked, reply, index, _parts(asked, reply)) for index, reply in enumerate(replies)]
        return {"candidates": candidates, **_about(asked, replies)}

    def events(self, asked: Asked, replies: Sequence[ChatReply], created: int) -> list[Event]:
        """See `Dialect`."""
        events: list[Event] = []
        for index, reply in enumerate(replies):
            *parts, last = _pieces(asked, reply)
            chunks = [{"content": {"parts": [part], "role": "model"}, "index": index} for part in parts]
            events += [Event(None, {"candidates": [one]}) for one in (*chunks, _ended(asked, reply, index, [last]))]
        return [Event(None, {**event.data, **_about(asked, replies)}) for event in events]

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        """See `Dialect`."""
        message = refusal.message
        if refusal.kind == "context_length_exceeded" and TOO_LONG not in message:
            message = f"{TOO_LONG}: {message}"
        error: dict[str, Any] = {"code": self.status(refusal), "message": message, "status": ERRORS[refusal.kind]}
        if refusal.param is not None:
            wrong = [{"field": refusal.param, "description": refusal.message}]
            error["details"] = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": wrong}]
        return {"error": error}

    def error_event(self, refusal: Refusal, request_id: str) -> Event:
        """See `Dialect`."""
        return Event(None, self.error(refusal, request_id))


def _tool_choice(fields: Proto) -> ToolChoice:
    """The functions that are declared, and which of them may or must be called; the vendor's own tools are dropped."""
    for tool in fields.objects("tools"):
        others = (name for name, value in tool.value.items() if value is not None and name != "functionDeclarations")
        fields.dropped.update(f"tools.{name:.40}" for name in others)
        for function in tool.objects("functionDeclarations"):
            function.text("name")
            function.optional_text("description")
    declared = [one for tool in fields.objects("tools") for one in tool.listed("functionDeclarations")]
    tools = checked_tools([{"functionDeclarations": [one]} for one in declared])
    choice = (fields.inner("toolConfig") or Proto({})).inner("functionCallingConfig")
    if choice is None:
        return choose(tools, "auto", "toolConfig")
    mode = choice.choice("mode", MODES) or "AUTO"
    names = choice.texts("allowedFunctionNames") if mode in ("ANY", "VALIDATED") else ()
    return choose(tools, MODES[mode], choice.path, [*names] or None)


def _parts(asked: Asked, reply: ChatReply) -> list[dict[str, Any]]:
    """What was said. A reply that said nothing has an empty text."""
    message = reply.message
    thought, text = message.get("reasoning_content") or "", message.get("content") or ""
    calls = [_call(call, "" if place else thought) for place, call in enumerate(message.get("tool_calls") or ())]
    parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if thought and asked.body["thoughts"] else []
    if text or not calls:
        parts.append(_signed({"text": text}, "" if calls else thought))
    return [*parts, *calls]


def _pieces(asked: Asked, reply: ChatReply) -> Iterator[dict[str, Any]]:
    """The parts of a stream. A text's thought stands at its first and its last piece: clients that join them keep one."""
    for part in _parts(asked, reply):
        if part.get("thought"):
            yield from ({"text": piece.text, "thought": True} for piece in reasoning_pieces(reply))
        elif not part.get("text"):
            yield part
        else:
            seal = {name: value for name, value in part.items() if name != "text"}
            texts = [piece.text for piece in content_pieces(reply)]
            ends = (0, len(texts) - 1)
            yield from ({"text": text, **(seal if place in ends else {})} for place, text in enumerate(texts))


def _call(call: dict[str, Any], thought: str) -> dict[str, Any]:
    function = call["function"]
    made = {"id": call["id"], "name": function["name"], "args": object_arguments(function["arguments"])}
    return {"functionCall": made, "thoughtSignature": sealed(call["id"], thought)}


def _signed(part: dict[str, Any], thought: str) -> dict[str, Any]:
    return part | ({"thoughtSignature": sealed("", thought)} if thought else {})


def _ended(asked: Asked, reply: ChatReply, index: int, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer with why it ended, and the log-probabilities of its text."""
    reason = "MAX_TOKENS" if reply.finish_reason == "length" else "STOP"
    ended: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "finishReason": reason, "index": index}
    if asked.request.logprobs is not None and (tokens := content_tokens(reply)):
        chosen = [{"token": one.text, "tokenId": one.id, "logProbability": one.logprob} for one in tokens]
        top = [[*one.alternatives[: asked.request.logprobs]] for one in tokens]
        others = [{"candidates": [{"token": text, "logProbability": value} for text, value in each]} for each in top]
        ended["avgLogprobs"] = sum(one.logprob for one in tokens) / len(tokens)
        ended["logprobsResult"] = {"chosenCandidates": chosen, **({"topCandidates": others} if any(top) else {})}
    return ended


def _about(asked: Asked, replies: Sequence[ChatReply]) -> dict[str, Any]:
    first, thought = replies[0], sum(map(reasoning_tokens, replies))
    said = sum(len(reply.tokens) for reply in replies)
    usage = {
        "promptTokenCount": first.prompt_tokens,
        "candidatesTokenCount": said - thought,
        "totalTokenCount": first.prompt_tokens + said,
        **({"thoughtsTokenCount": thought} if thought else {}),
        **({"cachedContentTokenCount": first.cached_tokens} if first.cached_tokens else {}),
    }
    return {"usageMetadata": usage, "modelVersion": asked.request.model, "responseId": first.id}
