"""The loop once for each group of task families, and merges of the specialists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from flows.improve import improve, validate
from tasks.engine.run import Policy, Run
from tasks.records.improvement import Candidate, Improvement, candidate_rates
from tasks.stages.merge import merge_policies
from tasks.stages.warm_start import warm_start_policy
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import Entry
from tracewheel.policy.merge import MERGES_FILE, compare
from tracewheel.sampling.sampler import TaskSampler
from tracewheel.sampling.specialists import FamilySampler, families_of, specialist_config


def improve_specialists(run: Run, curated: Entry, start: Policy, sampler: TaskSampler) -> Improvement:
    """Train a specialist for each group of families, and merge them; a merge that is not worse than its parts is a candidate.

    Iterations are counted through: those of the second specialist follow those of the first, and each merge is one more.
    """
    specialists = run.config.training.specialists
    assert specialists is not None
    families = families_of(curated.path, specialists.groups)
    found = Improvement([validate(run, curated, start)])
    starts: dict[str, Policy] = {}
    parts: dict[str, Candidate] = {}
    for name, chosen in specialists.groups.items():
        own = specialist_run(run, name, chosen)
        starts[name] = own_start(own, curated, start, name) if run.config.warm_start.lora.of(chosen) else start
        tasks = cast(TaskSampler, FamilySampler(sampler, families, chosen))
        learned = improve(own, curated, starts[name], tasks, name=name, before=len(found.updates))
        found.extend(learned)
        parts[name] = learned.best_on(chosen)
    if len(parts) > 1:
        add_merges(run, curated, start, starts, parts, found)
    return found


def specialist_run(run: Run, name: str, families: tuple[str, ...]) -> Run:
    """The run as a specialist's loop sees it: with its own settings, and its own folder in the record."""
    record = RunRecord(run.record.path / "specialists" / name, run.record.run_id)
    return replace(run, config=specialist_config(run.config, families), record=record)


def own_start(own: Run, curated: Entry, start: Policy, name: str) -> Policy:
    """The start of a specialist with its own adapter shape: a warm start in that shape."""
    entry = warm_start_policy(own, curated=curated, demonstrations=own.config.warm_start.demonstrations)
    return replace(start, name=f"{name}-start", entry=entry, version=0)


def add_merges(
    run: Run, curated: Entry, start: Policy, starts: dict[str, Policy], parts: dict[str, Candidate], found: Improvement
) -> None:
    """Merge in each way that the profile names, validate, and record all of it."""
    specialists = run.config.training.specialists
    assert specialists is not None
    policies = {name: part.policy for name, part in parts.items()}
    records: dict[str, dict[str, Any]] = {}
    for number, merge in enumerate(specialists.merges, start=len(found.updates) + 1):
        settings = merge.model_dump(mode="json")
        entry = merge_policies(run, parts=policies, starts=starts, onto=start, settings=settings, version=number)
        candidate = validate(run, curated, run.adapted(f"merge {merge.label()}", entry, version=number), number)
        rates = candidate_rates({**parts, candidate.policy.name: candidate})
        compared = compare(rates.pop(candidate.policy.name), rates)
        records[candidate.policy.name] = {"merge": merge.label(), **compared}
        if compared["accepted"]:
            found.candidates.append(candidate)
        else:
            better = f"{compared['best_part']} alone is better" if compared["best_part"] else "no part of it could be rated"
            run.reporter.say(f"{candidate.policy.name} is not used: {better}")
    used = found.best.policy.name
    run.record.write(MERGES_FILE, [{**record, "used": name == used} for name, record in records.items()])
