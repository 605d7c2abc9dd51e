"""What the transformers engine saves by computing what sessions have in common once: seconds with and without it.

    python benchmarks/shared_rows.py configs/smollm2.yaml --run-dir runs/smollm2

Plays training tasks in groups, and held-out tasks as an evaluation does, with the warm start of a finished run; both ways in
one process, alternately, each with an engine of its own. Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from measuring import emit, machine, table

from tracewheel.config import RolloutSections, load_config
from tracewheel.core.types import Task
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.engines import transformers
from tracewheel.engines.making import make_engine
from tracewheel.engines.prompt_beginnings import PromptBeginnings
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import RolloutPlan, run_episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--groups", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1.0, 1.3])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    store = arguments.run_dir / "store"
    (curated,), (start, *_) = store.glob("curate-*"), sorted(store.glob("warm_start-*"))
    cases = [("train", group, temperature) for group in arguments.groups for temperature in arguments.temperatures]
    cases.append(("held_out", 2, 1.0))
    rows = []
    for split, group, temperature in cases:
        tasks = load_tasks(curated, split)[: arguments.tasks if split == "train" else arguments.tasks * 4]
        settings = [f"rollout.temperature={temperature}", f"rollout.engine.slots={len(tasks) * group}"]
        sections = RolloutSections.of(load_config(arguments.profile, settings))
        rows.append(
            measured(sections, PolicyRef(sections.policy.base, str(start / "adapter")), tasks, group, arguments.repeats)
        )
        rows[-1] |= {"split": split, "temperature": temperature}
    head = ["tasks", "episodes", "temperature", "distinct", "apart, s", "shared, s", "ratio", "equal episodes"]
    lines = [[f"{row['split']}, {row['group']} each", *(row[name] for name in NAMES)] for row in rows]
    emit({"machine": machine(sections.threads), "rows": rows}, table(head, lines), arguments.json)


NAMES = ("episodes", "temperature", "distinct", "apart_s", "shared_s", "ratio", "equal")


def measured(sections: Any, policy: PolicyRef, tasks: list[Task], group: int, repeats: int) -> dict[str, Any]:
    """Medians of both ways, and how many episodes have the same tokens."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    found: dict[bool, list[list[int]]] = {}
    for _ in range(repeats):
        for shared in (False, True):
            with sharing(shared):
                engine, renderer = make_engine(sections, policy, greedy=False, slots=len(tasks) * group)
                begun = time.perf_counter()
                episodes = run_episodes(engine, renderer, sections.rollout, RolloutPlan(tasks, samples=group, seed=5))
                seconds[shared].append(time.perf_counter() - begun)
            found[shared] = [episode.token_ids for episode in episodes]
    apart, together = (statistics.median(seconds[shared]) for shared in (False, True))
    return {
        "group": group,
        "episodes": len(found[True]),
        "distinct": len(set(map(tuple, found[True]))),
        "apart_s": apart,
        "shared_s": together,
        "ratio": together / apart,
        "equal": sum(one == other for one, other in zip(found[True], found[False], strict=True)),
    }


@contextmanager
def sharing(shared: bool) -> Iterator[None]:
    """With `shared` as it is; else every session is a row of its own and reads its whole prompt."""
    if shared:
        yield
        return
    with (
        patch.object(transformers, "_twins", lambda sessions: [[session] for session in sessions]),
        patch.object(PromptBeginnings, "find", lambda self, session: (None, 0)),
    ):
        yield


if __name__ == "__main__":
    main()
