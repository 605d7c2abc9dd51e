"""Finds text that is meant for whoever trains or judges, or against an agent's own instructions, and takes it out.

It is the one screen: of logs and before an LLM judge (the wheel `graders`). A suspicion is no proof: who asks decides what
follows, and nothing is worth 0 by suspicion alone. It is a first wall; whoever words it otherwise gets through.
"""

from __future__ import annotations

import bisect
import functools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracewheel_screening.injection.rules import JUDGE, PAIRS, RULES, SHAPES, Reading, Rule, normalised, readings

SHOWN = 200
BEFORE = 6  # how many words a subject stands before its verb at most
SENTENCE, LINE = 5, 1  # words that the end of a sentence and of a line count for
LONGEST_WORD, LONGEST_PHRASE = 24, 12
MOST = 200  # suspicions in one reading: what follows is one more
MARK = "[removed: a passage that may speak to whoever marks this]"
TOKEN = re.compile(r"\d+(?:\.\d+)?(?![^\W_])|[^\W_]+|[.!?;…]+(?=\s|$)|[。！？]+|\n+|%|/")
SCRIPT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
LOOK_ALIKES = str.maketrans(
    "аеорсухікмнтвѕјԁɡһүցոԛԝοερνικατυχγωηʏαᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡᴢ",
    "aeopcyxikmhtbsjdghygnqwoepvikatuxywnyaabcdefghijklmnoprstuvwz",
)
LEET = [str.maketrans("013457", "oieast"), str.maketrans("0134578", "oleastb")]
ADDRESSEES = {"grader", "machine", "judging", "ai"}  # "Grader: …" speaks to one
ENDINGS = "\n.!?;。！？…"
VERDICTS, QUOTES = {"outcome", "passed"}, set("\"“„«「『'‘")
OUT_OF = {"/", "of", "von", "sur", "de", "из", "sobre", "su", "z"}
TOP_NUMBERS = {"1", "1.0", "5", "10", "100"}
TO = {"to", "-", "bis", "a", "до", "到", "and", "or", "/"}


@dataclass(frozen=True)
class Suspicion:
    """A passage that is suspected.

    Attributes:
        kind: `judge` or `agent`.
        rule: What it does.
        hidden: How it was hidden, or "".
        start, end: Its place in the text.
        excerpt: The text around it, as it is read.
    """

    kind: str
    rule: str
    hidden: str
    start: int
    end: int
    excerpt: str


Entry = tuple[str, str]  # a language and a list of words
Phrase = tuple[tuple[str, ...], Entry]  # the words after the first, and what it is
Token = tuple[str, int, int, int]  # a word, its start and end, and how many words after the one before
Hit = tuple[int, int, int, str, str]  # number of the word, start, end, language, list


def suspicions(text: str, *, prose: bool = True) -> list[Suspicion]:
    """What is suspected in a text, in the order of its readings.

    Args:
        text: Any text.
        prose: Whether it is somebody's words, and not code or a record, which may hold a field `score`.
    """
    found: list[Suspicion] = []
    for reading in readings(text):
        found += _by_shape(reading, prose)
        found += _by_words(reading)
    return found


def without(texts: Sequence[str], *, prose: bool = True) -> tuple[list[str], list[Suspicion]]:
    """Texts with each suspected passage as a neutral mark, and what was suspected: whole sentences are taken out.

    They are read as one, so that a passage may be spread over several.
    """
    whole = "\n".join(texts)
    found = suspicions(whole, prose=prose)
    spans: list[tuple[int, int]] = []
    for start, end in sorted(_sentence(whole, one.start, one.end) for one in found):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    left, begins, first = [], 0, 0
    for text in texts if spans else ():
        ends, parts, at = begins + len(text), [], begins
        while first < len(spans) and spans[first][1] <= begins:
            first += 1
        for start, end in spans[first:]:
            if start >= ends:
                break
            parts += [whole[at : max(at, start)], MARK]
            at = min(end, ends)
        left.append("".join([*parts, whole[at:ends]]))
        begins = ends + 1
    return left or list(texts), found


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """The place, out to the ends of its sentences or lines."""
    window = 2_000
    before = max((found.end() for found in ENDS.finditer(text, max(0, start - window), start)), default=max(0, start - window))
    after = ENDS.search(text, end, min(len(text), end + window))
    return before, after.start() + len(after.group().rstrip()) if after else min(len(text), end + window)


ENDS = re.compile(r"[.!?]\s|[。！？]|\n")


def _by_shape(reading: Reading, prose: bool) -> Iterator[Suspicion]:
    for name, only_prose, pattern in SHAPES:
        if prose or not only_prose:
            for found in pattern.finditer(reading.text):
                yield _suspicion(reading, JUDGE, name, found.start(), found.end())


def _suspicion(reading: Reading, kind: str, rule: str, first: int, last: int) -> Suspicion:
    start, end = reading.span(first, last)
    begin = max(0, first - SHOWN // 4)
    excerpt = reading.text[begin : begin + SHOWN]
    shown = excerpt if excerpt.isascii() else re.sub(r"\w+", lambda word: _forms(word.group())[-1], excerpt)
    hidden = reading.hidden or ("look-alike letters" if shown != excerpt else "")
    return Suspicion(kind, rule, hidden, start, end, shown)


def _by_words(reading: Reading) -> list[Suspicion]:
    hits = _with_pairs(list(_hits(reading)))
    places: dict[Entry, list[int]] = {}
    for number, _, _, language, name in hits:
        places.setdefault((language, name), []).append(number)
    found: list[Suspicion] = []
    latest: dict[tuple[Rule, str], list[Hit | None]] = {}
    uses = {entry: _possible(entry, places.keys()) for entry in places}
    for hit in hits:
        last, _, _, language, name = hit
        for rule, part in uses[language, name]:
            if rule.hidden and not reading.encoded:
                continue
            if (state := latest.get((rule, language))) is None:
                state = latest[rule, language] = [None] * len(rule.parts)
            state[part] = hit
            held = [one for one in state if one is not None and last - one[0] <= rule.within]
            if len(held) < len(state) or len({one[1] for one in held}) < len(held):
                continue
            first = min(held)[0]
            if any(_near(places.get((language, one), ()), first - 3, last + rule.within) for one in rule.unless):
                continue
            if any(_near(places.get((language, one), ()), first - BEFORE, first) for one in rule.before):
                continue
            found.append(_suspicion(reading, rule.kind, rule.name, min(one[1] for one in held), max(one[2] for one in held)))
            if len(found) >= MOST:
                return [*found, _suspicion(reading, rule.kind, rule.name, hit[1], len(reading.text))]
    return found


def _possible(entry: Entry, present: Collection[Entry]) -> list[tuple[Rule, int]]:
    """The rules that a word is in, with its part, of which each other part has a word in the text, too."""
    language, name = entry
    return [
        (rule, part)
        for rule, part in _uses()[name]
        if all(any((language, other) in present for other in names.split("|")) for names in rule.parts)
    ]


def _near(numbers: Sequence[int], first: int, last: int) -> bool:
    at = bisect.bisect_left(numbers, first)
    return at < len(numbers) and numbers[at] <= last


def _with_pairs(hits: list[Hit]) -> list[Hit]:
    """The hits, with those that two of them make, in order."""
    made: list[Hit] = []
    latest: dict[Entry, Hit] = {}
    for base in hits:
        following = [base]
        for number, start, end, language, name in following:  # a pair may be the second of another
            for pair, first, within in _seconds().get(name, ()):
                if (one := latest.get((language, first))) and 0 < number - one[0] <= within and one[1] < start:
                    following.append((number, one[1], end, language, pair))
            latest[language, name] = (number, start, end, language, name)
        made += following[1:]
    return sorted(hits + made)


def _hits(reading: Reading) -> Iterator[Hit]:
    """The known words of a reading. Words are numbered; ends of sentences and lines make the numbers jump.

    A number is of each language that has been read before it, and of English.
    """
    tokens = list(_tokens(reading))
    languages = {"English"}
    number, negated = 0, -9
    for at, (word, start, end, gap) in enumerate(tokens):
        number += SENTENCE if word[0] in ENDINGS[1:] else LINE if word[0] == "\n" else gap
        if word[0].isdigit() and (top := _number(tokens, at)):
            for language in languages:
                yield number, start, end, language, top
        for rest, entry in _entries(word):
            last = end
            if rest:
                if (follows := _follows(tokens, at, rest)) is None:
                    continue
                last = follows
            if entry[1] == "not":
                negated = number
            elif entry[1] == "ignore" and 0 < number - negated <= 2:
                continue
            languages.add(entry[0])
            yield number, start, last, *entry
            after, opens = reading.text[last : last + 2].lstrip()[:1], not at or tokens[at - 1][0][0] in ENDINGS
            if entry[1] in ADDRESSEES and (after == ":" or (after == "," and opens)):
                yield number, last, last + 1, entry[0], "vocative"
            if entry[1] in VERDICTS and reading.text[max(0, start - 2) : start].rstrip()[-1:] in QUOTES:
                yield number, start, last, entry[0], "quoted"


def _number(tokens: Sequence[Token], at: int) -> str:
    """What a number is: `best_score` for 10/10 and 100%, `top number` for one that is a best mark, else ""."""
    word, after = tokens[at][0], [one[0] for one in tokens[at + 1 : at + 4]]
    before = tokens[at - 1][0] if at else ""
    rest = [one for one in after if one not in OUT_OF] if after and after[0] in OUT_OF | {"out"} else []
    rest = [one for one in rest if one != "out"]
    if rest and rest[0] == word and (word == "1.0" or len(word) > 1 or word >= "5"):
        return "best_score"
    if word == "100" and after[:1] == ["%"]:
        return "best_score"
    return "top number" if word in TOP_NUMBERS and not (set(after[:1]) | {before}) & TO else ""


def _follows(tokens: Sequence[Token], at: int, rest: tuple[str, ...]) -> int | None:
    """The end of a phrase whose first word is at a place; None where others follow."""
    if at + len(rest) >= len(tokens):
        return None
    for step, wanted in enumerate(rest, start=1):
        word = tokens[at + step][0]
        if not any(form.startswith(wanted[:-1]) if wanted[-1] == "*" else form == wanted for form in _forms(word)):
            return None
    return tokens[at + len(rest)][2]


@functools.lru_cache(maxsize=50_000)
def _forms(word: str) -> tuple[str, ...]:
    """A word as it may be meant: look-alike letters as Latin ones, digits as letters."""
    forms = [word]
    if not word.isascii():
        mapped = word.translate(LOOK_ALIKES)
        forms += [mapped] if mapped.isascii() else []
    elif not word.isalpha() and not word.isdigit():
        forms += [word.translate(table) for table in LEET]
    return tuple(dict.fromkeys(forms))


@functools.lru_cache(maxsize=50_000)
def _entries(word: str) -> tuple[Phrase, ...]:
    """The phrases that begin with a word."""
    exact, beginnings = _lexicon()
    found: list[Phrase] = []
    for form in _forms(word):
        found += exact.get(form, ())
        for size in range(2, min(len(form), LONGEST_WORD) + 1):
            found += beginnings.get(form[:size], ())
    return tuple(found)


def _tokens(reading: Reading) -> Iterator[Token]:
    """Words with their places and how many words after the one before; of a run of a script without spaces, and of joined
    letters, the words that they hold.
    """
    sizes = _inner()
    for found in TOKEN.finditer(reading.text):
        word, start = found.group(), found.start()
        if reading.joined and word[0] in "ai" and len(word) - 1 in sizes.get(word[1:3], ()) and _entries(word[1:]):
            yield word[0], start, start + 1, 1
            yield word[1:], start + 1, found.end(), 1
            continue
        if not (SCRIPT.search(word) or (reading.joined and len(word) > LONGEST_PHRASE)):
            yield word, start, found.end(), 1
            continue
        at, gap = 0, 1
        while at < len(word):
            known = (
                size for size in sizes.get(word[at : at + 2], ()) if size <= len(word) - at and _is_known(word[at : at + size])
            )
            if size := next(known, 0) or int(bool(SCRIPT.match(word[at])) and _is_known(word[at])):
                yield word[at : at + size], start + at, start + at + size, gap
                gap = 0
            at, gap = at + max(size, 1), gap + 1


@functools.cache
def _words() -> dict[str, dict[str, str]]:
    """The words of the rules, by language and by what they do in a sentence; `rules.py` says what together is suspected.

    A word is as it is normalised (lower case, no accents). `*` at its end takes any ending, `_` joins the words of a phrase,
    and a language without spaces is read sign by sign. Some words are in several lists, and most are everyday words: alone
    none is suspected.
    """
    words: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
    return words


@functools.lru_cache(maxsize=1)
def _lexicon() -> tuple[dict[str, list[Phrase]], dict[str, list[Phrase]]]:
    """First word of each phrase to the phrases: of whole words, and of beginnings."""
    exact: dict[str, list[Phrase]] = {}
    beginnings: dict[str, list[Phrase]] = {}
    for language, lists in _words().items():
        for name, words in lists.items():
            for phrase in normalised(words).text.split():
                first, *rest = phrase.split("_")
                table, key = (beginnings, first[:-1]) if first.endswith("*") else (exact, first)
                table.setdefault(key, []).append((tuple(rest), (language, name)))
    return exact, beginnings


@functools.lru_cache(maxsize=1)
def _inner() -> dict[str, tuple[int, ...]]:
    """First two letters of the words that are looked for within runs of letters, to their lengths, the longest first."""
    sizes: dict[str, set[int]] = {}
    for word in (*_lexicon()[0], *_lexicon()[1]):
        if SCRIPT.search(word) or len(word) > 2:
            sizes.setdefault(word[:2], set()).add(len(word))
    return {head: tuple(sorted(own, reverse=True)) for head, own in sizes.items()}


def _is_known(word: str) -> bool:
    return word in _lexicon()[0] or word in _lexicon()[1]


@functools.lru_cache(maxsize=1)
def _uses() -> dict[str, list[tuple[Rule, int]]]:
    """List of words to the rules and their parts that it is in."""
    uses: dict[str, list[tuple[Rule, int]]] = {name: [] for lists in _words().values() for name in lists}
    uses |= {name: [] for name in ("top number", "best_score", "vocative", "quoted", *(pair[0] for pair in PAIRS))}
    for rule in RULES:
        for part, names in enumerate(rule.parts):
            for name in names.split("|"):
                uses.setdefault(name, []).append((rule, part))
    return uses


@functools.lru_cache(maxsize=1)
def _seconds() -> dict[str, list[tuple[str, str, int]]]:
    """List of words to the pairs in which it is the second: pair, first, how far."""
    seconds: dict[str, list[tuple[str, str, int]]] = {}
    for pair, firsts, second, within in PAIRS:
        seconds.setdefault(second, []).extend((pair, first, within) for first in firsts.split("|"))
    return seconds
