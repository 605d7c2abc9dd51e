"""Small functions as chains of steps: what each does in words, in Python, and done wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

BUILT_INS = (dict, enumerate, len, list, max, min, range, reversed, set, sorted, str, sum, tuple, zip)
NUMBER_RANGE = range(-20, 61)
WORDS = """
amber apple basin birch cedar cloud coral crane delta ember fable fern flint grove hazel heron ivory jasper kelp lark
lemon linen lotus maple marsh mint moss oak olive onyx opal orchid otter pearl pine plum quartz raven reed river robin
rose sage slate stone thorn tulip vale violet willow wren
"""


class Step(NamedTuple):
    """A step on `values`: a text and two expressions with a number `{k}`; the second is the step done wrong."""

    text: str
    code: str
    wrong: str
    numbers: range = range(1)


NUMBERS: tuple[Step, ...] = (
    Step("keep the even numbers", "[x for x in values if x % 2 == 0]", "[x for x in values if x % 2 == 1]"),
    Step("keep the odd numbers", "[x for x in values if x % 2 == 1]", "[x for x in values if x % 2 == 0]"),
    Step("keep the numbers greater than {k}", "[x for x in values if x > {k}]", "[x for x in values if x < {k}]", range(2, 12)),
    Step(
        "drop the numbers divisible by {k}",
        "[x for x in values if x % {k}]",
        "[x for x in values if x % {k} == 0]",
        range(3, 8),
    ),
    Step("multiply each by {k}", "[x * {k} for x in values]", "[x + {k} for x in values]", range(2, 10)),
    Step("add {k} to each", "[x + {k} for x in values]", "[x - {k} for x in values]", range(2, 30)),
    Step("square each", "[x * x for x in values]", "[x + x for x in values]"),
    Step("take each modulo {k}", "[x % {k} for x in values]", "[x // {k} for x in values]", range(5, 14)),
    Step("replace numbers above {k} by {k}", "[min(x, {k}) for x in values]", "[max(x, {k}) for x in values]", range(8, 30)),
    Step("drop repeated numbers, keeping the first of each", "list(dict.fromkeys(values))", "sorted(set(values))"),
    Step("sort from largest to smallest", "sorted(values, reverse=True)", "sorted(values)"),
    Step("sort from smallest to largest", "sorted(values)", "sorted(values, key=str)"),
    Step("reverse the order", "values[::-1]", "values[::2]"),
    Step("drop the first {k}", "values[{k}:]", "values[:-{k}]", range(1, 3)),
    Step(
        "replace each number by the sum of it and all before it",
        "[sum(values[:i + 1]) for i in range(len(values))]",
        "[sum(values[:i]) for i in range(len(values))]",
    ),
    Step(
        "replace the list by the differences of neighbours, each minus the one before it",
        "[b - a for a, b in zip(values, values[1:])]",
        "[a - b for a, b in zip(values, values[1:])]",
    ),
)
NUMBER_RESULTS: tuple[Step, ...] = (
    Step("return the list", "values", "values[1:]"),
    Step("return their sum", "sum(values)", "len(values)"),
    Step("return the largest, or None if there is none", "max(values, default=None)", "max(values, default=0)"),
    Step("return the mean as a float, 0.0 if there is none", "sum(values) / len(values) if values else 0.0", "sum(values) / 2"),
    Step("return the tuple of how many there are and their sum", "(len(values), sum(values))", "(sum(values), len(values))"),
    Step(
        "return a dict from each number to how often it occurs",
        "{x: values.count(x) for x in values}",
        "{x: values.index(x) for x in values}",
    ),
)
TEXTS: tuple[Step, ...] = (
    Step("keep the words longer than {k} letters", "[w for w in values if len(w) > {k}]", "[w for w in values if len(w) < {k}]",
         range(3, 5)),
    Step("drop repeated words, keeping the first of each", "list(dict.fromkeys(values))", "sorted(set(values))"),
    Step("turn each word to upper case", "[w.upper() for w in values]", "[w.title() for w in values]"),
    Step("reverse the letters of each word", "[w[::-1] for w in values]", "[w[1:] for w in values]"),
    Step("sort them alphabetically", "sorted(values)", "sorted(values, key=len)"),
    Step("sort them by length, keeping the order of equal ones", "sorted(values, key=len)", "sorted(values)"),
    Step("reverse the order of the words", "values[::-1]", "values[::2]"),
    Step("keep the first {k} letters of each", "[w[:{k}] for w in values]", "[w[{k}:] for w in values]", range(2, 4)),
    Step("drop the first {k}", "values[{k}:]", "values[:-{k}]", range(1, 3)),
    Step("remove the vowels a, e, i, o, u from each", "[w.translate(str.maketrans('', '', 'aeiou')) for w in values]",
         "[w.translate(str.maketrans('', '', 'aei')) for w in values]"),
)  # fmt: skip
TEXT_RESULTS: tuple[Step, ...] = (
    Step("return the list", "values", "values[1:]"),
    Step('return them joined by "-"', "'-'.join(values)", "' '.join(values)"),
    Step("return the number of letters in all", "sum(len(w) for w in values)", "len(values)"),
    Step("return a dict from each word to its length", "{w: len(w) for w in values}", "{w: w for w in values}"),
)


@dataclass(frozen=True)
class Pipeline:
    """A chain of steps and a result, with their numbers filled in."""

    domain: str
    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        """What the steps do, in order."""
        parts = [step.text for step in self.steps]
        return "; ".join(f"({number}) {part}" for number, part in enumerate(parts, 1))

    def lines(self, wrong: int | None = None, without: int | None = None) -> list[str]:
        """The steps as lines of Python, the step of number `wrong` done wrong, or the one of number `without` left out."""
        codes = [step.wrong if place == wrong else step.code for place, step in enumerate(self.steps) if place != without]
        return [f"values = {code}" for code in codes]

    def run(self, values: list[Any], wrong: int | None = None, without: int | None = None) -> Any:
        """What the steps make of values."""
        for line in self.lines(wrong, without):
            values = eval(line.removeprefix("values = "), {"__builtins__": {}, **_NAMES, "values": values})
        return values


_NAMES = {function.__name__: function for function in BUILT_INS}


def draw_pipeline(domain: str, length: int, rng: random.Random, results: int | None = None) -> Pipeline:
    """A random chain of `length` steps of a domain, `numbers` or `words`, with one of its first `results` results."""
    steps, ends = (NUMBERS, NUMBER_RESULTS) if domain == "numbers" else (TEXTS, TEXT_RESULTS)
    chosen = [*rng.sample(steps, length), rng.choice(ends[:results])]
    return Pipeline(domain, tuple(_filled(step, rng.choice(step.numbers)) for step in chosen))


def draw_values(domain: str, rng: random.Random) -> list[Any]:
    """A random input, at times empty."""
    stock = list(NUMBER_RANGE) if domain == "numbers" else WORDS.split()
    count = rng.choice((0, 1, 2, *range(4, 13), *range(6, 13)))
    some = rng.sample(stock, 8)
    return [rng.choice(some) for _ in range(count)]


def _filled(step: Step, number: int) -> Step:
    text, code, wrong = (part.replace("{k}", str(number)) for part in (step.text, step.code, step.wrong))
    return Step(text, code, wrong)
