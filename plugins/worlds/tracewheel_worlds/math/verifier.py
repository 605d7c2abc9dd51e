"""A mathematical answer, compared by math-verify."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from tracewheel import Episode, Strict, Task, Verdict, spoken
from tracewheel_worlds.math.forms import other_form
from tracewheel_worlds.math.pool import LONGEST, math_pool
from tracewheel_worlds.math.units import MONEY, NO_UNIT, changes_number, without_unit, words_beside

MARK = re.compile(r"^[ \t*_#>]*(?:final )?answer(?: is)?[ \t*_]*[:=](.+)$", re.IGNORECASE | re.MULTILINE)
BOXED = ("\\boxed{", "\\fbox{")
COMMANDS = (
    "lor|vee|land|wedge|pm|mp|q?quad|to|[rR]ightarrow|implies|iff|cup|cap|parallel|oplus|sim|simeq|equiv|[lc]?dots|bmod|mid"
    "|[lr]?vert"
)
SEVERAL = re.compile(
    rf"\b(?:or|and|either|maybe|versus)\b|\\(?:{COMMANDS})(?![a-zA-Z])|[±∓;&∨∧→⇒≡∪∩⊕…@#|\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|\\\\"
    r"|->|=>|\.\.|\d\s*\\?_|%(?=.)|(?<!\^)\\circ(?=\s*[\d(])|^\s*[!¬~]|,(?!\d{3}(?!\d))"
)
BESIDE_ANOTHER = re.compile(r"(?<=[,;}])\s*\\q?quad(?![a-zA-Z])|\\q?quad\s*(?=\\text|[,;])")
EQUALS = re.compile(r"(?<![<>!:=])=(?![=>])|(?=≈|\\approx(?![a-zA-Z]))")
ROUNDED = re.compile(r"(?:≈|\\approx)\s*([-+]?\d*\.(\d+))$")
NAME = re.compile(
    r"\\?[a-zA-Z]+(?:_(?:\w|\{\w+\}))?'?(?:\([\w, ]*\))?|\([a-zA-Z](?:, ?[a-zA-Z])*\)|\\text\{[a-zA-Z ]+\}|\\angle ?[A-Z]+"
)
# Space between digits that does not part thousands: `4\\,2` is not 42.
PARTED = re.compile(r"(?<=\d)\s*(?:\\[,!: ]|\\(?:text|mbox)\s*\{\s*\})\s*(?=\d)")
THOUSANDS = re.compile(r"(?<=\d)(?:\\,|,\\! ?)(?=\d{3}(?!\d))")
SPACES_AROUND = re.compile(r"^(?:\\[,;:! ]\s*)+|(?:\s*\\[,;:! ])+$")
VARIABLE = re.compile(r"^[a-zA-Z]\s*=\s*")
WRAPPED = re.compile(r"\\(?:text\w*|mathbf|mathrm|mbox)\s*\{\s*([-+$€£\\]*\.?\d[^{}]*)\}")
MOST_SIDES = 4


class MathArgs(Strict):
    """Numbers are rounded to `digits` decimals. `strict`: names of variables count, and a set is no tuple.

    `read`: `marked` takes what the agent marked as its answer, `anywhere` what math-verify finds in the last turn's text.
    """

    digits: int = Field(default=6, ge=1, le=15)
    strict: bool = True
    read: Literal["marked", "anywhere"] = "marked"


class MathVerifier:
    r"""1 where the agent's answer is mathematically equal to the goal's.

    >>> from tracewheel import episode_from
    >>> goal = {"answer": "3/4", "unit": ["m", "metres"]}
    >>> task = Task("t1", "math", "fractions", 1, "What is 1/2 + 1/4?", {}, goal, "math", "t1")
    >>> said = ("So it is \\boxed{\\frac{6}{8}}.", "Answer: 0.75 m", "Answer: 0.75 km", "Answer: 3/4 or 4/3")
    >>> episodes = [episode_from([{"role": "assistant", "content": text}], 0, {}) for text in said]
    >>> [MathVerifier().verify_episode(task, episode).total for episode in episodes]
    [1.0, 1.0, 0.0, 0.0]

    The answer is `answer` of the final state where the environment kept one, else what the last turn marks:
    `\boxed{...}`, or a line `Answer: ...`. What stands in its thinking is none. Several answers are wrong, marked or
    in one mark ("3 or 4"), unless the goal's has as many.

    With `unit` in the goal, a list of spellings, an answer may have one of these or none. Without it a unit may be any few
    words none of which changes the number (`verifiers.units`): "18 eggs per day" is 18; "18 dozen" and "18 is wrong" are not.
    Of an equation, each side that is no name must be right: "5 = 4" is wrong. A set is no tuple, and a relation, a number of
    another base or another operation no value (`verifiers.math_forms`).
    Answers longer than 4,000 characters are wrong, as is one on which the comparison hangs for 10 seconds.

    Raises:
        KeyError: the goal has no `answer`.
        ValueError: the goal's is not read as mathematics.
        ChildProcessError: math-verify is not installed (`pip install tracewheel-worlds[math]`).
    """

    kind = "math"
    Args = MathArgs

    def __init__(self, args: MathArgs | None = None) -> None:
        self._args = args or MathArgs()

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        gold = str(task.goal["answer"])
        stated = episode.final_state.get("answer")
        if self._args.read == "anywhere" and stated is None:
            return self._compared(gold, spoken(episode), {})
        answers = [stated] if stated is not None else list(dict.fromkeys(marked(spoken(episode))))
        parts = {"answered": float(len(answers) > 0), "read": 0.0}
        if len(answers) != 1:
            return Verdict(0.0, parts, " | ".join(answers), "several different answers" if answers else "no answer is marked")
        answer = str(answers[0])
        if len(answer) > LONGEST:
            return Verdict(0.0, parts, answer[:200], f"longer than {LONGEST} characters")
        known = [str(one) for one in _listed(task.goal.get("unit") or [])]
        equation = len(_sides(gold)) > 1
        right, own_unit = without_unit(_named(gold) if equation else _sides(gold)[0], known)
        sides = [_named(answer)] if equation else _sides(answer)
        if len(sides) > MOST_SIDES or max(map(_several, sides)) > _several(right):
            return Verdict(0.0, parts, answer, "several answers in one")
        if not _balanced(answer):
            return Verdict(0.0, parts, answer, "its braces do not match")
        if self._args.strict and (other := other_form(" ".join(sides), gold)):
            return Verdict(0.0, parts, answer, f"another form than the right answer: {other}")
        verdicts = [self._side(right, [*known, *filter(None, [own_unit])], known, sides[0], parts)]
        for side in sides[1:]:
            if verdicts[-1].total:
                verdicts.append(self._side(right, known, known, side, parts, ROUNDED.match(side)))
        return replace(verdicts[-1], answer=answer)

    def _side(
        self,
        right: str,
        units: list[str],
        accepted: list[str],
        side: str,
        parts: dict[str, float],
        rounded: re.Match[str] | None = None,
    ) -> Verdict:
        """The verdict on an answer, or on one side of it: `rounded` is one that is only near the answer."""
        if rounded:
            return self._compared(f"\\boxed{{{right}}}", f"\\boxed{{{rounded.group(1)}}}", parts, side, len(rounded.group(2)))
        number, unit = without_unit(side, units)
        if unit and accepted and unit.rstrip(".").lower() not in [one.lower() for one in accepted]:
            return Verdict(0.0, parts, side, f"the unit is '{unit}'")
        if beside := changes_number(words_beside(number), words_beside(right)):
            return Verdict(0.0, parts, side, f"beside the number: {' '.join(sorted(beside))[:80]}")
        return self._compared(f"\\boxed{{{right}}}", f"\\boxed{{{number}}}", parts, side)

    def _compared(self, gold: str, answer: str, parts: dict[str, float], shown: str = "", digits: int | None = None) -> Verdict:
        found = math_pool().compare(gold, answer, digits=digits or self._args.digits, strict=self._args.strict)
        return Verdict(float(found.equal), {**parts, "read": float(found.read)}, shown or answer[-200:], found.why)


def marked(text: str) -> list[str]:
    r"""The answers that a text marks, in order: what is in `\boxed{}`; only without any, lines `Answer: ...`."""
    found = []
    for opening in BOXED:
        start = text.find(opening)
        while start >= 0:
            inner = _braced(text, start + len(opening))
            if inner is None:
                break
            found.append(inner.strip())
            start = text.find(opening, start + len(opening) + len(inner))
    return found or [match.group(1).strip().strip("*_ \t").strip() for match in MARK.finditer(text)]


def _named(answer: str) -> str:
    """An answer without the `x =` before it."""
    return _bare(VARIABLE.sub("", _bare(answer)))


def _sides(answer: str) -> list[str]:
    """An answer, or the sides of an equation that may each be one: `x = 6/8 = 3/4` has two, for x is a name."""
    sides = [_bare(side) for side in EQUALS.split(_bare(answer))]
    named = [side for side in sides[:-1] if not (NAME.fullmatch(side) and not words_beside(side) & NO_UNIT)]
    return [*named, sides[-1]] if named or len(sides) == 1 else [re.sub(r"^(?:≈|\\approx)", "", sides[-1]).strip()]


def _several(answer: str) -> int:
    """How many marks of several answers there are."""
    if "\\begin" in answer:
        answer = answer.replace("\n", " ")
    return len(SEVERAL.findall(BESIDE_ANOTHER.sub("", answer)))


def _bare(answer: str) -> str:
    text = re.sub(r"[\xa0\u2000-\u200a\u202f]", " ", answer).strip().rstrip(".").strip()
    text = SPACES_AROUND.sub("", text).strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            text = text[len(opening) : len(text) - len(closing)].strip()
    for opening in BOXED:
        if text.startswith(opening) and _braced(text, len(opening)) == text[len(opening) : -1]:
            text = text[len(opening) : -1].strip()
    if match := WRAPPED.fullmatch(text):
        text = match.group(1)
    text = text.replace("\\$", "$").strip(MONEY + " ").replace("{,}", ",")
    text = PARTED.sub(" ; ", THOUSANDS.sub(",", text)).replace("\\,", "")
    text = re.sub(r"(?<![\\a-zA-Z])pi(?![a-zA-Z])|π", r"\\pi ", text)
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.replace("−", "-")).strip(MONEY + " ")


def _balanced(text: str) -> bool:
    """Whether each brace that is no escaped one has its other: a mark of ours around the text cannot be closed within it."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0


def _braced(text: str, start: int) -> str | None:
    """What stands before the brace that closes the one before `start`; None where none does."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return None


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
