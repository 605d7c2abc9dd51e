"""How a run is opened and closed, and what it starts from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import prefect.runtime.flow_run

from flows.console.progress import TerminalReporter
from flows.setup import use_threads
from flows.wheel_stages import bring, check_whole
from tasks.engine.run import Policy, Run
from tasks.records.evidence import POSTERIOR_FILE, begins_with, find_curated
from tasks.records.gate_ledger import waiting_candidate
from tasks.records.split_chain import splits_begin_with
from tasks.records.template import TEMPLATE_FILE, checked_template
from tasks.stages.champion import load_champion
from tasks.tracking.champion import Champion
from tasks.tracking.registry import find_champion
from tasks.tracking.tracking import Tracking, deliver_waiting
from tracewheel.config import SamplerSections
from tracewheel.config.placement import dtype_line
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import Entry
from tracewheel.evaluation.graders import auditor
from tracewheel.sampling.curriculum import make_sampler, sampler_kind
from tracewheel.sampling.sampler import TaskSampler


@contextmanager
def opened(run: Run, reporter: TerminalReporter) -> Iterator[None]:
    """Hold the store, and open the record."""
    reporter.say(f"run {run.record.run_id} in {run.record.path}")
    reporter.say(dtype_line(run.config.policy.base, run.config.policy.device, run.config.policy.dtype))
    use_threads(run.config.threads)
    template = checked_template(run)
    if run.config.gate.false_accepts == "audit":
        auditor()  # of a wheel that may be missing
    with run.hold(prefect.runtime.flow_run.id), reporter.shown():
        run.record.write(TEMPLATE_FILE, template)
        yield


@contextmanager
def tracked(run: Run) -> Iterator[Run]:
    """The run with its MLflow run, closed by how the block ends."""
    tracking = Tracking.open(run.config, run.record, run.reporter.say)
    with tracking.closing():
        yield replace(run, tracking=tracking)


def starting_facts(run: Run, traces: Entry) -> dict[str, Any]:
    """What the run starts from: the same after each resume."""

    def look() -> dict[str, Any]:
        waits = deliver_waiting(run.config.work_dir, run.reporter.say).waiting
        champion, note = find_champion(run.config, follow=True)
        if not waits:
            bring(run.config, run.reporter.say)
        run.reporter.say(note)
        return look_around(run, traces, champion, note)

    return run.record.start(look)


def foreseen_facts(run: Run, traces: Entry | None) -> dict[str, Any]:
    """What a run that is begun now would start from; without its traces, only the champion is known."""
    if started := run.record.started():
        return started
    champion, note = find_champion(run.config)
    if traces is None:
        return {"champion": champion.to_record() if champion else None, "note": note, "sampler": None}
    return look_around(run, traces, champion, note)


def earlier_curation(run: Run, start: dict[str, Any]) -> Entry | None:
    """The curation that this run resumes pass rates from."""
    name = start.get("evidence")  # runs of earlier versions have none
    return find_curated(run, name) if name else None


def starting_point(run: Run, start: dict[str, Any], curated: Entry) -> tuple[Policy | None, TaskSampler]:
    """The champion, if there is one for this base, and the tasks' posterior."""
    sampler = make_sampler(SamplerSections.of(run.config), curated.path, start["sampler"])
    if not start["champion"]:
        return None, sampler
    check_whole(run.config, start["champion"]["run_id"])
    entry = load_champion(run, version=start["champion"]["version"], digest=start["champion"]["digest"])
    return run.adapted("champion", entry, version=entry.result["policy_version"]), sampler


def look_around(run: Run, traces: Entry, champion: Champion | None, note: str) -> dict[str, Any]:
    """The current champion, the posterior of earlier runs, decayed once, and what pass rates and splits resume from."""
    posterior, state = Path(run.config.work_dir) / POSTERIOR_FILE, None
    if posterior.is_file():
        way_on = "delete it, and the tasks' posterior starts over"
        kept = read_json(posterior, way_on)
        try:
            sampler = sampler_kind(run.config.sampler).from_state(run.config.sampler, [], run.config.seed, kept)
        except (AttributeError, DataError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{posterior}: not a posterior that a run wrote ({error}); {way_on}") from error
        sampler.decay()
        state = sampler.to_state()
    return {
        "champion": champion.to_record() if champion else None,
        "note": note,
        "candidate": waiting["evidence"] if (waiting := waiting_candidate(run.config.work_dir)) else None,
        "sampler": state,
        "evidence": (evidence := begins_with(run, traces)),
        "splits": splits_begin_with(run, traces, evidence),
    }
