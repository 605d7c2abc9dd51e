"""The environment `reasoning_gym`: the generated problems of reasoning-gym, scored by its own datasets."""

from __future__ import annotations

import random
import re
import threading
from typing import Any

from pydantic import Field

from tracewheel import (
    TEXT_TURN,
    BridgeFailure,
    ConfigError,
    DataError,
    Observation,
    Task,
    content_hash,
    function_tool,
    spread_tasks,
)
from tracewheel_bridges.environment import VERDICT, BridgeArgs
from tracewheel_bridges.process import BridgeProcess

ECHO_LIMIT = 32
LONGEST_ANSWER = 20_000
CHECKED = 10  # tasks of each tier that are tried before a dataset is used
SEEDS = 2**31
FIXED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
MARKED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
SYSTEM_PROMPT = (
    "Solve the problem step by step. Then call the tool answer with the result alone, in the form that the problem asks for, "
    "or end with the result between <answer> and </answer>."
)
TOOLS = [function_tool("answer", "Give the result and end the work.", {"value": {"type": "string"}})]
Call = tuple[str, dict[str, Any]]


class Gym:
    """The other project's process, shared by episodes. One that ended is started again at the next request."""

    def __init__(self, args: BridgeArgs) -> None:
        self._args, self._lock = args, threading.Lock()
        self._process: BridgeProcess | None = None

    def ask(self, do: str, seconds: float, **request: Any) -> Any:
        """Have something done.

        Raises:
            BridgeFailure: the project cannot be started, raised, or took longer than `seconds`.
        """
        with self._lock:
            first = self._process is None
            process = self._process = self._process or BridgeProcess(
                self._args.python, "reasoning_gym", self._args.folder, FIXED | self._args.env
            )
            try:
                return process.ask(do, seconds + first * self._args.start_seconds, **request)
            except BridgeFailure:
                self._end()  # it may be one that no longer answers
                raise

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
        self._process = None


class ReasoningGymEnvironment:
    """A generated problem, answered with the tool `answer` or between `<answer>` and `</answer>` in the text.

    ```yaml
    environment:
      kind: reasoning_gym
      args: {python: .venv-standards/reasoning_gym/bin/python, datasets: [chain_sum, family_relationships, mini_sudoku]}
    ```

    Families are datasets, tiers the levels of the dataset's curriculum, the easiest first; one without a curriculum has tier 1
    alone. A task's `initial_state` is `{"dataset": name, "tier": number, "seed": number}`; its answer stays in the other
    process. Only a score of exactly 1 counts, and an empty answer or none is worth 0; the part `score` is what it gave.

    Before a dataset makes tasks it is tried: its own answers must score 1, empty ones and wrong ones less. One whose scorer
    takes wrong answers for right is refused unless `lenient` is set.

    State: `{"answer": text or null, "verdict": ...}`. Episodes share one process, in which each answer is scored apart.
    """

    class Args(BridgeArgs):
        """Where `reasoning-gym` is installed; its `datasets`; `tiers`, which count from 1; and `lenient`."""

        datasets: list[str] = Field(min_length=1)
        tiers: list[int] = Field(default=[1, 2, 3], min_length=1)
        lenient: bool = False

    kind = "reasoning_gym"
    tool_threads = 0  # calls take no time
    verifiers = ("verdict",)
    reaches = True

    def __init__(self, args: Args) -> None:
        self._args = args
        self.families = tuple(args.datasets)
        self.tiers = tuple(sorted(args.tiers))
        self.system_prompt = args.system_prompt or SYSTEM_PROMPT
        self.resources: Gym | None = None
        self._own: Gym | None = None
        self._now: Task | None = None
        self._answer: str | None = None
        self._verdict: dict[str, Any] | None = None

    @classmethod
    def setup(cls, args: Args) -> Gym:
        """The process that episodes share; it starts when it is needed."""
        return Gym(args)

    @classmethod
    def close_resources(cls, resources: Gym) -> None:
        """End that process."""
        resources.close()

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        start = logged.get("initial_state")
        kinds = {"dataset": str, "tier": int, "seed": int}
        if not isinstance(start, dict) or {name: type(value) for name, value in start.items()} != kinds:
            raise DataError("'initial_state' is to have 'dataset', a name, and 'tier' and 'seed', whole numbers")
        return self._task(prompt, start)

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Generated tasks of all datasets, in all tiers that each has.

        Raises:
            ConfigError: a dataset is refused, or there are not that many different tasks.
            BridgeFailure: the project cannot be started.
        """
        found = {name: self._checked(name) for name in self.families}

        def make(family: str, tier: int, rng: random.Random) -> Task | None:
            return self._made(family, tier, rng) if tier in found[family] else None

        return spread_tasks(make, self.families, self.tiers, n, seed)

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same dataset, of the same tier or an easier one."""
        rng = random.Random(f"variants-{task.id}-{seed}")
        tiers = [tier for tier in self._checked(task.family) if tier <= task.tier]
        made = (self._made(task.family, rng.choice(tiers), rng) for _ in range(n if tiers else 0))
        return [one for one in made if one is not None]

    def solution(self, task: Task) -> list[Call] | None:
        """The dataset's own answer, by the tool."""
        return [("answer", {"value": self._ask("solution", start=task.initial_state, prompt=task.prompt)})]

    def near_misses(self, task: Task) -> dict[str, list[Call]]:
        """Wrong answers, and right ones that are not marked as the answer."""
        place: dict[str, Any] = {"start": task.initial_state, "prompt": task.prompt}
        right = self._ask("solution", **place)
        said = {
            "only_in_thinking": f"<think>It is simple. <answer>{right}</answer></think>I cannot tell.",
            "not_marked": f"What comes to mind is {right}",
            "two_marks": f"<answer>{right}</answer> <answer>{right}1</answer>",
        }
        misses = {name: [("answer", {"value": value})] for name, value in self._ask("misses", **place).items()}
        return misses | {name: [(TEXT_TURN, {"text": text})] for name, text in said.items()}

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._begin(task, None)

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        answer = state.get("answer")
        if answer is not None and not isinstance(answer, str):
            raise DataError("a snapshot of reasoning_gym has 'answer', text or null")
        self._begin(task, answer)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if tool != "answer":
            return Observation(f"error: no tool named {tool[:ECHO_LIMIT]}", error=True)
        value = args.get("value")
        if args.keys() != {"value"} or not isinstance(value, str) or not value.strip():
            return Observation("error: answer takes value, a text", error=True)
        if len(value) > LONGEST_ANSWER:
            return Observation(f"error: the answer has at most {LONGEST_ANSWER} characters", error=True)
        self._answer, self._verdict = value, None
        return Observation("done", done=True)

    def reply(self, text: str) -> Observation:
        """The answer, which ends the episode. Several marked answers are none."""
        marked = MARKED.findall(THINKING.sub("", text))
        if len(marked) == 1 and marked[0].strip() and len(marked[0]) <= LONGEST_ANSWER:
            self._answer, self._verdict = marked[0].strip(), None
        return Observation("", done=True)

    def snapshot(self) -> dict[str, Any]:
        """The answer, and what the dataset gives for it.

        Raises:
            BridgeFailure: the project cannot be started, or the dataset does not value its own answer.
        """
        if self._verdict is None:
            self._verdict = self._scored()
        return {"answer": self._answer, "verdict": self._verdict}

    def close(self) -> None:
        """End the process, where it is this environment's own."""
        if self._own is not None:
            self._own.close()
        self._own = None

    def _begin(self, task: Task, answer: str | None) -> None:
        self._now, self._answer, self._verdict = task, answer, None

    def _scored(self) -> dict[str, Any]:
        if self._answer is None or self._now is None:
            return {"reward": 0.0, "parts": {"score": 0.0}}
        found = self._ask("score", start=self._now.initial_state, prompt=self._now.prompt, answer=self._answer)
        return {"reward": float(found["score"] == 1.0), "parts": {"score": found["score"]}}

    def _checked(self, name: str) -> list[int]:
        """The tiers of a dataset.

        Raises:
            ConfigError: it is refused.
        """
        found = self._ask("check", self._args.start_seconds, dataset=name, tiers=self.tiers, count=CHECKED)
        if found["refused"]:
            raise ConfigError(f"reasoning_gym: dataset '{name}' is refused: {found['refused']}")
        if found["lenient"] and not self._args.lenient:
            raise ConfigError(
                f"reasoning_gym: dataset '{name}' is refused, for its scorer takes a wrong answer for right: "
                f"{found['lenient']}; `lenient: true` takes it all the same"
            )
        tiers: list[int] = found["tiers"]
        return tiers

    def _made(self, family: str, tier: int, rng: random.Random) -> Task | None:
        start = {"dataset": family, "tier": tier, "seed": rng.randrange(SEEDS)}
        prompt = self._ask("make", start=start, longest=LONGEST_ANSWER)
        return None if prompt is None else self._task(prompt, start)

    def _ask(self, do: str, more_seconds: float = 0.0, **request: Any) -> Any:
        if self.resources is None and self._own is None:
            self._own = Gym(self._args)
        return (self.resources or self._own).ask(do, self._args.step_seconds + more_seconds, **request)  # type: ignore[union-attr]

    def _task(self, prompt: str, start: dict[str, Any]) -> Task:
        name = content_hash([self.kind, start["dataset"], prompt])
        return Task(
            id=f"{self.kind}-{name}",
            environment=self.kind,
            family=start["dataset"],
            tier=start["tier"],
            prompt=prompt,
            initial_state=start,
            goal={},
            verifier=VERDICT,
            fingerprint=name,
        )
