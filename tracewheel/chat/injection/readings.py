"""A text as it is read: normalised, and what it hides (base64, hexadecimal, escapes, ROT13, spaced and reversed letters).

Each reading knows from where in the text each of its characters comes, so that what is found in it can be taken out. All is
linear in the length of the text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import functools
import html
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

# Invisible characters: zero-width and direction marks, tags, soft hyphen. They hide words from a reader and from patterns.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]"
)
TAGS = range(0xE0020, 0xE007F)
DEEPEST = 3
ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+|&#?\w{1,31};|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}")
ENCODED = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}(?:\r?\n[A-Za-z0-9+/]{16,}={0,2})*")
HEXADECIMAL = re.compile(r"(?:(?:\\x|0x)?[0-9a-fA-F]{2}[ :,]?){12,}")
BINARY = re.compile(r"(?:[01]{8} ?){6,}")
SPACED = re.compile(r"(?<!\w)(?:\w[ .\-_*|·,]{1,3}){4,}\w(?!\w)")
ROTATED = re.compile(r"\b(?:gur|naq|lbhe|guvf|nyy|sbe|vtaber|haq|qvr|qvrfr|yn|yrf|prggr|rfgn|gbqnf|zl|nf)\b", re.IGNORECASE)
REVERSED = re.compile(
    r"erongi|dragersid|kram|erocs|edarg|drawer|tcerroc|cirbur|noitaulave|snoitcurtsni|eresilgi", re.IGNORECASE
)


@dataclass(frozen=True)
class Reading:
    """A text as it may be read.

    Attributes:
        text: Lower case, without accents and invisible characters.
        places: For each of its characters, where in the original it begins; None where they are the same.
        hidden: How it was hidden, or "".
        ends: Where it ends, if not one character later.
        encoded: Whether all of it was in a code: honest text hides no words about marks.
        joined: Whether it holds letters that were apart, without the spaces between their words.
    """

    text: str
    places: Sequence[int] | None
    hidden: str = ""
    ends: Sequence[int] | None = None
    encoded: bool = False
    joined: bool = False

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The part of the original that holds a part of the reading."""
        if self.places is None:
            return start, end
        if self.ends is not None:
            return self.places[start], self.ends[end - 1]
        one, other = self.places[start], self.places[end - 1]  # the other way round in reversed letters
        return min(one, other), max(one, other) + 1


def readings(text: str, depth: int = 0) -> Iterator[Reading]:
    """All readings of a text, the plain one first."""
    plain = normalised(text)
    yield plain
    yield from _derived(text, plain)
    if runs := list(_decoded(text)) if depth < DEEPEST else []:
        said = "\n".join(run[2] for run in runs)
        owners = [number for number, run in enumerate(runs) for _ in range(len(run[2]) + 1)]
        hidden = " and ".join(sorted({run[3] for run in runs}))
        for inner in readings(said, depth + 1):
            own = [owners[place] for place in (range(len(said)) if inner.places is None else inner.places)]
            places, ends = [runs[number][0] for number in own], [runs[number][1] for number in own]
            yield Reading(inner.text, places, hidden, ends, True, inner.joined)


def normalised(text: str) -> Reading:
    """The plain reading; of the text in lower case without accents, invisible characters and styles of letters."""
    if text.isascii():
        return Reading(text.lower(), None)
    out: list[str] = []
    places: list[int] = []
    for place, letter in enumerate(text):
        shown = _shown(letter)
        out.append(shown)
        places.extend([place] * len(shown))
    hidden = "invisible characters" if INVISIBLE.search(text) else ""
    return Reading("".join(out), places, hidden)


@functools.lru_cache(maxsize=1 << 17)
def _shown(letter: str) -> str:
    """A character as it is read: "" for an invisible one, a letter for a letter of Unicode's tags."""
    code = ord(letter)
    if code in TAGS:
        return chr(code - 0xE0000).lower()
    if INVISIBLE.match(letter) or unicodedata.category(letter) == "Cf":
        return ""
    bare = "".join(one for one in unicodedata.normalize("NFKD", letter) if unicodedata.category(one) != "Mn")
    return unicodedata.normalize("NFC", bare).casefold()


def _derived(text: str, plain: Reading) -> Iterator[Reading]:
    """Readings that go letter by letter, and so have places."""
    if "%" in text or "&" in text or "\\" in text:
        yield _replaced(plain, text, ESCAPES, _unescaped, "escapes")
    if SPACED.search(plain.text):
        yield _replaced(plain, plain.text, SPACED, lambda run: re.sub(r"[\W_]+", "", run), "spaced letters", joined=True)
    if len(ROTATED.findall(text[:100_000])) + len(ROTATED.findall(text[100_000:])) >= 1:
        yield Reading(codecs.encode(plain.text, "rot13"), plain.places, "ROT13", encoded=True)
    if REVERSED.search(plain.text):
        places = range(len(plain.text)) if plain.places is None else plain.places
        yield Reading(plain.text[::-1], places[::-1], "reversed letters", encoded=True)


def _replaced(
    plain: Reading, text: str, pattern: re.Pattern[str], change: Callable[[str], str], how: str, *, joined: bool = False
) -> Reading:
    """A reading in which what a pattern finds is changed. `text` is the original, or the plain reading's text."""
    own = plain.places if text is plain.text else None
    out: list[str] = []
    places: list[int] = []
    at = 0
    for found in pattern.finditer(text):
        out.append(text[at : found.start()])
        places.extend(range(at, found.start()))
        new = change(found.group())
        out.append(f" {new} " if joined else new)
        size = len(out[-1])
        places.extend(found.start() + (found.end() - 1 - found.start()) * step // max(1, size - 1) for step in range(size))
        at = found.end()
    out.append(text[at:])
    places.extend(range(at, len(text)))
    if own is not None:
        places = [own[place] for place in places]
        return Reading("".join(out), places, how, joined=joined)
    inner = normalised("".join(out))
    kept = places if inner.places is None else [places[place] for place in inner.places]
    return Reading(inner.text, kept, how, joined=joined)


def _unescaped(run: str) -> str:
    if run[0] == "%":
        return unquote(run, errors="ignore")
    return html.unescape(run) if run[0] == "&" else chr(int(run[2:], 16))


def _decoded(text: str) -> Iterator[tuple[int, int, str, str]]:
    """What runs of code say: start, end, text, how."""
    for pattern, decode, how in (
        (ENCODED, _from_base64, "base64"),
        (HEXADECIMAL, _from_hexadecimal, "hexadecimal"),
        (BINARY, lambda run: bytes(int(run[at : at + 8], 2) for at in range(0, len(run) - 7, 8)), "binary"),
    ):
        for found in pattern.finditer(text):
            try:
                said = decode(re.sub(r"[\s:,]|\\x|0x", "", found.group())).decode()
            except (ValueError, binascii.Error):
                continue
            if said and all(letter.isprintable() or letter in "\r\n\t" for letter in said):
                yield found.start(), found.end(), said, how


def _from_base64(run: str) -> bytes:
    run = run.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(run + "=" * (-len(run) % 4))


def _from_hexadecimal(run: str) -> bytes:
    return bytes.fromhex(run[: len(run) // 2 * 2])
