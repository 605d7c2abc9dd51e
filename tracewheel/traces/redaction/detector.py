"""The record that describes a detector of secrets or personal data, and the search for where detectors should look."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

BEFORE = 40  # how many characters before a value are read for `unless`
# How far before the end of a sign a match of the detector's pattern may begin, and how far after it a match may have to look.
_BACK, _AHEAD = 300, 1_000

_MEMORY = 256 << 20  # an upper bound for RE2's tables, which need a few megabytes
# On text that nobody wrote, such as an image in base64 or a million digits, nearly every byte makes a state that the set has
# not seen, and a megabyte takes it 7 to 14 s. Alone, all expressions together take 0.2 s for a megabyte of anything.
_LONG = 1 << 10
_NEVER = 1 << 62


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "forms.toml").read_text(encoding="utf-8"))


def read_forms(table: str) -> list[list[str]]:
    """The rows of a table of `forms.toml`, which says what its columns are."""
    return list(_tables()[table])


def read_words(table: str) -> list[str]:
    """A list of `forms.toml`."""
    return list(_tables()[table])


def any_of(table: str) -> str:
    """An expression for any word of a list of `forms.toml`."""
    return f"(?:{'|'.join(read_words(table))})"


def as_found(value: str) -> str | None:
    """Accept any value, unchanged."""
    return value or None


@dataclass(frozen=True)
class Detector:
    """Finds one kind of value in unescaped text (`Unescaped`).

    Attributes:
        kind: The kind of value.
        signs: What every match of the pattern holds, for a quick search of all detectors' signs at once: words in any case,
            between bars, or one expression (Hyperscan, on Latin-1) that begins with `(?`. Without a sign the pattern is
            tried on every text.
        pattern: Finds candidates.
        group: The group of `pattern` that is the value.
        identify: The canonical form of a candidate, or None if it is a false match. Equal identities get equal
            pseudonyms.
        nested: The pattern tells quotes apart by their depth.
        unless: Words before a value that say that it is something else (`part no.`); they end where the value starts.
        doubt: Of overlapping values, the one with the least doubt counts: 0 for a form that only this kind has, 1 for a
            value in a place for secrets, 2 for a value named as a secret, 3 for personal data.
        ahead: How many characters after a sign decide whether there is a match. A match may be longer.
    """

    kind: str
    signs: str
    pattern: re.Pattern[str] | str
    group: int = 0
    identify: Callable[[str], str | None] = as_found
    nested: bool = False
    doubt: int = 0
    unless: re.Pattern[str] | None = None
    ahead: int = _AHEAD

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.ASCII) if isinstance(self.pattern, str) else self.pattern

    def matches(self, text: str, ends: Sequence[int] | None = None) -> Iterator[re.Match[str]]:
        """The candidates in an unescaped text that the words before them do not rule out.

        Args:
            text: The text.
            ends: Where signs end in it, in order; None to search all of it.
        """
        for begin, end in self._windows(ends) if ends is not None else [(0, len(text))]:
            for found in self._compiled.finditer(text, begin, end):
                # What the window cut off belongs to the value.
                match = self._compiled.match(text, found.start()) if found.end() >= end else found
                if match is None:
                    continue
                start = match.start(self.group)
                if self.unless is None or not self.unless.search(text, max(0, start - BEFORE), start):
                    yield match

    def _windows(self, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
        begin, end = max(0, ends[0] - _BACK), ends[0]
        for at in ends:
            if at - _BACK > end + self.ahead:
                yield begin, end + self.ahead
                begin = at - _BACK
            end = at
        yield begin, end + self.ahead


def when(fits: Callable[[str], bool]) -> Callable[[str], str | None]:
    """An `identify` that accepts values for which `fits` is true, unchanged."""
    return lambda value: value if value and fits(value) else None


def mixed(value: str) -> bool:
    """Whether a value has both letters and digits, as keys do and words do not."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


@cache
def _database(forms: tuple[str, ...]) -> Any:
    import hyperscan

    expressions = [re.sub(r"[^\x00-\xff]", r"\\?", form).encode("latin-1") for form in forms]
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=expressions, ids=list(range(len(forms))), elements=len(forms), flags=[0] * len(forms))
    return database


class Signs:
    """Searches a text for the signs of many detectors in one pass (Hyperscan).

    A letter that Latin-1 does not have is a `?` to it.
    """

    def __init__(self, detectors: Iterable[Detector]) -> None:
        owners: dict[str, list[int]] = {}
        self._always: list[int] = []
        for index, detector in enumerate(detectors):
            for sign in [detector.signs] if detector.signs.startswith("(?") else detector.signs.split("|"):
                if sign:
                    form = sign if sign.startswith("(?") else f"(?i:{re.escape(sign)})"
                    owners.setdefault(form, []).append(index)
                else:
                    self._always.append(index)
        self._members = list(owners.values())
        self._database = _database(tuple(owners)) if owners else None

    def found(self, text: str) -> list[tuple[int, int]]:
        """The signs in a text: which, and where it ends."""
        places: list[tuple[int, int]] = []

        def note(sign: int, _begin: int, end: int, _flags: int, _context: Any) -> None:
            places.append((sign, end))

        if self._database:
            self._database.scan(text.encode("latin-1", "replace"), match_event_handler=note)
        return places

    def are_in(self, text: str) -> bool:
        """Whether a text holds any sign, or a detector has none."""
        return bool(self._always) or bool(self.found(text))

    def detectors(self, text: str) -> dict[int, list[int] | None]:
        """The detectors whose signs are in a text, by their positions, with where these end; None for those without signs."""
        return self.of_each([text])[0]

    def of_each(self, texts: Sequence[str]) -> list[dict[int, list[int] | None]]:
        """The same for each of many texts, with one search. What joins them, a line end, is neither letter nor digit."""
        places = iter(sorted(self.found("\n".join(texts)), key=itemgetter(1)))
        sign, end = next(places, (0, _NEVER))
        begin, found = 0, []
        for text in texts:
            last = begin + len(text)
            ends: dict[int, list[int] | None] = dict.fromkeys(self._always)
            while end <= last:
                for index in self._members[sign] if end > begin else ():
                    ends.setdefault(index, []).append(end - begin)  # type: ignore[union-attr]
                sign, end = next(places, (0, _NEVER))
            found.append(dict(sorted(ends.items())))
            begin = last + 1
        return found


class Triggers:
    """Searches bytes for many expressions in one pass (RE2's sets), linear in the length for any number of expressions.

    Args:
        expressions: In RE2's syntax; each matches bytes.
    """

    def __init__(self, expressions: Sequence[str]) -> None:
        import re2

        self._options = options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1  # bytes, whatever they encode
        options.max_mem = _MEMORY
        self._distinct = distinct = list(dict.fromkeys(expressions))
        self._members = [[i for i, own in enumerate(expressions) if own == expression] for expression in distinct]
        self._set = re2.Set.SearchSet(options)
        for expression in distinct:
            self._set.Add(expression.encode("latin-1"))
        self._set.Compile()
        every = b"|".join(b"(?:" + expression.encode("latin-1") + b")" for expression in distinct)
        self._any = re2.compile(every, options) if every else None

    @cached_property
    def _alone(self) -> list[Any]:
        import re2

        return [re2.compile(expression.encode("latin-1"), self._options) for expression in self._distinct]

    def fire(self, data: bytes) -> bool:
        """Whether any expression is found."""
        return self._any is not None and self._any.search(data) is not None

    def fired(self, data: bytes) -> list[int]:
        """The positions of the expressions that are found, in order."""
        if len(data) > _LONG:
            found = [index for index, expression in enumerate(self._alone) if expression.search(data)]
        else:
            found = (self._set.Match(data) or []) if self._members else []  # None without a match
        return sorted(member for index in found for member in self._members[index])

    def found(self, text: str) -> list[str]:
        """The parts of a text that an expression matches; letters that are not ASCII are lost."""
        if self._any is None:
            return []
        return [match.group().decode("ascii", "replace") for match in self._any.finditer(text.encode("utf-8", "surrogatepass"))]
