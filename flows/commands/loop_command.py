"""`tracewheel improve`: the reinforcement-learning loop by itself, as `dvc.yaml` calls it, without Prefect."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.console.arguments import curated_folder, folder_of, warn_of_leaks
from flows.console.progress import TerminalReporter
from flows.setup import prepare_environment, resolve_config, use_threads
from tracewheel.config import SamplerSections
from tracewheel.core.files import read_json, write_json
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.store import Entry, Store, link, produce_whole

BEST, REPORT_FILE = "best", "improvement.json"


def improve(options: argparse.Namespace) -> dict[str, Any]:
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
    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require("policy.base", "environment.kind")
    prepare_environment(None, debug=options.debug)
    curated, start = curated_folder(options), folder_of(options.start, "--start")
    from flows.improve import improve
    from tasks.engine.drivers import DirectDriver
    from tasks.engine.inputs import identify
    from tasks.engine.run import Run
    from tracewheel.core.run_record import RunRecord
    from tracewheel.curation.leaks import check_curated
    from tracewheel.policy.adapters import policy_of
    from tracewheel.sampling.curriculum import make_sampler

    warn_of_leaks(check_curated(curated, config.curation))
    use_threads(config.threads)
    reporter = TerminalReporter()
    work_dir, inputs = Path(config.work_dir), {"curated": digest_of(curated), "start": digest_of(start)}
    # Apart from the records of whole runs, which `tracewheel status` lists.
    record = RunRecord(work_dir / "loops", identify(config, inputs))
    run = Run(config, Store(work_dir / "store"), record, reporter, driver=DirectDriver())
    first = run.adapted("start", _entry(start, inputs["start"]), version=policy_of(start, config.policy.base).version)
    sampler = make_sampler(SamplerSections.of(config), curated)
    with run.store.exclusive(), reporter.shown():
        learned = improve(run, _entry(curated, inputs["curated"]), first, sampler)
    best = learned.best
    candidates = [{"policy": item.policy.name, "iteration": item.iteration, **item.rates} for item in learned.candidates]
    report: dict[str, Any] = {"best": best.policy.name, "best_iteration": best.iteration, "candidates": candidates}
    report["guard"] = [event.to_record() for event in learned.guard]
    if learned.rate_trials:
        report["rate_trials"] = learned.rate_trials

    def write(out: Path) -> None:
        assert best.policy.weights is not None
        link(best.policy.weights, out / BEST / best.policy.weights.name)
        for name, entry in _made(run.record.path):
            link(run.store.root / entry, out / name)
        write_json(out / REPORT_FILE, {**report, "updates": learned.updates})

    produce_whole(Path(options.out), write)
    return {"out": options.out, **report}


def _entry(folder: Path, digest: str) -> Entry:
    """The output of an earlier stage, wherever it lies."""
    return Entry(folder.name, "", folder, digest, 0.0, {})


def _made(record: Path) -> Iterator[tuple[str, str]]:
    """What the loops made: its name in the output, and the store's entry."""
    from tracewheel.report.doctor import LOOP_FILE, loops_of

    for loop, folder in loops_of(record).items():
        made = read_json(folder / LOOP_FILE)
        prefix = f"{loop}/" if loop else ""
        for number, entries in made["iterations"].items():
            for stage, kind in (("rollout", "rollouts"), ("score", "scores")):
                for place, entry in enumerate(entries[kind]):
                    yield f"{prefix}{number}/{stage}{f'-{place}' if place else ''}", entry
            yield f"{prefix}{number}/update", entries["update"]
        for number, entry in made["validations"].items():
            yield f"{prefix}{number}/validation", entry
