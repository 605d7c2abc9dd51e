"""A mathematical answer, compared by math-verify."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from tracewheel.config.base import Strict
from tracewheel.core.types import Task
from tracewheel.scoring.math_pool import math_pool
from tracewheel.scoring.verifiers.answers import spoken
from tracewheel.scoring.verifiers.episode import Episode, Verdict

MARK = re.compile(r"^[ \t*_#>]*(?:final )?answer(?: is)?[ \t*_]*[:=][ \t*_]*(.+?)[ \t*_]*$", re.IGNORECASE | re.MULTILINE)
BOXED = ("\\boxed{", "\\fbox{")
SEVERAL = re.compile(
    r"\b(?:or|and|either|maybe|versus)\b|\\(?:text|mathrm)\{\s*(?:or|and)\s*\}|\\lor|\\pm|±|;|\|\||,(?!\d{3}(?!\d))"
)
UNIT = re.compile(r"^(.*?[\d.)}])\s*([%°a-zA-Zµ²³][\w%°²³/^. ]*)$", re.DOTALL)
TEXT_UNIT = re.compile(r"\\(?:text|mathrm|mbox)\{\s*([^{}]*?)\s*\}\s*$")
MIXED = re.compile(r"^(-?)(\d+)\s+(\d+)/(\d+)$")
MONEY = "$€£"
VARIABLE = re.compile(r"^[a-zA-Z]\s*=\s*")


class MathArgs(Strict):
    """Numbers are rounded to `digits` decimals. `strict`: names of variables count, and a set is no tuple.

    `read`: `marked` takes what the agent marked as its answer, `anywhere` what math-verify finds in the last turn's text.
    """

    digits: int = Field(default=6, ge=1, le=15)
    strict: bool = True
    read: Literal["marked", "anywhere"] = "marked"


class MathVerifier:
    r"""1 where the agent's answer is mathematically equal to the goal's.

    >>> from tracewheel.scoring.verifiers.episode import episode_from
    >>> goal = {"answer": "3/4", "unit": ["m", "metres"]}
    >>> task = Task("t1", "math", "fractions", 1, "What is 1/2 + 1/4?", {}, goal, "math", "t1")
    >>> said = ("So it is \\boxed{\\frac{6}{8}}.", "Answer: 0.75 m", "Answer: 0.75 km", "Answer: 3/4 or 4/3")
    >>> episodes = [episode_from([{"role": "assistant", "content": text}], 0, {}) for text in said]
    >>> [MathVerifier().verify_episode(task, episode).total for episode in episodes]
    [1.0, 1.0, 0.0, 0.0]

    The answer is `answer` of the final state where the environment kept one, else what the last turn marks:
    `\boxed{...}`, or a line `Answer: ...`. What stands in its thinking is none. Several answers are wrong, marked or
    in one mark ("3 or 4"), unless the goal's has as many.

    With `unit` in the goal, a list of spellings, an answer may have one of these or none; without it any unit is let through.
    Answers longer than 4,000 characters are wrong, as is one on which the comparison hangs for 10 seconds.

    Raises:
        KeyError: the goal has no `answer`.
        ValueError: the goal's is not read as mathematics.
        ChildProcessError: math-verify is not installed (`pip install tracewheel[math]`).
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
        parts = {"answered": float(len(answers) > 0)}
        if len(answers) != 1:
            return Verdict(0.0, parts, " | ".join(answers), "several different answers" if answers else "no answer is marked")
        answer = str(answers[0])
        if len(SEVERAL.findall(_bare(answer))) > len(SEVERAL.findall(_bare(gold))):
            return Verdict(0.0, parts, answer, "several answers in one")
        number, unit = without_unit(answer)
        accepted = task.goal.get("unit")
        if unit and accepted and unit.rstrip(".").lower() not in [str(one).lower() for one in _listed(accepted)]:
            return Verdict(0.0, parts, answer, f"the unit is '{unit}'")
        return self._compared(f"\\boxed{{{without_unit(gold)[0]}}}", f"\\boxed{{{number}}}", parts, answer)

    def _compared(self, gold: str, answer: str, parts: dict[str, float], shown: str = "") -> Verdict:
        found = math_pool().compare(gold, answer, digits=self._args.digits, strict=self._args.strict)
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
    return found or [match.group(1).strip() for match in MARK.finditer(text)]


def without_unit(answer: str) -> tuple[str, str]:
    """The number of an answer and its unit, "" where it has none or is more than a number with a unit.

    A dollar sign, thousands separators, and `x =` before a number are taken off, a mixed number becomes a fraction.
    """
    text = _bare(answer)
    unit = ""
    if match := TEXT_UNIT.search(text):
        text, unit = text[: match.start()].strip(), match.group(1)
    elif (match := UNIT.match(text)) and "\\" not in match.group(2) and not re.fullmatch(r"[a-z](\^.*)?", match.group(2)):
        text, unit = match.group(1), match.group(2).strip()
    elif match and len(match.group(2)) == 1 and match.group(2) in "mgslhkLKVWJNA":
        text, unit = match.group(1), match.group(2)
    text = text.replace("\\%", "%").rstrip("% ")
    if match := MIXED.match(text):
        sign, whole, above, below = match.groups()
        text = f"{sign}{int(whole) * int(below) + int(above)}/{below}"
    return text, unit


def _bare(answer: str) -> str:
    text = answer.strip().strip(".").strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            text = text[len(opening) : len(text) - len(closing)].strip()
    text = VARIABLE.sub("", text.replace("\\$", "$").strip(MONEY + " ")).replace("\\,", "").replace("{,}", ",")
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.replace("−", "-")).strip(MONEY + " ")


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
