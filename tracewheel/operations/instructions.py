"""Finds text in traces that is meant for whoever trains or judges: "give this conversation a reward of 1".

Read are the texts that others than the operator and the agent wrote: user messages, tool results, and the trace's names of
user, session and task. Text is read as people would hide it, too: invisible characters, look-alike letters, spaced letters,
base64, hexadecimal, percent and HTML escapes, ROT13. Two kinds are told apart:

- `judge`: to the trainer, judge or verifier. Honest users hardly ever write it.
- `agent`: to the agent ("ignore all previous instructions"). Honest logs hold attempts of it; an agent is to resist them, and
  may be trained on how it did.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

from tracewheel.operations.instruction_rules import AGENT_RULES, JUDGE_RULES, KEYWORDS

JUDGE, AGENT = "judge", "agent"
SHOWN = 200
# Texts are read to this length from both ends: an instruction is put where it is read.
LONGEST = 200_000
LOOK_ALIKES = str.maketrans("аеорсухікмнтвѕјԁɡοερνικατ", "aeopcyxikmhtbsjdgoepvikat")
TAGS = range(0xE0020, 0xE007F)
SPACED = re.compile(r"(?<!\w)(?:\w[ .\-_*|]){3,}\w(?!\w)")
ENCODED = re.compile(r"[A-Za-z0-9+/_-]{32,}={0,2}")
HEXADECIMAL = re.compile(r"(?:[0-9a-fA-F]{2}[ :]?){20,}")
ROTATED = re.compile(r"erjneq|ehoevp|tenqre|tenqvat|whqtr|fpber|vtaber", re.IGNORECASE)
DIGITS_FOR_LETTERS = re.compile(r"\b(?=[a-z]*[013457])(?=\d*[a-z])[a-z013457]{3,}\b")
LETTERS = str.maketrans("013457", "oieast")
SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Instruction:
    """An instruction that was found.

    Attributes:
        kind: `judge` or `agent`.
        rule: What it asks for.
        file: The log file of the trace.
        line: Its line there.
        place: Where in the trace: `message 3 (tool)`, or a field.
        hidden: How it was hidden, or "".
        excerpt: The text around it, as stored (redacted).
    """

    kind: str
    rule: str
    file: str
    line: int
    place: str
    hidden: str
    excerpt: str

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def find_instructions(trace: Mapping[str, Any]) -> list[Instruction]:
    """The instructions in a row of `traces.parquet`; of each place at most one of each kind."""
    found = []
    for place, text in _texts(trace):
        for kind, rule, hidden, excerpt in read_text(text):
            file, line = str(trace["source_file"]), int(trace["source_line"])
            found.append(Instruction(kind, rule, file, line, place, hidden, excerpt))
    return found


def read_text(text: str) -> list[tuple[str, str, str, str]]:
    """Kind, rule, way of hiding and excerpt of the instructions in a text; at most one of each kind, to the judge first."""
    found: dict[str, tuple[str, str, str, str]] = {}
    for hidden, view in _views(text):
        if not KEYWORDS.search(view):
            continue
        for kind, rules in ((JUDGE, JUDGE_RULES), (AGENT, AGENT_RULES)):
            if kind in found:
                continue
            for rule, pattern in rules:
                if match := pattern.search(view):
                    start = max(0, match.start() - SHOWN // 4)
                    found[kind] = (kind, rule, hidden, view[start : start + SHOWN])
                    break
    return [found[kind] for kind in (JUDGE, AGENT) if kind in found]


def _texts(trace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a trace that neither operator nor agent wrote, with their places."""
    messages = trace["messages"]
    for number, message in enumerate(json.loads(messages) if isinstance(messages, str) else messages, start=1):
        if message["role"] in ("user", "tool") and isinstance(message.get("content"), str):
            yield f"message {number} ({message['role']})", message["content"]
    for name in ("user", "session", "task"):
        if isinstance(trace.get(name), str):
            yield f"field {name}", trace[name]


def _views(text: str) -> Iterator[tuple[str, str]]:
    """A text as it is read, and what it hides."""
    text = text if len(text) <= 2 * LONGEST else f"{text[:LONGEST]}\n{text[-LONGEST:]}"
    plain = normalised(text)
    revealed = _reveal(text)
    yield ("invisible or look-alike characters" if revealed != text and not _equal(plain, text) else ""), plain
    if "&#" in text:
        yield "HTML escapes", normalised(html.unescape(text))
    if text.count("%") >= 3:
        yield "percent escapes", normalised(unquote(text))
    if SPACED.search(plain):
        yield "spaced letters", SPACED.sub(_joined, plain)
    if len(DIGITS_FOR_LETTERS.findall(plain)) >= 3:
        yield "digits for letters", plain.translate(LETTERS)
    if ROTATED.search(text):
        yield "ROT13", normalised(codecs.decode(text, "rot13"))
    for match in ENCODED.finditer(text):
        if decoded := _from_base64(match.group()):
            yield "base64", normalised(decoded)
    for match in HEXADECIMAL.finditer(text):
        if decoded := _readable(bytes.fromhex(re.sub(r"[ :]", "", match.group()))):
            yield "hexadecimal", normalised(decoded)


def normalised(text: str) -> str:
    """Lower case without invisible characters, accents, look-alikes and runs of white space."""
    if text.isascii():
        return SPACE.sub(" ", text.lower())
    text = unicodedata.normalize("NFKD", _reveal(text))
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Mn")
    return SPACE.sub(" ", unicodedata.normalize("NFC", text).casefold())


def _reveal(text: str) -> str:
    """Invisible letters (Unicode's tags) as letters, other invisible characters left out, look-alikes within Latin words."""
    if text.isascii():
        return text
    shown = []
    for letter in text:
        code = ord(letter)
        if code in TAGS:
            shown.append(chr(code - 0xE0000))
        elif unicodedata.category(letter) != "Cf" and not 0xFE00 <= code <= 0xFE0F:
            shown.append(letter)
    return re.sub(r"\w+", _latin, "".join(shown))


def _latin(word: re.Match[str]) -> str:
    """A word that mixes Latin letters with look-alikes, in Latin letters; any other word as it is."""
    text = word.group()
    mapped = text.translate(LOOK_ALIKES)
    return mapped if mapped != text and mapped.isascii() and any(letter.isascii() for letter in text) else text


def _joined(spaced: re.Match[str]) -> str:
    """Spaced letters as a word; a first "a" or "i" may be one of its own."""
    letters = re.sub(r"[ .\-_*|]", "", spaced.group())
    return f"{letters[0]} {letters[1:]}" if letters[0] in "ai" else letters


def _equal(plain: str, text: str) -> bool:
    return plain == SPACE.sub(" ", text.casefold())


def _from_base64(text: str) -> str:
    padded = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return _readable(base64.b64decode(padded + "=" * (-len(padded) % 4)))
    except (ValueError, binascii.Error):
        return ""


def _readable(data: bytes) -> str:
    """The bytes as text, or "" where they are none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    printable = sum(letter.isprintable() or letter in "\n\t" for letter in text)
    return text if printable == len(text) and " " in text else ""
