"""Generated problems: four families, tiers by the number of steps and the size of the numbers.

| family | the problem |
|---|---|
| `arithmetic` | a term of whole numbers with brackets |
| `fractions` | a sum or product of fractions |
| `equations` | a linear equation in x |
| `word_problems` | a short story with amounts, in the manner of GSM8K |
"""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from tracewheel import Task, content_hash

FAMILIES = ("arithmetic", "fractions", "equations", "word_problems")
TIERS = (1, 2, 3)
NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")
THINGS = ("apples", "books", "stamps", "tiles")


def math_task(prompt: str, answer: str, family: str, tier: int, unit: list[str] | None = None) -> Task:
    """Make a task from a problem and its answer; the fingerprint follows from both."""
    goal: dict[str, Any] = {"answer": answer} | ({"unit": unit} if unit else {})
    digest = content_hash({"prompt": prompt, "goal": goal})
    return Task(f"math-{digest}", "math", family, tier, prompt, {}, goal, "math", digest)


def make_task(family: str, tier: int, rng: random.Random) -> Task:
    """A random task of a family and tier, whose answer is not 0."""
    while True:
        prompt, value, unit = MAKERS[family](tier, rng)
        if value:
            return math_task(prompt, str(value), family, tier, unit)


def _arithmetic(tier: int, rng: random.Random) -> tuple[str, Fraction, list[str] | None]:
    most = 20 * 5 ** (tier - 1)
    text, value = str(first := rng.randint(2, most)), Fraction(first)
    for _ in range(tier):
        sign, number = rng.choice("+-*"), rng.randint(2, most if tier == 1 else 30)
        text = f"({text}) {sign} {number}" if " " in text else f"{text} {sign} {number}"
        value = {"+": value + number, "-": value - number, "*": value * number}[sign]
    return f"What is {text}?", value, None


def _fractions(tier: int, rng: random.Random) -> tuple[str, Fraction, list[str] | None]:
    parts = [Fraction(rng.randint(1, 9), rng.randint(2, 5 + 4 * tier)) for _ in range(tier + 1)]
    text, value = f"{parts[0].numerator}/{parts[0].denominator}", parts[0]
    for part in parts[1:]:
        sign = rng.choice("+-" if tier < 3 else "+-*")
        text = f"({text}) {sign} {part.numerator}/{part.denominator}" if " " in text else f"{text} {sign} {part}"
        value = {"+": value + part, "-": value - part, "*": value * part}[sign]
    return f"What is {text}? Give a fraction in lowest terms.", value, None


def _equations(tier: int, rng: random.Random) -> tuple[str, Fraction, list[str] | None]:
    a, b, c = rng.randint(2, 9), rng.randint(1, 20 * tier), rng.randint(1, 40 * tier)
    if tier == 1:
        return f"Solve {a}x + {b} = {a * c + b} for x.", Fraction(c), None
    d = rng.choice([number for number in range(1, 9) if number != a])
    if tier == 2:
        return f"Solve {a}x + {b} = {d}x - {c} for x.", Fraction(-c - b, a - d), None
    e = rng.randint(2, 6)
    return f"Solve {e}({a}x - {b}) = {d}x + {c} for x.", Fraction(c + e * b, e * a - d) if e * a != d else Fraction(0), None


def _word_problems(tier: int, rng: random.Random) -> tuple[str, Fraction, list[str] | None]:
    name, other = rng.sample(NAMES, 2)
    if rng.random() < 0.5:
        thing = rng.choice(THINGS)
        boxes, each, given = rng.randint(3, 9), rng.randint(4, 12 * tier), rng.randint(1, 9)
        text, value = f"{name} has {boxes} boxes with {each} {thing} each.", Fraction(boxes * each)
        if tier > 1:
            text, value = f"{text} {name} gives {given} {thing} to {other}.", value - given
        if tier > 2:
            text, value = (
                f"{text} Then {name} buys half as many {thing} as {name} had at first.",
                value + Fraction(boxes * each, 2),
            )
        return f"{text} How many {thing} does {name} have now?", value, [thing, thing.removesuffix("s")]
    speed, hours, back = rng.randint(3, 20), rng.randint(2, 9), rng.randint(1, 5)
    text, value = f"{name} rides {speed} km an hour for {hours} hours.", Fraction(speed * hours)
    if tier > 1:
        text, value = f"{text} Then {name} turns round and rides {back} km back.", value - back
    if tier > 2:
        text, value = f"{text} {other} rode twice as far as {name} is now from the start, less {hours} km.", 2 * value - hours
        return f"{text} How many km did {other} ride?", value, ["km", "kilometres", "kilometers"]
    return f"{text} How many km is {name} from the start?", value, ["km", "kilometres", "kilometers"]


MAKERS = {"arithmetic": _arithmetic, "fractions": _fractions, "equations": _equations, "word_problems": _word_problems}
