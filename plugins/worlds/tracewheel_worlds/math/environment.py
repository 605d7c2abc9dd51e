"""Mathematics: a problem, and one tool for the answer."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from tracewheel import TEXT_TURN, DataError, Observation, Task, function_tool, spread_tasks
from tracewheel_worlds.math.files import tasks_from
from tracewheel_worlds.math.tasks import FAMILIES, TIERS, make_task, math_task

ECHO_LIMIT = 32
LONGEST_ANSWER = 4_000
SYSTEM_PROMPT = (
    "Solve the problem step by step. Then call the tool answer with the result alone, or end with a line that says Answer: "
    "and the result."
)
# What makes another number of one, or takes it back.
CHANGED = ("plus 5", "times 4", "thousand", "dozen", "squared", "is wrong", "to 300", "or so", "% 7", "pi")
TOOLS = [function_tool("answer", "Give the result and end the work.", {"value": {"type": "string"}})]


class MathEnvironment:
    r"""A problem, answered with the tool `answer` or in the text: a turn without a call ends the episode.

    >>> from tracewheel_worlds.math.tasks import math_task
    >>> world = MathEnvironment()
    >>> world.reset(math_task("What is 2 + 2?", "4", "arithmetic", 1))
    >>> world.step("answer", {"value": "4"}).done
    True

    State: `{"answer": text or null}`. The verifier is `math`. Generated tasks are of four families in three tiers; `tasks_from`
    reads GSM8K's and MATH's files. A log's `family` and `tier` are those of its task, beside `goal.answer` and `goal.unit`.
    """

    kind = "math"
    tool_threads = 0  # calls take no time
    verifiers = ("math",)
    system_prompt = SYSTEM_PROMPT
    families = FAMILIES
    tiers = TIERS

    def __init__(self) -> None:
        self._answer: str | None = None

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        goal = logged.get("goal")
        answer = goal.get("answer") if isinstance(goal, dict) else None
        if not isinstance(answer, str) or not answer.strip():
            raise DataError("'goal.answer' needs the right answer as text")
        unit = goal.get("unit") if isinstance(goal, dict) else None
        if unit is not None and not (isinstance(unit, list) and all(isinstance(one, str) for one in unit)):
            raise DataError("'goal.unit' is a list of the unit's spellings")
        family, tier = logged.get("family", "math"), logged.get("tier", 1)
        if not isinstance(family, str) or not family or type(tier) is not int or tier < 1:
            raise DataError("'family' is a name, and 'tier' a whole number from 1; either may be left out")
        return math_task(prompt, answer, family, tier, unit)

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Generated tasks of all families and tiers."""
        return spread_tasks(make_task, self.families, self.tiers, n, seed)

    def tasks_from(self, path: Path) -> list[Task]:
        """The tasks of a file of GSM8K or MATH.

        Raises:
            DataError: it cannot be read, or a line is neither; the message names it.
        """
        return tasks_from(path)

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family, of the same tier or an easier one; none for a task from a file."""
        import random

        if task.family not in self.families:
            return []
        rng = random.Random(f"variants-{task.id}-{seed}")
        return [make_task(task.family, rng.randint(1, task.tier), rng) for _ in range(n)]

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The answer, by the tool."""
        return [("answer", {"value": task.goal["answer"]})]

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Answers that come close; those that change the number are for numbers alone."""
        right = task.goal["answer"]
        said = {
            "only_in_thinking": f"<think>It is simple. Answer: {right}</think>I cannot tell.",
            "not_marked": f"The numbers 12, 7 and {right} come to mind.",
            "two_marks": f"Answer: {right}\nAnswer: {right}1",
            "two_boxes": f"\\boxed{{{right}}} or \\boxed{{{right}1}}",
        }
        given = {"or": f"{right} or {right}1", "list": f"{right}, {right}1", "in_words": f"maybe {right}"}
        try:
            number = Fraction(right)
        except ValueError:
            number = Fraction(0)
        if number:
            given |= {"wrong_sign": str(-number), "wrong_scale": str(number * 10), "next": str(number + 1)}
            given["percent_of_it"] = f"{number / 100}"
            for words in CHANGED:
                given["then_" + re.sub(r"\W+", "_", words).strip("_")] = f"{right} {words}"
            given |= {"power_of_ten": f"{right}e5", "ordered": f"{right}th", "pipe": f"{right}1 | {right}"}
            given |= {"equation": f"{right}1 = {right}", "fraction_of_x": f"x = {right}1 / x = {right}"}
        if task.goal.get("unit"):
            given["wrong_unit"] = f"{right} kg"
        misses = {name: [("answer", {"value": value})] for name, value in given.items()}
        return misses | {name: [(TEXT_TURN, {"text": text})] for name, text in said.items()}

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._answer = None

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        answer = state.get("answer")
        if answer is not None and not isinstance(answer, str):
            raise DataError("a snapshot of mathematics has 'answer', text or null")
        self._answer = answer

    def snapshot(self) -> dict[str, Any]:
        return {"answer": self._answer}

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if tool != "answer":
            return Observation(f"error: no tool named {tool[:ECHO_LIMIT]}", error=True)
        value = args.get("value")
        if args.keys() != {"value"} or not isinstance(value, str) or not value.strip():
            return Observation("error: answer takes value, a text", error=True)
        if len(value) > LONGEST_ANSWER:
            return Observation(f"error: the answer has at most {LONGEST_ANSWER} characters", error=True)
        self._answer = value
        return Observation("done", done=True)
