"""What a chat template does to the turns of a policy when the conversation goes on: keeps, reframes or drops their text.

A turn's text is given to the template as an assistant message, its thinking and the rest of it between marks. What stands
between marks afterwards was kept; the text around it shows how the turn is framed now. White space alone makes no
difference, and neither does a call's spelling, because the template never sees a parsed call.
"""

from __future__ import annotations

import itertools
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tracewheel.chat.formats.base import THINK_CLOSE, THINK_OPEN
from tracewheel.core.errors import ConfigError

Message = dict[str, Any]
_PRIVATE = range(0xE010, 0xF8FF)


@dataclass(frozen=True)
class OwnTurn:
    """A turn of the policy: its ids, and their text without the end token.

    `escaped` is that text with its control tokens marked. `generation_prompt` is the text that the template wrote before the
    turn, which may open its thinking. `end` is the text of the end token.
    """

    ids: tuple[int, ...]
    text: str
    escaped: str
    generation_prompt: str
    end: str
    decode: Callable[[list[int]], str]

    @cached_property
    def opener(self) -> str:
        """The part of the generation prompt that opens the turn's thinking; empty where none is left open."""
        return THINK_OPEN + "\n" if opens_thinking(self.generation_prompt) else ""

    @cached_property
    def cores(self) -> list[tuple[int, int]]:
        """The ranges of `text` that hold the thinking and the rest, without tags and surrounding white space."""
        if THINK_CLOSE not in self.text:
            return _cores(self.text, [(0, len(self.text))])
        close = self.text.index(THINK_CLOSE)
        indent = len(self.text) - len(self.text.lstrip())
        opened = indent + len(THINK_OPEN) if self.text.startswith(THINK_OPEN, indent) else 0
        return _cores(self.text, [(opened, close), (close + len(THINK_CLOSE), len(self.text))])

    def aligned(self, start: int, stop: int) -> tuple[int, int, int, int]:
        """The tokens [first, last) that lie within the text's range [start, stop), and where their text starts and stops."""
        count = len(self.ids)
        first = bisect_left(range(count + 1), start, key=self._offset)
        while first <= count and not self._is_boundary(first):
            first += 1
        last = bisect_right(range(count + 1), stop, key=self._offset) - 1
        while last > first and not self._is_boundary(last):
            last -= 1
        if last <= first:
            return 0, 0, start, start
        return first, last, self._offset(first), self._offset(last)

    def _offset(self, tokens: int) -> int:
        return len(self.decode(list(self.ids[:tokens])))

    def _is_boundary(self, tokens: int) -> bool:
        return self.text.startswith(self.decode(list(self.ids[:tokens])))


@dataclass(frozen=True)
class Kept:
    """The tokens [first, last) of the policy's turn `turn`, verbatim."""

    turn: int
    first: int
    last: int


Piece = str | Kept


def opens_thinking(generation_prompt: str) -> bool:
    """Whether the text before a turn leaves a thought open."""
    return generation_prompt.rstrip().endswith(THINK_OPEN)


def rendered_pieces(
    render: Callable[[list[Message]], str], messages: Sequence[Message | int], turns: list[OwnTurn]
) -> list[Piece]:
    """A conversation as the template renders it: its text, and in their places the tokens of turns that it keeps.

    Args:
        render: The template's text of messages.
        messages: The messages; a number stands for the policy's turn of that number.
        turns: The policy's turns.

    Raises:
        ConfigError: the template cannot render these messages, or loses the marks.
    """
    bare: set[int] = set()
    for _ in range(2):
        mark = _free_character(messages, turns)
        text = render([_spoken(turns[each], each, mark, each in bare) if isinstance(each, int) else each for each in messages])
        pieces = re.split(f"{mark}([0-9]+)[.]([0-9]+){mark}([^{mark}]*){mark}", text)
        lost = _damaged(pieces, turns, mark) - bare
        if not lost:
            return _joined(_framed(pieces, turns))
        bare |= lost
    raise ConfigError(
        "the chat template changes the text of assistant turns in a way that cannot be followed, so it cannot be tokenised "
        "turn by turn: use another template"
    )


def _spoken(turn: OwnTurn, number: int, mark: str, bare: bool) -> Message:
    """The turn's message, its cores between marks."""
    if bare:
        return {"role": "assistant", "content": turn.opener + turn.escaped}
    content, at = turn.opener, 0
    for place, (start, stop) in enumerate(turn.cores):
        content += f"{turn.text[at:start]}{mark}{number}.{place}{mark}{turn.text[start:stop]}{mark}"
        at = stop
    return {"role": "assistant", "content": content + turn.text[at:]}


def _damaged(pieces: list[str], turns: list[OwnTurn], mark: str) -> set[int]:
    """The turns whose text the template has changed between the marks, or whose marks it has torn apart."""
    found = {
        int(number)
        for number, place, core in zip(pieces[1::4], pieces[2::4], pieces[3::4], strict=True)
        if core != turns[int(number)].text[slice(*turns[int(number)].cores[int(place)])]
    }
    if any(mark in text for text in pieces[::4]):
        return found | set(range(len(turns)))
    return found


def _framed(pieces: list[str], turns: list[OwnTurn]) -> list[Piece]:
    """Literals and kept tokens, from [literal, turn, place, core, literal, ...]."""
    out: list[Piece] = [pieces[0]]
    at = 1
    while at < len(pieces):
        number = int(pieces[at])
        turn = turns[number]
        count = 1
        while at + 4 * count < len(pieces) and int(pieces[at + 4 * count]) == number:
            count += 1
        before, after = str(out.pop()), pieces[at + 4 * count - 1]
        between = [pieces[at + 4 * place + 3] for place in range(count - 1)]
        places = [int(pieces[at + 4 * place + 1]) for place in range(count)]
        whole = _whole(turn, places, before, between, after)
        if whole is not None:
            out += [whole[0], Kept(number, 0, len(turn.ids)), whole[1]]
        else:
            out.append(before)
            for place, following in zip(places, [*between, after], strict=True):
                out += [*_core(turn, number, place), following]
        at += 4 * count
    return out


def _whole(turn: OwnTurn, places: list[int], before: str, between: list[str], after: str) -> tuple[str, str] | None:
    """The literals around a turn that is kept as it was sampled; None where it is not."""
    cores = turn.cores
    if places != list(range(len(cores))):
        return None
    start = _suffix(before, turn.generation_prompt + turn.text[: cores[0][0]])
    stop = _prefix(after, turn.text[cores[-1][1] :] + turn.end)
    gaps = [turn.text[one[1] : other[0]] for one, other in itertools.pairwise(cores)]
    if start is None or stop is None or list(map(_squashed, gaps)) != list(map(_squashed, between)):
        return None
    return before[:start] + turn.generation_prompt, after[stop:]


def _core(turn: OwnTurn, number: int, place: int) -> list[Piece]:
    """A core that was kept in another frame: its whole tokens verbatim, and the text at their edges."""
    start, stop = turn.cores[place]
    first, last, begins, ends = turn.aligned(start, stop)
    if first == last:
        return [turn.text[start:stop]]
    return [turn.text[start:begins], Kept(number, first, last), turn.text[ends:stop]]


def _joined(pieces: list[Piece]) -> list[Piece]:
    """The pieces with adjacent literals joined and empty ones left out."""
    out: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and out and isinstance(out[-1], str):
            out[-1] += piece
        elif piece != "":
            out.append(piece)
    return out


def _suffix(text: str, wanted: str) -> int | None:
    """Where `wanted` begins at the end of `text`, whatever the white space; None where it does not stand there."""
    at = len(text)
    for character in reversed(_squashed(wanted)):
        while at and text[at - 1].isspace():
            at -= 1
        if not at or text[at - 1] != character:
            return None
        at -= 1
    return at


def _prefix(text: str, wanted: str) -> int | None:
    """Where `wanted` ends at the beginning of `text`, whatever the white space; None where it does not stand there."""
    at = 0
    for character in _squashed(wanted):
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != character:
            return None
        at += 1
    return at


def _squashed(text: str) -> str:
    return "".join(text.split())


def _cores(text: str, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges without their surrounding white space; blank ones are left out."""
    found = []
    for start, stop in ranges:
        part = text[start:stop]
        if part.strip():
            found.append((start + len(part) - len(part.lstrip()), start + len(part.rstrip())))
    return found


def _free_character(messages: Sequence[Message | int], turns: list[OwnTurn]) -> str:
    """A character of the private use area that nobody has written."""
    written = json.dumps([each for each in messages if not isinstance(each, int)], ensure_ascii=False)
    used = set(written).union(*(turn.text for turn in turns))
    return next(chr(code) for code in _PRIVATE if chr(code) not in used)
