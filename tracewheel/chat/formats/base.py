"""What a tool-call format is: how a policy writes calls in an assistant turn, and how its turns are framed and ended."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class ParsedCall:
    """One call of a turn: a name with arguments, or the reason why it is malformed."""

    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    malformed: str = ""

    @classmethod
    def from_json(cls, value: Any, keys: Sequence[str] = ("arguments",), *, needs_arguments: bool = False) -> ParsedCall:
        """The call that a JSON object is: it has a `name` and, under one of `keys`, its arguments."""
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            return cls(malformed='no "name"')
        given = next((key for key in keys if key in value), None)
        if given is None:
            return cls(malformed=f'no "{keys[0]}"') if needs_arguments else cls(value["name"])
        if not isinstance(value[given], dict):
            return cls(malformed=f'"{given}" is not an object')
        return cls(value["name"], value[given])


@dataclass(frozen=True)
class ParsedTurn:
    """A parsed assistant turn: its free text, its calls in order, and the thinking before them."""

    content: str
    calls: list[ParsedCall]
    thinking: str = ""


class ToolFormat(ABC):
    """A tool-call format. Implementations take no arguments and keep no state.

    >>> class Shouted(ToolFormat):
    ...     def parse(self, text, tools=()):
    ...         thinking, text = self.split_thinking(text)
    ...         name, called, said = text.partition("!")
    ...         return ParsedTurn(said, [ParsedCall(name)], thinking) if called else ParsedTurn(text, [], thinking)
    ...
    ...     def render(self, calls):
    ...         return self.checked(calls, "".join(f"{call.name}!" for call in calls))
    >>> Shouted().parse(Shouted().render([ParsedCall("look")]))
    ParsedTurn(content='', calls=[ParsedCall(name='look', arguments={}, malformed='')], thinking='')

    A wheel names its class as an entry point of `tracewheel.tool_formats`; your own is `policy.tool_format: module:Class`.

    Attributes:
        REPLY_FRAMES: Texts that frame a tool's reply.
        CALL_FRAMES: Texts that frame a call.
        END_TOKENS: Tokens that may end a turn of this format, besides the one that the chat template writes.
        THINKING_TAGS: What a policy writes around its thinking.
        THINKING_KEY: The key of an assistant message in which this format's templates look for its thinking.
    """

    REPLY_FRAMES: ClassVar[tuple[str, ...]] = ()
    CALL_FRAMES: ClassVar[tuple[str, ...]] = ()
    END_TOKENS: ClassVar[tuple[str, ...]] = ()
    THINKING_TAGS: ClassVar[tuple[str, str]] = (THINK_OPEN, THINK_CLOSE)
    THINKING_KEY: ClassVar[str] = "reasoning_content"

    @abstractmethod
    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        """Parse an assistant turn without its end token. Never raises: what cannot be read is a malformed call.

        Takes time linear in the text. `tools` are the tools offered, as OpenAI schemas, for formats that write every
        argument as plain text; the others ignore them.
        """

    @abstractmethod
    def render(self, calls: Sequence[ParsedCall]) -> str:
        """The text that a policy samples for these calls, without an end token; `parse` reads the same calls from it.

        Raises:
            UnwritableCallError: the format cannot write a name or an argument.
        """

    def split_thinking(self, text: str, calls: str | None = None) -> tuple[str, str]:
        """Split a turn into (thinking, rest) at `THINKING_TAGS`; `calls` is the text that begins a call."""
        return split_thinking(text, calls, self.THINKING_TAGS)

    def checked(self, calls: Sequence[ParsedCall], text: str, tools: Sequence[dict[str, Any]] = ()) -> str:
        """Give `text` back if the format reads `calls` from it, offered `tools`.

        Raises:
            UnwritableCallError: it reads something else.
        """
        if self.parse(text, tools) != ParsedTurn("", list(calls)):
            raise UnwritableCallError(f"{type(self).__name__} cannot write a name or an argument of these calls")
        return text


class UnwritableCallError(ValueError):
    """A format has no way to write a call, for instance an argument that contains the format's own closing tag."""


def split_thinking(text: str, calls: str | None = None, tags: tuple[str, str] = (THINK_OPEN, THINK_CLOSE)) -> tuple[str, str]:
    """Split a turn into (thinking, rest) at the tag that closes its thinking.

    The opening tag may be missing, because some templates write it themselves; the closing one then counts only before
    the first `calls`, the text that begins a call, since an argument may contain it. A turn that opens its thinking and
    does not close it has no rest, so a call in unfinished thinking is no call.
    """
    opening, closing = tags
    start = skip_space(text, 0)
    head, closed, rest = text.partition(closing)
    if text.startswith(opening, start):
        return head[start + len(opening) :].strip(), rest if closed else ""
    if closed and opening not in head and not (calls and calls in head):
        return head.strip(), rest
    return "", text


def skip_space(text: str, at: int) -> int:
    """The first position from `at` on that is not white space of JSON."""
    found = _NOT_SPACE.search(text, at)
    return found.start() if found else len(text)


_NOT_SPACE = re.compile(r"[^ \t\n\r]")
