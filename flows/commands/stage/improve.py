"""`tracewheel stage improve`: the reinforcement-learning loop by itself, as `dvc.yaml` calls it, without Prefect."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import (
    curated_folder,
    curated_option,
    folder_of,
    leak_option,
    out_option,
    profile_of,
    profile_options,
    profile_words,
    warn_of_leaks,
)
from flows.console.look import Card, Grid, number, percent

BEST, REPORT_FILE = "best", "improvement.json"
ITERATION = tuple(f"[0-9]*/{stage}/*" for stage in ("rollout*", "score*", "update", "validation"))


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    curated_option(parser)
    parser.add_argument("--start", required=True, metavar="DIR", help="output of warm-start, or of an update")
    leak_option(parser)
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the profile's loop from a starting policy: roll out, score, update; every few iterations, validate.

    Each stage's result is kept in the work folder's store, as `tracewheel retrain` does, and reused while its inputs are the
    same. When the loop is complete, `--out` gets:

    - best/: the policy that is best on the validation split.
    - N/rollout, N/score, N/update, N/validation: what iteration N made; 0 is the start. Refills of dynamic sampling are
      rollout-1, score-1 and so on.
    - improvement.json: the candidates with their success on the validation split, which of them is the best, and the metrics
      of each iteration's update.

    Raises:
        DataError: the curated folder or the start is missing.
        LeakError: the curation leaks, and `curation.allow_leak` is not set.
        UnhealthyRun: a check of `doctor.stop_on` found something severe.
    """
    config = profile_of(options, "policy.base", "environment.kind")
    curated, start = curated_folder(options), folder_of(options.start, "--start")
    from flows.console.progress import TerminalReporter
    from flows.improve import improve
    from flows.setup import use_threads
    from tasks.engine.drivers import DirectDriver
    from tasks.engine.inputs import identify
    from tasks.engine.run import Run
    from tracewheel.config import SamplerSections
    from tracewheel.core.files import write_json
    from tracewheel.core.fingerprint import digest_of
    from tracewheel.core.run_record import RunRecord
    from tracewheel.core.store import Entry, Store, link, produce_whole
    from tracewheel.curation.leaks import check_curated
    from tracewheel.policy.adapters import policy_of
    from tracewheel.sampling.curriculum import make_sampler

    warn_of_leaks(check_curated(curated, config.curation))
    use_threads(config.threads)
    reporter = TerminalReporter()
    work_dir, inputs = Path(config.work_dir), {"curated": digest_of(curated), "start": digest_of(start)}
    # Apart from the records of whole runs, which `tracewheel runs status` lists.
    record = RunRecord(work_dir / "loops", identify(config, inputs))
    loop_run = Run(config, Store(work_dir / "store"), record, reporter, driver=DirectDriver())
    tasks, begun = (Entry(of.name, "", of, inputs[name], 0.0, {}) for name, of in (("curated", curated), ("start", start)))
    first = loop_run.adapted("start", begun, version=policy_of(start, config.policy.base).version)
    sampler = make_sampler(SamplerSections.of(config), curated)
    with loop_run.store.exclusive(), reporter.shown():
        learned = improve(loop_run, tasks, first, sampler)
    best = learned.best
    candidates = [{"policy": item.policy.name, "iteration": item.iteration, **item.rates} for item in learned.candidates]
    report: dict[str, Any] = {"best": best.policy.name, "best_iteration": best.iteration, "candidates": candidates}
    report["guard"] = [event.to_record() for event in learned.guard]
    if learned.rate_trials:
        report["rate_trials"] = learned.rate_trials

    def write(out: Path) -> None:
        assert best.policy.weights is not None
        link(best.policy.weights, out / BEST / best.policy.weights.name)
        for name, entry in _made(loop_run.record.path):
            link(loop_run.store.root / entry, out / name)
        write_json(out / REPORT_FILE, {**report, "updates": learned.updates})

    produce_whole(Path(options.out), write)
    return {"out": options.out, **report}


def _made(record: Path) -> Iterator[tuple[str, str]]:
    """What the loop made: its name in the output, and the store's entry."""
    from tracewheel.core.files import read_json
    from tracewheel.core.run_record import LOOP_FILE

    made = read_json(record / LOOP_FILE)
    for iteration, entries in made["iterations"].items():
        for stage, kind in (("rollout", "rollouts"), ("score", "scores")):
            for place, entry in enumerate(entries[kind]):
                yield f"{iteration}/{stage}{f'-{place}' if place else ''}", entry
        yield f"{iteration}/update", entries["update"]
    for iteration, entry in made["validations"].items():
        yield f"{iteration}/validation", entry


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    names = [name for name in result["candidates"][0] if name not in ("policy", "iteration")] if result["candidates"] else []
    grid = Grid(
        ("policy", *(name.replace("_", " ") for name in names)),
        [(item["policy"], *(_rate(item.get(name)) for name in names)) for item in result["candidates"]],
    )
    look_at, tone = f"best on the validation split: {result['best']}", "good"
    if not result["best_iteration"]:
        look_at, tone = "the start is still the best on the validation split: no iteration improved it", "warning"
    alarms = [f"iteration {event.get('iteration')}: {event.get('action')}" for event in result["guard"]]
    return Card(
        f"Loop of {len(result['candidates'])} candidates, written to {result['out']}",
        [("the guard", "; ".join(alarms))] if alarms else (),
        [grid],
        look_at,
        tone,
        [
            f"tracewheel evaluate {profile_words(options)} --curated {options.curated} --state {Path(result['out']) / BEST} "
            f"--out data/evaluation"
        ],
    )


def _rate(value: Any) -> str:
    return percent(value) if value is None or isinstance(value, float) else number(value)


COMMAND = Command(
    "stage improve",
    "the reinforcement-learning loop from a warm start",
    add_options,
    run,
    card,
    Writes((REPORT_FILE, BEST), ("best/*", *ITERATION, *(f"*/{part}" for part in ITERATION))),
)
