"""The contents of a Gemini request: parts become messages."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, NamedTuple

from tracewheel import Fields, Refusal, ToolCall, as_text, chat_message

ROLES = ("user", "model", "function", "tool")
FILES = ("inlineData", "fileData")
READ = ("text", "functionCall", "functionResponse", *FILES)
BESIDE = {"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}
SEAL = b"tracewheel:"
_SNAKE = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")


class Proto(Fields):
    """An object of Google's JSON: keys in camel or snake case; an object where a list is due is a list of one."""

    def __init__(self, value: Any, path: str = "", dropped: set[str] | None = None) -> None:
        super().__init__(value, path, dropped)
        self.value = {_SNAKE.sub(lambda found: found[1].upper(), name): one for name, one in value.items()}

    def listed(self, name: str) -> list[Any]:
        """See `Fields`."""
        found = self.value.get(name)
        return [found] if isinstance(found, dict) else super().listed(name)


def sealed(call: str, thought: str) -> str:
    """A part's `thoughtSignature`: the id of its call and what was thought before it.

    Clients send it back as it is, also those that leave thoughts out, and those that give calls other ids.
    """
    return base64.b64encode(SEAL + json.dumps([call, thought]).encode()).decode()


def _unsealed(part: Fields) -> tuple[str, str]:
    try:
        raw = base64.b64decode((part.optional_text("thoughtSignature") or "").translate({45: 43, 95: 47}), validate=True)
        call, thought = json.loads(raw.removeprefix(SEAL)) if raw.startswith(SEAL) else ("", "")
    except (binascii.Error, ValueError, TypeError):
        return "", ""
    return (call, thought) if isinstance(call, str) and isinstance(thought, str) else ("", "")


class _Open(NamedTuple):
    """A call that waits for its result: its name, its id as the program has it, and ours."""

    name: str
    given: str
    id: str


class _Reader:
    """Collects contents. What the model said in several, one right after the other, is one message."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._open: list[_Open] = []
        self._text, self._thought, self._seals = "", "", list[str]()
        self._calls, self._speaks = list[ToolCall](), False

    def read(self, content: Fields) -> None:
        """Add a content."""
        if content.choice("role", ROLES) == "model":
            self._speaks = True
            for part in content.objects("parts"):
                self._said(part)
            return
        self.end_turn()
        texts: list[str] = []
        for part in content.objects("parts"):
            if (response := part.inner("functionResponse")) is not None:
                self.messages.append(self._result(response))
            else:
                texts.append(_shown(part))
        if texts or not content.listed("parts"):
            self.messages.append(chat_message("user", "".join(texts)))

    def end_turn(self) -> None:
        """End what the model says."""
        if self._speaks:
            thought = "".join(self._seals) or self._thought
            self.messages.append(chat_message("assistant", self._text, reasoning=thought, calls=self._calls))
        self._text, self._thought, self._seals, self._calls, self._speaks = "", "", [], [], False

    def _said(self, part: Fields) -> None:
        identity, thought = _unsealed(part)
        if thought and thought not in self._seals:  # a reply's text has it at both ends
            self._seals.append(thought)
        call = part.inner("functionCall")
        if part.flag("thought"):
            self._thought += part.optional_text("text") or ""
        elif call is None:
            self._text += _shown(part)
        else:
            if not self._calls:
                self._open = []
            name, given = call.text("name"), call.optional_text("id") or ""
            identity = identity or given or f"{name}-{len(self.messages)}-{len(self._calls)}"
            self._open.append(_Open(name, given, identity))
            call.inner("args")
            self._calls.append(ToolCall.given(identity, name, call.get("args") or {}))

    def _result(self, response: Fields) -> dict[str, Any]:
        """The message of a result, which belongs to the call of its id, or else to the first of its name."""
        given, name = response.optional_text("id") or "", response.optional_text("name") or ""
        ways = [one for one in self._open if given and given in (one.given, one.id)]
        found = next(iter(ways or [one for one in self._open if one.name == name]), None)
        if found is not None:
            self._open.remove(found)
        told = response.inner("response")
        values = {} if told is None else response.get("response")
        text = as_text(next(iter(values.values())) if len(values) == 1 else values) if values else ""
        text += "".join(map(_shown, response.objects("parts")))
        return chat_message("tool", text, call_id=found.id if found else given or name)


def read_contents(fields: Fields) -> list[dict[str, Any]]:
    """The messages of a request.

    Raises:
        Refusal: there are none, or a part is wrong.
    """
    if not fields.listed("contents"):
        raise fields.missing("contents")
    reader = _Reader()
    for content in fields.objects("contents"):
        reader.read(content)
    reader.end_turn()
    return reader.messages


def system_text(fields: Fields) -> str:
    """The system prompt."""
    system = fields.inner("systemInstruction")
    return "" if system is None else "\n".join(map(_shown, system.objects("parts")))


def _shown(part: Fields) -> str:
    """The text of a part; what stands for a file.

    Raises:
        Refusal: the part is something else, as what a tool of the vendor's did.
    """
    kind = next((name for name in READ if part.get(name) is not None), None)
    if kind == "text":
        return part.text("text")
    if kind in FILES and (shown := part.stand_in(kind, {kind: part.get(kind)})) is not None:
        return shown
    if other := next((name for name, value in part.value.items() if value is not None and name not in BESIDE), None):
        raise Refusal.invalid(f"A part may be one of {', '.join(READ)} here, and not {other!r:.40}.", part.at(other)[:80])
    return ""
