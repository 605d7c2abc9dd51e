"""`tracewheel ingest`: logs from files, folders and MLflow; or a profile's logs, as `dvc.yaml` calls it."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DoubtfulData, InputError
from tracewheel.core.log_formats import FORMAT_NAMES

if TYPE_CHECKING:
    from tracewheel.config import IngestConfig

PROFILES = (".yaml", ".yml")


def add_ingest_command(commands: Any, exit_codes: str) -> None:
    """The command line of `ingest`."""
    summary = "read logged traces; put aside what cannot be read"
    parser = commands.add_parser("ingest", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.ingest:ingest")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="files, folders or globs, also .gz and .zst; or one YAML profile"
    )
    parser.add_argument(
        "--format", choices=FORMAT_NAMES, help="how the logs are written (default: auto, found out record by record)"
    )
    parser.add_argument(
        "--reader",
        dest="readers",
        action="append",
        default=[],
        metavar="READER",
        help="a reader of your own, tried first: module:Class, or a mapping in YAML; may be repeated",
    )
    parser.add_argument(
        "--allow-quarantine",
        dest="overrides",
        action="append_const",
        const="ingest.allow_quarantine=true",
        help="exit with 0 although nothing, or under half of the records, could be read",
    )
    parser.add_argument(
        "--forgotten",
        metavar="FILE",
        help="leave out who is listed there (forgotten.json of a work folder; a profile's own is always read)",
    )
    parser.add_argument("--full", action="store_true", help="read everything again, and replace what is in DIR")
    parser.add_argument("--mlflow-uri", metavar="URI", help="tracking store to read traces from")
    parser.add_argument("--experiment", metavar="NAME", help="experiment whose traces are read from there")
    parser.add_argument("--filter", metavar="TEXT", help="which of them, as in \"attributes.status = 'OK'\"")
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="a.b=c",
        help="override a setting, as in ingest.format=atif",
    )
    parser.add_argument("--run-dir", metavar="DIR", help="with a profile: instead of its work_dir")
    parser.add_argument("--out", metavar="DIR", help="folder to write; what is in it stays and is added to")
    parser.add_argument(
        "--explain",
        metavar="FILE",
        help="show one record of FILE, or FILE:LINE, as it is read, beside the original; writes nothing",
    )
    parser.add_argument("--record", type=int, metavar="N", help="which record of the file to explain (default: the first)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")


def ingest(options: argparse.Namespace) -> dict[str, Any]:
    """Read new logs; with a profile, all of its logs, as the stage does."""
    if options.explain:
        from flows.commands.explain import explain

        return explain(options)
    if not options.out:
        raise InputError("--out DIR is missing: the folder to write to (--explain FILE only shows a record)")
    if options.record is not None:
        raise InputError("--record: only with --explain FILE")
    if any(path.endswith(PROFILES) for path in options.paths):
        return _ingest_profile(options)
    from tracewheel.config.loading import load_ingest_config
    from tracewheel.traces.forgotten import NOBODY, read_forgotten_file
    from tracewheel.traces.ingest import ingest_new

    config = load_ingest_config(tuple(options.paths), options.format, options.overrides, options.readers)
    forgotten = read_forgotten_file(Path(options.forgotten)) if options.forgotten else NOBODY
    with _mlflow_traces(options) as passing, _progress(config, options, passing) as watch:
        report = ingest_new(config, Path(options.out), full=options.full, passing=passing, watch=watch, forgotten=forgotten)
    return _checked(config, {"out": options.out, **report})


def _ingest_profile(options: argparse.Namespace) -> dict[str, Any]:
    needs_one = (
        ("--format", options.format),
        ("--mlflow-uri", options.mlflow_uri),
        ("--full", options.full),
        ("--reader", options.readers),
        ("--forgotten", options.forgotten),
    )
    if len(options.paths) > 1 or any(value for _, value in needs_one):
        raise InputError(f"{options.paths[0]}: a profile names its logs itself; give it alone, and settings with --set")
    from flows.setup import prepare_environment, resolve_config
    from tracewheel.core.store import produce_whole
    from tracewheel.traces.forgotten import read_forgotten
    from tracewheel.traces.ingest import ingest
    from tracewheel.traces.snapshot import take_snapshot

    config = resolve_config(options.paths[0], options.overrides, options.run_dir)
    config.require("ingest.paths")
    prepare_environment(None, debug=options.debug)
    snapshot = replace(take_snapshot(config.ingest), forgotten=read_forgotten(config.work_dir))
    report = produce_whole(Path(options.out), lambda out: ingest(config.ingest, out, snapshot))
    return _checked(config.ingest, {"out": options.out, **report})


def _checked(config: IngestConfig, result: dict[str, Any]) -> dict[str, Any]:
    """The result.

    Raises:
        DoubtfulData: too little was kept, and the settings do not allow it.
    """
    from tracewheel.traces.shortfall import shortfall

    if (short := shortfall(result)) and not config.allow_quarantine:
        raise DoubtfulData(f"{short}; mend the logs or read them as shown, or accept it with --allow-quarantine", result)
    return result


@contextlib.contextmanager
def _mlflow_traces(options: argparse.Namespace) -> Iterator[dict[str, Path]]:
    """MLflow's traces as a temporary file."""
    if not options.mlflow_uri:
        if not options.paths:
            raise InputError("nothing to read: give a PATH, or --mlflow-uri with --experiment")
        if options.experiment or options.filter:
            raise InputError("--experiment and --filter are for traces in MLflow: give --mlflow-uri too")
        yield {}
        return
    if not options.experiment:
        raise InputError("--mlflow-uri: which experiment? give --experiment")
    from tasks.tracking.mlflow_traces import write_traces

    with tempfile.TemporaryDirectory(prefix="tracewheel-mlflow-") as folder:
        file = Path(folder) / "traces.jsonl"
        write_traces(file, options.mlflow_uri, options.experiment, options.filter)
        yield {f"mlflow/{options.experiment}": file}


@contextlib.contextmanager
def _progress(config: IngestConfig, options: argparse.Namespace, passing: dict[str, Path]) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes read, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from tracewheel.traces.discovery import find_files

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done: None
        return
    sizes = [path.stat().st_size for path in [*find_files(config.paths, without=Path(options.out)).values(), *passing.values()]]
    columns = (TextColumn("ingest"), BarColumn(bar_width=30), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("ingest", total=sum(sizes))
        yield lambda done: bars.update(task, completed=done)
