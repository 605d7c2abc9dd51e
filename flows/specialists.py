"""The loop once for each group of task families, and the merges of what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from flows.improve import Candidate, Improvement, improve, validate
from tasks.merge import merge_policies
from tasks.run import Policy, Run
from tasks.warm_start import warm_start_policy
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import Entry
from tracewheel.policy.merge import MERGES_FILE, compare
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.specialists import FamilySampler, families_of, family_rate, specialist_config


def improve_specialists(run: Run, curated: Entry, start: Policy, sampler: TaskSampler) -> Improvement:
    """Train a specialist for each group of families, merge them, and let merges that hold up take part in the choice.

    Iterations are counted through: those of the second specialist follow on those of the first, and each
    merge counts as one more.
    """
    specialists = run.config.training.specialists
    assert specialists is not None
    families = families_of(curated.path, specialists.groups)
    found = Improvement([validate(run, curated, start)], {})
    starts: dict[str, Policy] = {}
    parts: dict[str, Candidate] = {}
    for name, chosen in specialists.groups.items():
        own = specialist_run(run, name, chosen)
        starts[name] = own_start(own, curated, start, name) if run.config.warm_start.lora.of(chosen) else start
        tasks = cast(TaskSampler, FamilySampler(sampler, families, chosen))
        before = len(found.updates)
        learned = shifted(improve(own, curated, starts[name], tasks, name=name, before=before), before)
        found.updates.update(learned.updates)
        found.rollouts.update(learned.rollouts)
        found.candidates.extend(learned.candidates[1:])
        parts[name] = best_of(learned, chosen)
    add_merges(run, curated, start, starts, parts, found)
    return found


def specialist_run(run: Run, name: str, families: tuple[str, ...]) -> Run:
    """The run as a specialist's loop sees it: with its settings, and a place in the record for what it writes down."""
    record = RunRecord(run.record.path / "specialists" / name, run.record.run_id)
    return replace(run, config=specialist_config(run.config, families), record=record)


def shifted(learned: Improvement, before: int) -> Improvement:
    """What a loop came to, its iterations counted from those of the loops before it."""
    return Improvement(
        [replace(candidate, iteration=before + candidate.iteration) for candidate in learned.candidates],
        {before + iteration: metrics for iteration, metrics in learned.updates.items()},
        learned.rollouts,
    )


def own_start(own: Run, curated: Entry, start: Policy, name: str) -> Policy:
    """Where a specialist begins whose adapter has a shape of its own: at a warm start in that shape."""
    entry = warm_start_policy(own, curated=curated, demonstrations=own.config.warm_start.demonstrations)
    return replace(start, name=f"{name}-start", entry=entry, version=0)


def best_of(learned: Improvement, families: tuple[str, ...]) -> Candidate:
    """The candidate that is best on the specialist's own families; of equals the earliest."""
    return max(
        learned.candidates, key=lambda candidate: (family_rate(candidate.evaluation.result, families), -candidate.iteration)
    )


def add_merges(
    run: Run, curated: Entry, start: Policy, starts: dict[str, Policy], parts: dict[str, Candidate], found: Improvement
) -> None:
    """Merge, evaluate, compare with the parts; what is not worse becomes a candidate. All of it is recorded."""
    specialists = run.config.training.specialists
    assert specialists is not None
    if len(parts) < 2:
        return
    records: list[dict[str, Any]] = []
    for number, settings in enumerate(specialists.merges, start=len(found.updates) + 1):
        entry = merge_policies(
            run,
            parts={name: part.policy for name, part in parts.items()},
            starts=starts,
            onto=start,
            settings=settings.model_dump(mode="json"),
            version=number,
        )
        candidate = validate(run, curated, run.adapted(f"merge {settings.label()}", entry, version=number), number)
        record = {"merge": settings.label(), **compare(candidate.rate, {name: part.rate for name, part in parts.items()})}
        records.append(record)
        if record["accepted"]:
            found.candidates.append(candidate)
        else:
            run.reporter.say(f"{candidate.policy.name} is left aside: {record['best_part']} alone is better")
    if not run.planning:
        used = found.best.policy.name
        run.record.write(MERGES_FILE, [{**record, "used": used == f"merge {record['merge']}"} for record in records])
