"""Evaluating a policy on a split."""

from __future__ import annotations

from typing import Any

from tasks.engine.run import Policy, Run
from tasks.engine.stage import Context, stage_task
from tracewheel.config import EvaluateSections
from tracewheel.core.store import Entry
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import HELD_OUT, VALIDATION, load_tasks
from tracewheel.evaluation.evaluate import evaluate_split, join


def the_tasks(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the tasks of the split in place of the whole curation, which new traces change every night."""
    curated, split = arguments["curated"], arguments["split"]
    tasks = [task.to_record() for task in load_tasks(curated.path, split)]
    return {**arguments, "curated": content_hash(tasks, length=64)}


@stage_task("evaluate", code="tracewheel.evaluation.evaluate", sections=EvaluateSections, reads=the_tasks)
def evaluate_policy(
    context: Context[EvaluateSections],
    *,
    policy: Policy,
    curated: Entry,
    split: str,
    samples: int,
    repeat: int = 0,
    part: list[int] | None = None,
) -> dict[str, Any]:
    """Greedy and sampled success of a policy on the tasks of a split; a `repeat` has another seed.

    With `part`, [number from 0, number of parts], only on the tasks of that part; see `sequential.in_parts`.
    """
    return evaluate_split(
        context.config, policy.ref(), curated.path, split, context.out, samples=samples, repeat=repeat, part=part
    )


@stage_task("join", code="tracewheel.evaluation.evaluate", sections=EvaluateSections, reads=the_tasks)
def join_evaluations(context: Context[EvaluateSections], *, parts: list[Entry], curated: Entry, split: str) -> dict[str, Any]:
    """One evaluation of the parts of a split that were played."""
    return join(
        context.config,
        load_tasks(curated.path, split),
        [part.path for part in parts],
        context.out,
        held_out=split != VALIDATION,
    )


def evaluate_up_to(run: Run, policy: Policy, curated: Entry, parts: int, repeat: int = 0) -> Entry:
    """Evaluate on the first parts of the held-out tasks, each a result of its own that a later call reuses."""
    looks, samples = run.config.gate.looks, run.config.evaluation.samples
    shared: dict[str, Any] = {"policy": policy, "curated": curated, "split": HELD_OUT, "samples": samples}
    shared |= {"repeat": repeat} if repeat else {}
    played = [evaluate_policy(run, **shared, part=[number, looks]) for number in range(parts)]
    return join_evaluations(run, parts=played, curated=curated, split=HELD_OUT)
