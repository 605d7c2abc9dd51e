"""Worlds with tasks that a warm start loses, for `lost_tasks.py`: how tasks are made, and how they are played."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tracewheel.core.types import Task
from tracewheel.environments.base import Solver, play_calls
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment
from tracewheel.environments.order_desk.stock import DESKS, UNSEEN
from tracewheel.environments.order_desk.tasks import make_task as order_desk_task
from tracewheel.environments.order_desk.tasks import wanted
from tracewheel.environments.order_desk.wording import is_paraphrase
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import make_task as workspace_task
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_worlds.assistant.environment import AssistantEnvironment
from tracewheel_worlds.assistant.stock import CIRCLES
from tracewheel_worlds.assistant.tasks import make_task as assistant_task

TRAIN, KNOWN = 96, 26

Make = Callable[[str, int, random.Random, bool], Task]  # family, tier, random numbers, whether for the held-out side


@dataclass(frozen=True)
class World:
    """Tasks of some families and tiers, and the profile whose warm start meets them.

    Attributes:
        settings: Of the profile, for this study.
        rate: The learning rate.
        held_out: The number of held-out tasks.
        last_change: The tool whose last call a wrong solution lacks.
    """

    profile: str
    environment: Callable[[], Solver]
    make: Make
    families: tuple[str, ...]
    tiers: tuple[int, ...]
    settings: list[str] = field(default_factory=list)
    rate: float = 1e-3
    held_out: int = 48
    last_change: str = ""

    def write(self, folder: Path, seed: int, *, wrong: float, verified: bool) -> None:
        """Write training tasks, of which some have a known solution, and held-out ones, as a curation would.

        Args:
            wrong: The share of the known solutions that are wrong.
            verified: Whether the verifier has seen them.
        """
        rng = random.Random(f"lost-tasks-{seed}")
        made: dict[str, Task] = {}
        while len(made) < TRAIN + self.held_out:
            family, tier = self.families[len(made) % len(self.families)], self.tiers[len(made) // 2 % len(self.tiers)]
            task = self.make(family, tier, rng, len(made) >= TRAIN)
            made.setdefault(task.fingerprint, task)
        tasks = list(made.values())
        known = random.Random(seed).sample(range(TRAIN), KNOWN)
        wrongs = set(known[: round(wrong * KNOWN)])
        rows = []
        for number, task in enumerate(tasks[:TRAIN]):
            environment = self.environment()
            calls = list(environment.solution(task) or [])
            calls = calls if number in known else calls[:1]
            if number in wrongs:
                calls.pop(max(place for place, (name, _) in enumerate(calls) if name == self.last_change))
            messages = play_calls(environment, task, calls)
            success, _ = make_verifier(task.verifier).verify(task, environment.snapshot())
            assert success == float(number in known and number not in wrongs)
            rows.append(
                {
                    "trace_id": f"trace-{number}", "task_id": task.id, "split": "train", "failure": "",
                    "success": success if verified else float(number in known),
                    "messages": json.dumps(messages), "tools": json.dumps(environment.tools()),
                }
            )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        splits = ["train"] * TRAIN + ["held_out"] * self.held_out
        records = [task.to_record() | {"split": split} for task, split in zip(tasks, splits, strict=True)]
        pd.DataFrame(records).to_parquet(folder / "tasks.parquet", index=False)
        pd.DataFrame(rows).to_parquet(folder / "episodes.parquet", index=False)


def _assistant(family: str, tier: int, rng: random.Random, held_out: bool) -> Task:
    """Held-out tasks have the names of two circles of their own."""
    return assistant_task(family, tier, rng, rng.randrange(CIRCLES - 2, CIRCLES) if held_out else rng.randrange(CIRCLES - 2))


def _order_desk(family: str, tier: int, rng: random.Random, held_out: bool) -> Task:
    """Two orders to change; held-out tasks at desks of their own, in words that no other desk says."""
    while True:
        desk = rng.randrange(UNSEEN, DESKS) if held_out else rng.randrange(UNSEEN)
        task = order_desk_task(family, tier, desk, rng)
        if len(wanted(task.initial_state, task.goal)) == 2 and is_paraphrase(task.prompt) == held_out:
            return task


def _workspace(family: str, tier: int, rng: random.Random, _held_out: bool) -> Task:
    return workspace_task(family, tier, rng)


WORLDS = {
    "workspace": World(
        "configs/tiny.yaml", WorkspaceEnvironment, _workspace, ("list", "content"), (6, 7, 8),
        ["rollout.exploration.environment_args={}", "rollout.max_tokens=600", "threads=1"], last_change="move_file",
    ),
    "assistant": World(
        "plugins/worlds/configs/assistant.yaml", AssistantEnvironment, _assistant, ("book", "reply", "hours", "share"), (4,),
        ["warm_start.demonstrations=verified", "rollout.max_tokens=320", "threads=1"], rate=2e-3, held_out=96,
    ),
    "order_desk": World(
        "configs/smollm2.yaml", OrderDeskEnvironment, _order_desk, ("shipped", "open"), (3, 4), ["threads=1"], rate=1e-4,
    ),
}  # fmt: skip
