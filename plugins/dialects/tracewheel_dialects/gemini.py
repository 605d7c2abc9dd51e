"""Gemini's generateContent: requests and answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracewheel import (
    AnswerForm,
    Asked,
    ChatReply,
    ChatRequest,
    Dialect,
    Event,
    Fields,
    Refusal,
    Said,
    ToolCall,
    ToolChoice,
    chat_message,
)
from tracewheel_dialects.gemini_contents import Proto, read_contents, sealed, system_text

JSON, PLAIN = "application/json", "text/plain"
SCHEMAS = ("responseJsonSchema", "_responseJsonSchema", "responseSchema")
OPENAPI_ONLY = {"nullable", "propertyOrdering", "example", "format"}  # not of JSON Schema, or with other values there
METHODS = ("generateContent", "streamGenerateContent")  # that ask for a turn
READ = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "model"}
# What is for the vendor's own filters, accounts and caches.
WITHOUT_EFFECT = {"safetySettings", "modelArmorConfig", "labels", "serviceTier", "store"}
NEUTRAL: dict[str, tuple[Any, ...]] = {"cachedContent": ()}
CONFIG = {"temperature", "topP", "seed", "maxOutputTokens", "stopSequences", "candidateCount", "responseLogprobs", "logprobs"}
CONFIG |= {"thinkingConfig", "mediaResolution", "audioTimestamp", "enableEnhancedCivicAnswers"}
CONFIG |= {"responseMimeType", "responseFormat", *SCHEMAS}
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

    PATHS = ("/models/{call:path}",)  # `MODEL:METHOD`
    COUNT_PATHS = ("/models/{model:path}:countTokens",)
    KEEP_ALIVE = b"\n"  # the vendor's clients take a comment for data

    def __init__(self, model: str = "", *, stream: bool = False, listed: bool = False) -> None:
        self._model, self._stream, self._listed = model, stream, listed

    @classmethod
    def speaks(cls, path: str, headers: Mapping[str, str]) -> bool:
        """See `Dialect`."""
        return "x-goog-api-key" in headers or "/v1beta" in path

    def at(self, path: Mapping[str, str], query: Mapping[str, str]) -> Gemini:
        """See `Dialect`. The vendor's paths name the model and whether the answer is a stream."""
        model, _, method = path["call"].rpartition(":")
        if method not in METHODS:
            raise Refusal("not_found", f"{method or model:.80} is not served; generateContent and countTokens are.")
        stream = method != "generateContent"
        return Gemini(model, stream=stream, listed=stream and query.get("alt") != "sse")

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
        if system := system_text(fields):
            messages.insert(0, chat_message("system", system))
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
            form=_answer_form(config),
            dropped=frozenset(fields.dropped),
        )
        if not counted:
            request.check_calls("contents")
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

    def write_count(self, tokens: int) -> dict[str, Any]:
        """See `Dialect`."""
        return {"totalTokens": tokens}

    def write_model(self, name: str) -> dict[str, Any]:
        """See `Dialect`."""
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": [*METHODS, "countTokens"]}

    def write_models(self, names: Sequence[str]) -> dict[str, Any]:
        """See `Dialect`."""
        return {"models": [self.write_model(name) for name in names]}

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


def _tool_choice(fields: Proto) -> ToolChoice:
    """The functions that are declared, and which of them may or must be called; the vendor's own tools are dropped."""
    for tool in fields.objects("tools"):
        others = (name for name, value in tool.value.items() if value is not None and name != "functionDeclarations")
        fields.dropped.update(f"tools.{name:.40}" for name in others)
        for function in tool.objects("functionDeclarations"):
            function.text("name")
            function.optional_text("description")
    declared = [one for tool in fields.objects("tools") for one in tool.listed("functionDeclarations")]
    offered = [{"functionDeclarations": [one]} for one in declared]
    choice = (fields.inner("toolConfig") or Proto({})).inner("functionCallingConfig")
    if choice is None:
        return ToolChoice.of(offered, "auto", "toolConfig")
    mode = choice.choice("mode", MODES) or "AUTO"
    names = choice.texts("allowedFunctionNames") if mode in ("ANY", "VALIDATED") else ()
    return ToolChoice.of(offered, MODES[mode], choice.path, [*names] or None)


def _parts(asked: Asked, reply: ChatReply) -> list[dict[str, Any]]:
    """What was said. A reply that said nothing has an empty text."""
    thought, text = reply.reasoning, reply.text
    calls = [_call(call, "" if place else thought) for place, call in enumerate(reply.calls)]
    parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if thought and asked.body["thoughts"] else []
    if text or not calls:
        parts.append(_signed({"text": text}, "" if calls else thought))
    return [*parts, *calls]


def _pieces(asked: Asked, reply: ChatReply) -> Iterator[dict[str, Any]]:
    """The parts of a stream. A text's thought stands at its first and its last piece: clients that join them keep one."""
    for part in _parts(asked, reply):
        if part.get("thought"):
            yield from ({"text": piece.text, "thought": True} for piece in reply.reasoning_pieces())
        elif not part.get("text"):
            yield part
        else:
            seal = {name: value for name, value in part.items() if name != "text"}
            texts = [piece.text for piece in reply.content_pieces()]
            ends = (0, len(texts) - 1)
            yield from ({"text": text, **(seal if place in ends else {})} for place, text in enumerate(texts))


def _call(call: ToolCall, thought: str) -> dict[str, Any]:
    made = {"id": call.id, "name": call.name, "args": call.value}
    return {"functionCall": made, "thoughtSignature": sealed(call.id, thought)}


def _signed(part: dict[str, Any], thought: str) -> dict[str, Any]:
    return part | ({"thoughtSignature": sealed("", thought)} if thought else {})


def _ended(asked: Asked, reply: ChatReply, index: int, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer with why it ended, and the log-probabilities of its text."""
    reason = "MAX_TOKENS" if reply.finish_reason == "length" else "STOP"
    ended: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "finishReason": reason, "index": index}
    if asked.request.logprobs is not None and (tokens := reply.content_tokens):
        chosen = [{"token": one.text, "tokenId": one.id, "logProbability": one.logprob} for one in tokens]
        top = [[*one.alternatives[: asked.request.logprobs]] for one in tokens]
        others = [{"candidates": [{"token": text, "logProbability": value} for text, value in each]} for each in top]
        ended["avgLogprobs"] = sum(one.logprob for one in tokens) / len(tokens)
        ended["logprobsResult"] = {"chosenCandidates": chosen, **({"topCandidates": others} if any(top) else {})}
    return ended


def _about(asked: Asked, replies: Sequence[ChatReply]) -> dict[str, Any]:
    first, thought = replies[0], sum(reply.reasoning_tokens for reply in replies)
    said = sum(len(reply.tokens) for reply in replies)
    usage = {
        "promptTokenCount": first.prompt_tokens,
        "candidatesTokenCount": said - thought,
        "totalTokenCount": first.prompt_tokens + said,
        **({"thoughtsTokenCount": thought} if thought else {}),
        **({"cachedContentTokenCount": first.cached_tokens} if first.cached_tokens else {}),
    }
    return {"usageMetadata": usage, "modelVersion": asked.request.model, "responseId": first.id}


def _answer_form(config: Fields) -> AnswerForm | None:
    """The form of the answer, of `generationConfig`; None for any text.

    Raises:
        Refusal: it is none of the protocol's, or of a kind that is not had here.
    """
    mime = config.optional_text("responseMimeType") or PLAIN
    name = next((name for name in SCHEMAS if config.get(name) is not None), None)
    if config.get("responseFormat") is not None or mime not in (JSON, PLAIN):
        at = config.at("responseFormat" if mime in (JSON, PLAIN) else "responseMimeType")
        raise Refusal.unsupported(f"an answer is text, or {JSON} with a schema", at)
    if mime == PLAIN:
        if name is not None:
            raise Refusal.wrong_value(mime, [JSON], config.at("responseMimeType"))
        return None
    if name is None:
        return AnswerForm(json.dumps({"type": ["object", "array"]}), config.at("responseMimeType"))
    schema = config.get(name)  # as it is: `inner` would rename its properties
    if not isinstance(schema, dict):
        raise Refusal.wrong_value(schema, ["a schema"], config.at(name))
    return AnswerForm(json.dumps(_from_openapi(schema) if name == "responseSchema" else schema), config.at(name))


def _from_openapi(schema: Any) -> Any:
    """A schema of Google's (a subset of OpenAPI 3.0's, types in capitals) as JSON Schema."""
    if not isinstance(schema, dict):
        return schema
    made = {name: value for name, value in schema.items() if name not in OPENAPI_ONLY}
    if isinstance(kind := made.get("type"), str):
        made["type"] = [kind.lower(), "null"] if schema.get("nullable") else kind.lower()
    if isinstance(named := made.get("properties"), dict):
        made["properties"] = {name: _from_openapi(one) for name, one in named.items()}
    if isinstance(several := made.get("anyOf"), list):
        made["anyOf"] = [_from_openapi(one) for one in several]
    return {**made, "items": _from_openapi(made["items"])} if "items" in made else made
