"""What the work folder says before a run begins: what is left of the gate's budget, and whose splits it carries on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.records.gate_ledger import place_in, read_ledger
from tasks.records.split_chain import latest_record
from tracewheel.config import RetrainConfig, load_stored_config
from tracewheel.core import clock
from tracewheel.core.errors import TracewheelError
from tracewheel.core.inference import components_needed
from tracewheel.core.run_record import find_runs
from tracewheel.evaluation.error_budget import ANOTHER_PLAN, NIGHT, Look, level_of, names_candidates
from tracewheel.evaluation.power import describe_power
from tracewheel.operations.preflight import Line


def work_folder_lines(config: RetrainConfig) -> Iterator[Line]:
    """The gate's budget and power, and another profile's splits; each line as soon as it is known."""
    for name, check in (("gate", _gate), ("splits", _splits)):
        try:
            yield from check(config)
        except TracewheelError as error:
            yield Line(name, "error", str(error))


def _gate(config: RetrainConfig) -> Iterator[Line]:
    gates = read_ledger(config.work_dir)
    first = Look(kind=NIGHT) if names_candidates(config.gate) else Look()
    look = place_in(gates, "", clock.now(), config.gate, first)
    level = level_of(config.gate, look)
    if level <= 0.0:
        yield Line("gate", "error", f"the {len(gates)} gates of the last year have spent its error budget", ANOTHER_PLAN)
        return
    tasks = config.curation.held_out_tasks
    power, parts = describe_power(tasks, level), components_needed(level)
    few = tasks < config.gate.min_pairs
    yield Line(
        "gate",
        "warning" if few else "ok",
        f"look {look.number}; {tasks} held-out tasks, if the logs hold so many, of at least {parts} components (users, "
        f"sessions, templates) show gains above {100 * power['visible_gain']:.0f} points",
        f"curation.held_out_tasks is below gate.min_pairs, {config.gate.min_pairs}: nothing could be promoted" if few else "",
    )


def _splits(config: RetrainConfig) -> Iterator[Line]:
    work_dir = Path(config.work_dir)
    if latest_record(work_dir) is None:
        yield Line("splits", "ok", "a new work folder")
        return
    others = sorted({_profile(run.path) for run in find_runs(work_dir)} - {config.name, ""})
    if others:
        yield Line(
            "splits",
            "warning",
            f"{work_dir} holds runs of {', '.join(others)}: this run carries on their split of tasks, and their champion",
            "give each profile a work_dir of its own, unless they train on the same logs",
        )
    else:
        yield Line("splits", "ok", "carries on those of the last run")


def _profile(run: Path) -> str:
    try:
        return load_stored_config(run).name
    except TracewheelError:
        return ""
