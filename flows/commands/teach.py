"""`tracewheel teach`: demonstrations by a stronger model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.console.arguments import curated_folder
from flows.console.progress import TerminalReporter
from flows.setup import prepare_environment, resolve_config
from tracewheel.config import TeachSections
from tracewheel.core.errors import DataError
from tracewheel.core.store import produce_whole

LABEL = "teach"


def teach(options: argparse.Namespace) -> dict[str, Any]:
    """Let the profile's teacher play the training tasks.

    Each reply is stored in a file next to `--out` as it arrives. After an interruption, or when a budget was too small, the
    same command resumes from there; when every episode has ended the file is removed.

    Raises:
        ConfigError: the profile has no teacher.
        DataError: the curated folder is not one, or has no training task.
        InputError: the endpoint, the model or the key is wrong.
        InfrastructureError: the endpoint does not answer.
    """
    config = resolve_config(options.config, options.overrides, options.run_dir)
    prepare_environment(None, debug=options.debug)
    curated = curated_folder(options)
    if options.tasks is not None and options.tasks < 1:
        raise DataError(f"--tasks {options.tasks}: at least 1")
    from tracewheel.curation.curated_folder import load_tasks
    from tracewheel.teacher.teach import teach

    tasks = load_tasks(curated, "train")[: options.tasks]
    if not tasks:
        raise DataError(f"--curated {curated}: has no training task")
    out = Path(options.out)
    journal = out.with_name(f"{out.name}.journal.jsonl")
    reporter = TerminalReporter()
    with reporter.shown():
        reporter.start(LABEL)
        result = produce_whole(
            out, lambda partial: teach(TeachSections.of(config), tasks, partial, journal=journal, progress=reporter.episodes)
        )
    if result["stopped"]:
        reporter.say(f"{result['stopped']}; the same command resumes from {journal}")
    else:
        journal.unlink(missing_ok=True)
    return {"out": options.out, **result}
