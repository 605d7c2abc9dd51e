"""Finds known values again where no context marks them: "the password is hunter2 … I typed hunter2"."""

from __future__ import annotations

import base64
import copy
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tracewheel.config.curation import PERSONAL_KINDS
from tracewheel.core.types import Trace
from tracewheel.traces.redaction.detector import Triggers, mixed
from tracewheel.traces.redaction.pseudonyms import Pseudonyms, standins
from tracewheel.traces.redaction.unescaped import Unescaped

SHORTEST_VALUE, SHORTEST_SECRET, SHORTEST_OF_LETTERS = 6, 8, 16
FEW = 50  # as many are found fastest with one expression; each more costs it time in every text
MOST_SEARCHED = 20_000  # for more values, looking up each word is cheaper than one search for all
MOST_ENCODED = 2_000  # of more values, base64 is found only where it holds a text of eighteen characters
WORD = re.compile(r"[A-Za-z0-9]+")
_IDENTIFIER = re.compile(r"[A-Za-z]+(?:[_.][A-Za-z]+)+")  # `tool_calls`, `config.json`
BACKSLASH = ord("\\")
WORDS_ALONE = bytes(byte if WORD.fullmatch(chr(byte)) else ord(" ") for byte in range(256))


class Found(NamedTuple):
    """A value in a text, from `start` to `end` of the escaped text; `value` is unescaped."""

    start: int
    end: int
    kind: str
    value: str
    identity: str


class KnownValues:
    """Values found in a text, by kind and identity, to find them again without their context."""

    def __init__(self, identities: Iterable[tuple[str, str]]) -> None:
        known = [(form, pair) for pair in identities for form in _forms(*pair)]
        self._meant = {form: pair for form, pair in known if _is_telling(form)}
        self._is_few = len(self._meant) <= FEW
        if self._is_few:
            self._cores = {core for form in self._meant for core in (_core(form), *in_base64(form))}
            longest_first = sorted(self._meant, key=len, reverse=True)
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])")
        else:
            self._words = _Words(self._meant, MOST_ENCODED)
            self._lengths: dict[str, set[int]] = {}
            for form in self._meant:
                self._lengths.setdefault(form[:SHORTEST_VALUE], set()).add(len(form))

    def may_be_in(self, written: str) -> bool:
        """Whether a text holds the longest word of any value, or the value in base64."""
        if self._is_few:
            return any(map(written.__contains__, self._cores))
        return self._words.may_be_in(written.encode("utf-8", "surrogatepass"))

    def find(self, text: Unescaped) -> Iterator[Found]:
        """The values in a text."""
        if not self._meant:
            return
        spans = (match.span() for match in self._pattern.finditer(text.plain)) if self._is_few else self._spans(text.plain)
        for start, end in spans:
            kind, identity = self._meant[text.plain[start:end]]
            yield Found(*text.span(start, end), kind, text.plain[start:end], identity)

    def _spans(self, plain: str) -> Iterator[tuple[int, int]]:
        """What the expression would find, in one pass for any number of values: the longest at each place, none within one."""
        end = 0
        for at in range(len(plain) - SHORTEST_VALUE + 1):
            lengths = self._lengths.get(plain[at : at + SHORTEST_VALUE])
            if lengths is None or at < end or _is_of_word(plain[at - 1 : at]):
                continue
            for length in sorted(lengths, reverse=True):
                after = at + length
                if plain[at:after] in self._meant and not _is_of_word(plain[after : after + 1]):
                    yield at, after
                    end = after
                    break


class _Words:
    """A quick search for the longest words of many values, and for the values in base64.

    Args:
        values: The values.
        most_searched: Of more values, each word of a text is looked up.

    Attributes:
        by_core: The values by their longest word.
    """

    def __init__(self, values: Collection[str], most_searched: int) -> None:
        self.by_core: dict[str, list[str]] = {}
        for value in values:
            self.by_core.setdefault(_core(value), []).append(value)
        few = len(self.by_core) <= most_searched
        encoded = [core for value in values for core in in_base64(value)] if len(values) <= MOST_ENCODED else []
        self._search = Triggers([*map(re.escape, (*self.by_core, *encoded))]) if few else None

    def may_be_in(self, data: bytes) -> bool:
        """Whether bytes hold the longest word of any value, or a value in base64; escaped letters are missed."""
        if self._search or not self.by_core:
            return self._search is not None and self._search.fire(data)
        for control in b"nrtbf":  # an escaped line end in JSON is not part of the next word
            data = data.replace(bytes((BACKSLASH, control)), b"  ")
        return any(word.decode() in self.by_core for word in set(data.translate(WORDS_ALONE).split()))


class KnownSecrets:
    """Secrets of some traces, to find them in all others.

    Only unmistakable ones: eight characters or more, letters and digits. No personal data, as a phone number in one trace
    may be an order number in another.
    """

    def __init__(self, kinds: Mapping[str, str] | None = None) -> None:
        self.kinds = dict(kinds or {})
        self._words = _Words(self.kinds, MOST_SEARCHED)

    def __len__(self) -> int:
        return len(self.kinds)

    def with_more(self, kinds: Mapping[str, str]) -> KnownSecrets:
        """These secrets and more, given as kinds by value."""
        return KnownSecrets({**self.kinds, **kinds})

    def may_be_in(self, data: bytes) -> bool:
        """Whether bytes may hold a secret; escaped letters are missed."""
        return self._words.may_be_in(data)

    def find(self, text: Unescaped) -> Iterator[Found]:
        """The secrets in a text."""
        there = [value for word in set(WORD.findall(text.plain)) for value in self._words.by_core.get(word, ())]
        if there:
            yield from KnownValues((self.kinds[value], value) for value in there).find(text)


def telling_secrets(identities: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The values fit for `KnownSecrets` among those found in a trace: kinds by value."""
    return {value: kind for kind, value in identities if kind not in PERSONAL_KINDS and _is_unmistakable(value)}


def in_base64(value: str) -> list[str]:
    """What base64 makes of a value in the middle of a text, at each of the three places where it may begin."""
    raw = value.encode("utf-8", "surrogatepass")
    found = []
    for shift, first in enumerate((0, 2, 3)):
        whole = base64.b64encode(b"\0" * shift + raw).decode()
        found.append(whole[first : (shift + len(raw)) * 8 // 6])
    return [form for core in found for form in dict.fromkeys((core, core.replace("+", "-").replace("/", "_")))]


def _forms(kind: str, identity: str) -> list[str]:
    """The forms in which a known value may appear without its context."""
    if kind != "phone":
        return [identity]
    return [identity, identity.removeprefix("+"), identity.removeprefix("+1")]


def _core(value: str) -> str:
    """The longest word of a value."""
    return max(WORD.findall(value), key=len, default=value)


def _is_of_word(character: str) -> bool:
    return WORD.fullmatch(character) is not None


def _is_telling(value: str) -> bool:
    """Whether a value is specific enough to search for; a short or plain word may mean something else elsewhere."""
    if value.isalpha():
        return len(value) >= SHORTEST_OF_LETTERS
    return len(value) >= SHORTEST_VALUE and not _IDENTIFIER.fullmatch(value)


def _is_unmistakable(value: str) -> bool:
    return len(value) >= SHORTEST_SECRET and mixed("".join(WORD.findall(value)))


AROUND = 80  # characters around a value in which to look for pseudonyms that overlap it
LARGEST_DOUBT, SECRETS_ONLY, CERTAIN = 3, 2, 0
KNOWN_ELSEWHERE = 4  # more than any detector's doubt


@dataclass
class Search:
    """What a search of one record knows: its pseudonyms, and the values that have one."""

    pseudonyms: Pseudonyms
    most_doubt: int = LARGEST_DOUBT
    names: frozenset[str | None] = frozenset()
    known: KnownValues = field(init=False)
    values: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        self.refresh()

    def allows(self, doubt: int, kind: str) -> bool:
        """Whether what a detector finds counts."""
        return doubt <= self.most_doubt or (kind == "email" and self.most_doubt > 0)

    def within(self, most_doubt: int) -> Search:
        """The same search for less doubtful values."""
        inner = copy.copy(self)
        inner.most_doubt = min(self.most_doubt, most_doubt)
        return inner

    def refresh(self) -> bool:
        """Search for the values found so far, too; returns whether there are new ones."""
        before, self.values = self.values, len(self.pseudonyms)
        if self.values != before:
            self.known = KnownValues(self.identities())
        return self.values != before

    def identities(self) -> list[tuple[str, str]]:
        """The values to find again. A name of the record, such as its model's, is none, though it may follow `token:`."""
        return [pair for pair in self.pseudonyms.identities() if pair[1] not in self.names]


def names_in(trace: Trace) -> Iterator[str | None]:
    """The names of the model, the tools and the format."""
    yield from (trace.model, trace.format)
    for tool in trace.tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            yield name


def is_made(text: str, item: Found) -> bool:
    """Whether a value overlaps a pseudonym, and does not hold another secret beside it."""
    first = max(item.start - AROUND, 0)
    spans = [(first + start, first + end) for start, end in standins(text[first : item.end + AROUND])]
    spans = [(start, end) for start, end in spans if start < item.end and item.start < end]
    if not spans:
        return False
    if any(start < item.start or item.end < end for start, end in spans):
        return True
    rest = text[item.start : item.end]
    for start, end in reversed(spans):
        rest = rest[: start - item.start] + " " + rest[end - item.start :]
    return not any(len(word) >= SHORTEST_SECRET and mixed(word) for word in WORD.findall(rest))


def apart(candidates: list[tuple[int, Found]]) -> list[Found]:
    """Candidates without overlaps: the least doubt wins, then the longest."""
    chosen: list[Found] = []
    for _, item in sorted(candidates, key=lambda entry: (entry[0], entry[1].start - entry[1].end)):
        place = bisect_left(chosen, item)
        before, after = chosen[max(place - 1, 0) : place], chosen[place : place + 1]
        if all(other.end <= item.start for other in before) and all(item.end <= other.start for other in after):
            chosen.insert(place, item)
    return chosen
