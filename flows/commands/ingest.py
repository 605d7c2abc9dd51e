"""`tracewheel ingest`: logs from files, folders and sources; or a profile's logs, as `dvc.yaml` calls it."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Command
from flows.console.arguments import allow_option, set_option
from flows.console.look import Block, Card, Grid, counted, number, one_line
from tracewheel.core.errors import DoubtfulData, InputError
from tracewheel.core.log_formats import AUTO, TRIED, checked_format
from tracewheel.traces.ingested_folder import INGESTED, QUARANTINE_FILE

if TYPE_CHECKING:
    from tracewheel.config import IngestConfig

PROFILES = (".yaml", ".yml")
COUNTS = ("read", "kept", "duplicates", "quarantined", "messages", "tool_calls", "tool_results")
DETAIL = 160


def _format(name: str) -> str:
    try:
        return checked_format(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files, folders or globs, also .gz and .zst; sources, such as mlflow:EXPERIMENT; or one YAML profile",
    )
    parser.add_argument(
        "--format",
        type=_format,
        metavar="FORMAT",
        help=f"how the logs are written: {', '.join((AUTO, *sorted(TRIED)))} or one of another wheel "
        "(default: auto, found out record by record)",
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
        "--outcomes",
        action="append",
        default=[],
        metavar="FILE",
        help="what was said of conversations later: CSV or JSON lines with id or session, value, kind and said; may be "
        "repeated (ingest.outcomes.paths; ingest.outcomes.fields names other columns)",
    )
    allow_option(
        parser,
        "--allow-quarantine",
        "ingest.allow_quarantine=true",
        "exit with 0 although nothing, or under half of the records, could be read",
    )
    parser.add_argument(
        "--forgotten",
        metavar="FILE",
        help="leave out who is listed there (forgotten.json of a work folder; a profile's own is always read)",
    )
    parser.add_argument("--full", action="store_true", help="read everything again, and replace what is in DIR")
    parser.add_argument("--dry-run", action="store_true", help="only say what sources have that is new")
    set_option(parser)
    parser.add_argument("--run-dir", metavar="DIR", help="with a profile: instead of its work_dir")
    parser.add_argument("--out", metavar="DIR", help="folder to write; what is in it stays and is added to")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Read new logs; with a profile, all of its logs, as the stage does."""
    has_profile = any(path.endswith(PROFILES) for path in options.paths)
    if not options.out and not (options.dry_run and has_profile):
        raise InputError("--out DIR is missing: the folder to write to")
    if has_profile:
        return _ingest_profile(options)
    from tracewheel.config.loading import load_ingest_config
    from tracewheel.traces.forgotten import NOBODY, read_forgotten_file
    from tracewheel.traces.incremental import ingest_new
    from tracewheel.traces.sources import fetch_new, located

    if not options.paths and not options.outcomes:
        raise InputError("nothing to read: give a PATH, or --outcomes FILE")
    options.paths = paths = located(options.paths, Path(f"{options.out}-sources"))
    if options.dry_run:
        return _waiting(paths)
    fetch_new(paths)
    config = load_ingest_config(paths, options.format, options.overrides, options.readers, options.outcomes)
    forgotten = read_forgotten_file(Path(options.forgotten)) if options.forgotten else NOBODY
    with _progress(config, options) as watch:
        report = ingest_new(config, Path(options.out), full=options.full, watch=watch, forgotten=forgotten)
    return _checked(config, {"out": options.out, **report})


def _ingest_profile(options: argparse.Namespace) -> dict[str, Any]:
    if len(options.paths) > 1 or any((options.format, options.full, options.readers, options.outcomes, options.forgotten)):
        raise InputError(f"{options.paths[0]}: a profile names its logs itself; give it alone, and settings with --set")
    from flows.setup import prepare_environment, resolve_config
    from tracewheel.core.store import produce_whole
    from tracewheel.traces.forgotten import read_forgotten
    from tracewheel.traces.ingest import ingest
    from tracewheel.traces.snapshot import take_snapshot
    from tracewheel.traces.sources import fetch_new

    config = resolve_config(options.paths[0], options.overrides, options.run_dir)
    config.require("ingest.paths")
    prepare_environment(None, debug=options.debug)
    if options.dry_run:
        return _waiting(config.ingest.paths)
    fetch_new(config.ingest.paths)
    snapshot = replace(take_snapshot(config.ingest), forgotten=read_forgotten(config.work_dir))
    report = produce_whole(Path(options.out), lambda out: ingest(config.ingest, out, snapshot))
    return _checked(config.ingest, {"out": options.out, **report})


def _checked(config: IngestConfig, result: dict[str, Any]) -> dict[str, Any]:
    """The result.

    Raises:
        DoubtfulData: too little was kept, and the settings do not allow it.
    """
    from tracewheel.traces.quarantine import shortfall

    if (short := shortfall(result)) and not config.allow_quarantine:
        raise DoubtfulData(f"{short}; mend the logs or read them as shown, or accept it with --allow-quarantine", result)
    return result


def _waiting(paths: Sequence[str]) -> dict[str, Any]:
    """What sources have that is new; nothing is kept of it."""
    from tracewheel.traces.sources import fetch_new

    found = fetch_new(paths, dry_run=True)
    lines = [f"{one.address}: {number(one.lines)} lines in {one.files} files, {number(one.bytes)} bytes\n" for one in found]
    return {"sources": [one._asdict() for one in found], "show": "".join(lines) or "none of these paths is a source\n"}


@contextlib.contextmanager
def _progress(config: IngestConfig, options: argparse.Namespace) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes read, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from tracewheel.traces.discovery import find_files

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done: None
        return
    sizes = [path.stat().st_size for path in find_files(config.paths, without=Path(options.out)).values()]
    columns = (TextColumn("ingest"), BarColumn(bar_width=30), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("ingest", total=sum(sizes))
        yield lambda done: bars.update(task, completed=done)


NOT_WHOLE = ("cut_turns", "failed_turns", "cut_prompts", "results_left_out")

WARNINGS = {
    "agent_first": "the agent speaks first",
    "tools_elsewhere": "tools inferred though the record offers some",
    "unread_text": "a long text unread",
}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """Counts, the most frequent reasons of the quarantine, and whether there is enough to go on with."""
    from tracewheel.traces.quarantine import frequent_reasons, shortfall

    out = Path(result["out"])
    rows = [("formats", counted(result["by_format"])), ("redacted", counted(result["redacted"]))]
    if result.get("skipped"):
        rows.append(
            ("not read", f"{len(result['skipped'])} files that are no logs: {one_line(', '.join(result['skipped']), 80)}")
        )
    added = result.get("added", result)
    if broken := {name.replace("_", " "): added[name] for name in NOT_WHOLE if added.get(name)}:
        rows.append(("not whole", counted(broken)))
    if added == {name: result[name] for name in added}:
        rows = [(name.replace("_", " "), number(result[name])) for name in COUNTS] + rows
        parts: list[Grid | Block] = []
    else:
        figures = [(name.replace("_", " "), number(added[name]), number(result[name])) for name in COUNTS]
        parts = [Grid(("", "this time", "in all"), figures)]
    if said := result.get("outcomes"):
        parts.append(outcomes_grid(said))
    if warned := {label: added[name] for name, label in WARNINGS.items() if added.get(name)}:
        rows.append(("kept, but", counted(warned)))
    if unasked := added.get("without_user"):
        what = "what was asked is not in the conversation: no task can be made of them"
        elsewhere = "→ where it stands outside the messages, name it as `prompt` of a mapping (docs/traces.md)"
        parts.append(Block(f"{number(unasked)} × kept without a user's message", [what, elsewhere]))
    first = ""
    if result["quarantined"]:
        whys = frequent_reasons(result, out / QUARANTINE_FILE, bool(options.readers))
        for why in whys:
            lines = [f"{why.file}:{why.line}: {one_line(why.detail, DETAIL)}".rstrip(": "), f"→ {why.advice}"]
            parts.append(Block(f"{why.count} × {why.reason}", lines))
        first = _place(options, whys[0].file, whys[0].line)
    look_at, tone = "", "good"
    if short := shortfall(result):
        look_at, tone = short, "bad"
    elif said and "unreadable" in said:
        bad = said["unreadable"]
        look_at, tone = f"rows without an outcome: {number(bad['rows'])}, the first {bad['first']}", "warning"
    elif not added["read"] and not (said and said.get("new")):
        look_at = "nothing new in these logs; --full reads them again"
    elif result["quarantined"]:
        look_at, tone = f"{number(result['quarantined'])} records could not be read: {out / QUARANTINE_FILE}", "warning"
    elif unasked:
        look_at, tone = f"{number(unasked)} traces are incomplete: they have no user's message", "warning"
    next = [f"tracewheel data explain {shlex.quote(first)}"] if first else []
    if tone != "bad":
        profile = next_profile(options)
        next.append(f"tracewheel curate {profile} --traces {shlex.quote(str(out))} --out {shlex.quote(f'{out}-curated')}")
    return Card(
        f"{number(result['kept'])} of {number(result['read'])} records kept, in {out}", rows, parts, look_at, tone, next
    )


def outcomes_grid(said: Mapping[str, Any]) -> Grid:
    """What was said of conversations later, and what became of it."""
    names = {
        "said": "said later",
        "new": "of them new",
        "waiting": "without their trace yet",
        "traces": "traces with some",
        "corrected": "traces with a corrected outcome",
        "too_late": "said too late to count",
    }
    rows = [(label, number(said[name])) for name, label in names.items() if said.get(name)]
    rows += [(f"of kind {kind}", number(count)) for kind, count in said.get("kinds", {}).items()]
    rows += [
        (f"{kind} agrees with the outcome", f"{counts['agree']} of {counts['both']}")
        for kind, counts in said.get("agreement", {}).items()
    ]
    return Grid(("outcomes", ""), rows)


def next_profile(options: argparse.Namespace) -> str:
    """The profile that an ingest was given; otherwise the user's own."""
    given = [path for path in options.paths if path.endswith(PROFILES)]
    return shlex.quote(given[0]) if given else "PROFILE.yaml"


def _place(options: argparse.Namespace, file: str, line: int) -> str:
    """FILE:LINE of a record as it can be typed: files are stored without the folders that they share."""
    from tracewheel.traces.discovery import find_files

    has_profile = any(path.endswith(PROFILES) for path in options.paths)
    path = find_files(options.paths).get(file) if options.paths and not has_profile else None
    if path is None:
        return ""
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


COMMAND = Command("ingest", "read logged traces; put aside what cannot be read", add_options, run, card, INGESTED)
