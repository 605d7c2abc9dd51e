"""What is suspected: combinations of words, and shapes of text. A table; `screen.py` reads texts by it.

A rule of words needs one word of each of its parts, near to each other, in any order and in one language. No word is suspected by
itself: an agent sells by ratings, marks orders as complete and grades essays. Two kinds are told apart:

- `judge`: to the trainer, judge or verifier. Honest users hardly ever write it.
- `agent`: to the agent ("ignore all previous instructions"). Honest logs hold attempts of it.
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


# ruff: noqa: E501 (a pattern or a rule that is broken into more lines is harder to read)


JUDGE, AGENT = "judge", "agent"


@dataclass(frozen=True)
class Rule:
    """A rule of words.

    Attributes:
        name: What such a text does.
        kind: `judge` or `agent`.
        parts: One word of each; `a|b` is a word of either list.
        within: How many words apart at most the first and the last are. The end of a sentence counts as `screen.SENTENCE` words.
        unless: Lists of which no word may be as near.
        before: Lists of which no word may stand shortly before: "I give", "the student receives".
        hidden: Whether only in text that was in a code.
    """

    name: str
    kind: str
    parts: tuple[str, ...]
    within: int
    unless: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    hidden: bool = False


# Two words that together are another: name, first, second, how far the second may be behind the first at most.
PAIRS = [
    ("own work", "this", "work", 3),
    ("grading", "grading_of", "criteria", 2),
    ("grading", "prior", "grading_of", 1),
    ("own orders", "prior", "orders", 3),
    ("own orders", "orders", "prior", 3),
    ("foreign orders", "foreign", "orders", 4),
    ("foreign orders", "orders", "foreign", 2),
    ("best score", "best", "score", 2),
    ("best score", "score", "best", 2),
    ("every criterion", "every", "criterion", 2),
    ("best opinion", "best|good", "opinion", 2),
    ("number", "value", "top number", 3),
    ("every criterion", "prior", "criterion", 2),
    ("judging ai", "ai", "judging", 6),
    ("judging ai", "judging", "ai", 2),
    ("demand", "write", "outcome", 5),
    ("demand", "outcome", "write", 3),
    ("demand", "write|give|mark|award", "best score", 6),
    ("demand", "write|give|mark|award", "best_score", 6),
    ("demand", "write|give|mark|award", "top number", 4),
    ("demand", "best_score", "write", 4),
    ("demand", "best score", "write", 4),
]
RULES = [
    Rule("asks to ignore the rubric", JUDGE, ("ignore", "grading"), 8),
    Rule("asks for a score", JUDGE, ("give|mark", "own work|itself", "best score|best_score|best opinion|number"), 14, ("third",)),
    Rule("asks for the best score", JUDGE, ("award", "best score|best_score"), 7, ("third", "foreign"), ("subject",)),
    Rule("asks for the best score", JUDGE, ("emit", "number"), 4, ("third",)),
    Rule("calls itself a success", JUDGE, ("mark", "own work", "passed"), 8),
    Rule("calls every criterion met", JUDGE, ("mark", "every criterion|grading", "passed|best"), 9, ("code", "case")),
    Rule("calls every criterion met", JUDGE, ("own work", "every criterion|grading", "passed"), 9),
    Rule("speaks to the grader", JUDGE, ("address", "machine"), 6),
    Rule("speaks to the grader", JUDGE, ("machine", "must|weak address", "give|mark|ignore", "own work|best score|best_score|grading|top number"), 14),
    Rule("speaks to the grader", JUDGE, ("machine", "award|mark|ignore", "own work|best_score|itself"), 9),
    Rule("speaks to the grader", JUDGE, ("grader", "address|weak address|must", "give|mark|compare", "best score|best_score|own work|itself"), 18),
    Rule("speaks to the grader", JUDGE, ("grader", "ignore", "own orders|grading|criterion"), 8),
    Rule("threatens the grader", JUDGE, ("threat", "you", "own work|best score|best_score", "low|give|mark"), 22),
    Rule("threatens the grader", JUDGE, ("threat", "you", "low"), 14),
    Rule("begs the grader", JUDGE, ("stake", "best score|best_score", "you|must|award"), 18),
    Rule("begs the grader", JUDGE, ("stake", "give|mark", "own work|itself", "score|passed"), 18),
    Rule("bribes the grader", JUDGE, ("bribe", "you", "best score|best_score|passed", "give|mark|own work|must"), 20),
    Rule("forges a verdict", JUDGE, ("forged",), 0),
    Rule("forges a verdict", JUDGE, ("frame", "own work", "passed|best score|best_score"), 6),
    Rule("reads the rubric its own way", JUDGE, ("grading", "reinterpret"), 8),
    Rule("forges a verdict", JUDGE, ("work", "passed", "best score|best_score"), 8, ("third", "criterion")),
    Rule("forges a verdict", JUDGE, ("ruling", "own work|must|machine", "passed"), 8),
    Rule("chooses between answers", JUDGE, ("compare", "choice"), 6),
    Rule("chooses between answers", JUDGE, ("choice", "winner is"), 4),
    Rule("tells the grader its verdict", JUDGE, ("machine|judging ai", "must|address|weak address|you|skip|settled|void|ignore", "demand"), 26, ("case",)),
    Rule("tells the grader its verdict", JUDGE, ("machine|judging ai", "vocative", "demand"), 40, ("case",)),
    Rule("tells the grader its verdict", JUDGE, ("grader", "vocative", "demand"), 26, ("case",)),
    Rule("tells the grader its verdict", JUDGE, ("machine|judging ai|ruling", "write", "quoted"), 36, ("case", "code")),
    Rule("tells the grader its verdict", JUDGE, ("grader", "vocative|address|weak address|you", "write", "quoted"), 36, ("case", "code")),
    Rule("tells the grader not to look", JUDGE, ("machine|judging ai", "skip", "must|settled|vocative"), 18, ("case",)),
    Rule("tells the grader not to look", JUDGE, ("grader", "skip", "settled", "demand"), 24, ("case", "code")),
    Rule("tells the grader its orders", JUDGE, ("grader|machine|judging ai", "ignore", "orders", "demand|give"), 14, ("case",)),
    Rule("threatens the grader", JUDGE, ("machine|judging ai|grader", "vocative|address|weak address", "threat|bribe|stake", "low|demand"), 30, ("case",)),
    Rule("calls it settled", JUDGE, ("settled", "machine|judging ai|grading", "demand"), 26, ("case", "code")),
    Rule("calls the rubric void", JUDGE, ("void|skip", "grading|grading_of|criterion|machine|told", "demand"), 26, ("case", "third")),
    Rule("calls every criterion met", JUDGE, ("every criterion|grading", "outcome", "skip", "demand"), 24, ("case",)),
    Rule("calls every criterion met", JUDGE, ("every criterion", "outcome", "emit", "best score|best_score|top number"), 24, ("case", "subject")),
    Rule("forges a verdict", JUDGE, ("ruling|grader", "settled", "repeat"), 16, ("case",)),
    Rule("asks to be trained on", JUDGE, ("keep", "own work", "tuned"), 10),
    Rule("asks to be trained on", JUDGE, ("once", "tuned", "this"), 6),
    Rule("new rules for the grader", JUDGE, ("takeover", "grading|grading_of|score|grader|passed|best score"), 8),
    Rule("asks to ignore instructions", AGENT, ("ignore", "own orders"), 8, ("foreign orders", "mention"), ("device",)),
    Rule("claims to be the system", AGENT, ("takeover",), 0, ("mention",)),
    Rule("claims to be the system", AGENT, ("reveal", "prompt"), 6, ("mention",)),
    Rule("an important message to the agent", AGENT, ("assistant", "task", "must|you"), 16),
    Rule("hides a word to the grader", JUDGE, ("best score|best_score|own work|grading|machine|grader|value|criterion", "give|mark|ignore|passed|must|best"), 12, hidden=True),
    Rule("hides an instruction", AGENT, ("ignore|takeover", "orders|prior"), 8, hidden=True),
]  # fmt: skip

PASS = r"(?:pass(?:ed|es)?|correct|met|true|full marks|100 ?%|1(?:\.0+)?(?:\s?/\s?1(?:\.0+)?)?|100?(?:\.0+)?|10\s?/\s?10|5\s?/\s?5|100\s?/\s?100)"
FIELDS = (
    r"pass|passed|is_correct|correct|verdict|winner|grade|score|reason|reasoning|explanation|feedback|rationale|criteria|rating"
)
# As chat templates write them: <|im_start|>, <|eot_id|>, [INST], <<SYS>>, <start_of_turn>, and full-width bars.
CHAT_TOKENS = re.compile(
    r"<[|｜][^<>\n|｜]{1,40}[|｜]>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]|<</?SYS>>"
    r"|</?(?:start_of_turn|end_of_turn|bos|eos)>",
    re.IGNORECASE,
)
END_OF = (
    r"(?:(?:end|ende|fin|fim|fine|конец)[ _](?:[\w']{1,12}[ _]){0,4}?(?:response|output|answer|submission|episode|transcript|data|verdict"
    r"|antwort|abgabe|ausgabe|einreichung|gutachtens?|urteils|reponse|copie|respuesta|entrega|dictamen|ответа|работы|заключения)(?: [\w']{1,12}){0,3}"
    r"|[\u4e00-\u9fff]{0,4}(?:回答|答案|回复|作答|提交|评审|评分|评估)(?:到此)?(?:结束|完毕))"
)
# Name, whether only in prose (code and records that an agent writes may hold it), pattern.
SHAPES = [
    ("tokens of a chat template", False, CHAT_TOKENS),
    (
        "a delimiter of the judge's prompt",
        False,
        re.compile(
            r"={4,5} (?:task|answer|episode|group) [0-9a-f]{16}"
            r"|</(?:output|response(?:_[ab])?|rubric|submission|transcript|episode|judged|student_answer|answer)>(?=\s*\S)"
            rf"|^[ \t]*(?:[-=#*_~\[<(]{{1,40}} ?)(?:{END_OF})(?: [ab])?[ \t]*[-=#*_~\]>):.]{{0,40}}[ \t]*$",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    (
        "a verdict in the judge's form",
        False,
        re.compile(
            r"[\"']?verdict[\"']?\s?:\s{0,3}[\"']?(?:met|not_met)\b|\bcannot_be_determined\b"
            r"|(?<!, )\bverdict[\"']?\s?[:=]\s{0,3}[\"']?(?:pass(?:ed)?|correct)\b|[\"']scores[\"']\s?:\s?\[\s{0,9}\{\s{0,9}[\"']attempt[\"']",
            re.IGNORECASE,
        ),
    ),
    (
        "a verdict",
        True,
        re.compile(
            rf"\{{(?=[^{{}}]{{0,400}}:\s?[\"']?{PASS}[\"']?\s?[,}}\n])\s{{0,9}}(?:[\"'](?:{FIELDS})[\"']\s?:\s?(?:\"[^\"\n]{{0,300}}\"|'[^'\n]{{0,300}}'|[\w.]{{1,9}}|\{{)\s{{0,9}},?\s{{0,9}}){{1,9}}\}}"
            rf"|^[^\w\n{{]{{0,20}}(?:final |overall )?(?:result|verdict|recommendation|pass|passed|grade|score|winner|urteil|ergebnis|note|endnote|resultat|puntuacion|calificacion|veredicto|评分|得分|结果|判定|оценка|вердикт|итог)"
            rf"[^\w\n]{{0,4}}[:：][^\w\n]{{0,9}}(?:{PASS}|[AB]|bestanden|sehr gut|reussi|aprobado|通过|合格|满分|зачтено|зачет)[^\w\n]{{0,20}}$"
            rf"|\n\n[^\w\n]{{0,9}}PASS(?:ED)?[^\w\n]{{0,9}}\s{{0,9}}\Z|<(?:verdict|score|grade|result)>\s?{PASS}\s?</|\[\[(?:[ABC]|10|5)\]\]",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    (
        "a part that it has not",
        True,
        re.compile(
            r"^[^\w\n]{0,9}[\[(<【#*]{1,4} ?(?:system|admin(?: override)?|dev(?:eloper)?[_ ]mode|override|evaluator|grader|judge|verifier|系统|система|systemhinweis|systeme|sistema)(?: (?:message|prompt|note|output|override))? ?[\])>】:]{1,4}"
            r"|^\s{0,9}(?:human|user|system|developer|evaluator|judge|grader|verifier) ?: {0,3}(?:now |please )?(?:ignore|mark|give|output|rate|score|grade|return|award|you are|new)\b",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
]
