"""`tracewheel baseline`: how a model behind an OpenAI-compatible endpoint does on a split of the tasks."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from flows.console.arguments import tasks_of_split
from flows.console.look import result_console
from flows.console.progress import TerminalReporter
from flows.setup import prepare_environment, resolve_config
from tracewheel.config import BaselineSections
from tracewheel.core.errors import DataError
from tracewheel.core.store import produce_whole


def baseline(options: argparse.Namespace) -> dict[str, Any]:
    """Evaluate the model that the profile's `baseline`, or the command line, names.

    Each reply is stored in a file next to `--out` as it arrives. After an interruption, or when a budget was too small, the
    same command resumes from there; when every episode has ended the file is removed.

    Raises:
        ConfigError: no endpoint and model are named.
        DataError: the curated folder is not one, or has no such split.
        InputError: the endpoint, the model or the key is wrong.
        InfrastructureError: the endpoint does not answer.
    """
    config = resolve_config(options.config, [*_named(options), *options.overrides], options.run_dir)
    prepare_environment(None, debug=options.debug)
    samples = config.evaluation.samples if options.samples is None else options.samples
    if samples < 0:
        raise DataError(f"--samples {samples}: 0 or more")
    tasks = tasks_of_split(options)[: options.tasks]
    if not tasks:
        raise DataError(f"--split {options.split}: no task of it is in {options.curated}")
    from tracewheel.teacher.baseline import evaluate_endpoint

    out = Path(options.out)
    journal = out.with_name(f"{out.name}.journal.jsonl")
    reporter = TerminalReporter()
    with reporter.shown():
        reporter.start(f"baseline {options.split}")
        summary, played = produce_whole(
            out,
            lambda partial: evaluate_endpoint(
                BaselineSections.of(config),
                tasks,
                partial,
                samples=samples,
                greedy=not options.sampled_only,
                journal=journal,
                progress=reporter.episodes,
            ),
        )
    if played.stopped:
        reporter.say(f"{played.stopped}; the same command resumes from {journal}")
    else:
        journal.unlink(missing_ok=True)
    run = {"requests": played.counts, "seconds": round(played.seconds, 2), "stopped": played.stopped}
    result = {"out": options.out, "split": options.split, "tasks": len(tasks), **summary, **run}
    return result if options.json else {"show": lambda: _show(result)}


def _named(options: argparse.Namespace) -> list[str]:
    """The command line's options of the endpoint, as settings of the profile."""
    given = {"endpoint": options.endpoint, "model": options.model}
    return [f"baseline.{name}={json.dumps(value)}" for name, value in given.items() if value is not None]


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    console = result_console()
    endpoint = result["endpoint"]
    table = Table(title=f"{endpoint['model']} on {result['tasks']} tasks of {result['split']}")
    for heading in ("episodes", "success", "95% interval", "tasks scored"):
        table.add_column(heading)
    for mode in ("greedy", "sampled"):
        rate, interval = result[mode]["rate"], result[mode]["interval"]
        shown = ("–", "–") if rate is None else (f"{rate:.1%}", f"{interval[0]:.1%} to {interval[1]:.1%}")
        table.add_row(mode, *shown, str(result[mode]["n"]))
    console.print(table)
    cost = "not known" if endpoint["cost"] is None else f"{endpoint['cost']:.4f}"
    counts = result["requests"]
    console.print(
        f"{endpoint['replies']} replies: {endpoint['prompt_tokens']} prompt tokens ({endpoint['cached_tokens']} cached), "
        f"{endpoint['completion_tokens']} completion tokens; cost {cost}",
        markup=False,
        soft_wrap=True,
    )
    console.print(
        f"this time {counts['sent']} requests, {counts['repeated']} of them repeated, {counts['no_answer']} without an answer, "
        f"in {result['seconds']:.1f} s; {endpoint['trainable']} of {result['episodes']} episodes can be learned from",
        markup=False,
        soft_wrap=True,
    )
    console.print(f"written to {result['out']}", markup=False, soft_wrap=True)
