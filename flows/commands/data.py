"""`tracewheel data …`: commands about data sets, without a profile."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.console.encoding import clean
from tracewheel.core.errors import DataError

EXAMPLES_SHOWN = 10
Options = argparse.Namespace


def add_data_commands(commands: Any, exit_codes: str) -> None:
    """The command line of `data`."""
    summary = "compare, filter, record and report on data sets"
    group = commands.add_parser("data", help=summary, description=f"{summary}.", epilog=exit_codes)
    inner = group.add_subparsers(required=True, metavar="WHAT")

    def command(name: str, target: str, says: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = inner.add_parser(name, help=says, description=f"{says}.", epilog=exit_codes)
        parser.set_defaults(command=f"flows.commands.data:{target}")
        parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
        parser.add_argument("--debug", action="store_true", help="show stack traces")
        return parser

    diff = command("diff", "diff", "what changed between two versions: tasks and traces added, removed, labelled otherwise")
    diff.add_argument("before", metavar="A", help="output of curate or of ingest")
    diff.add_argument("after", metavar="B", help="a later one")
    diff.add_argument("--limit", type=int, default=100, metavar="N", help="entries of each list (default 100); 0: all")

    record = command("record", "record", "make a recorded environment of traces, for where no simulator exists")
    record.add_argument("traces", metavar="TRACES", help="output of ingest")
    record.add_argument("--tool-set", metavar="TEXT", help="only traces whose tool set has TEXT in its name")
    record.add_argument("--free-tool", dest="free_tools", action="append", default=[], metavar="NAME", help="never matched")
    record.add_argument("--world", choices=("measured", "shared", "separate"), default="measured", help="default: measured")
    record.add_argument("--out", required=True, metavar="DIR", help="folder to write; name it as environment.kind recorded:DIR")

    dry = command(
        "filter", "filter_dry_run", "how many tasks a filter would keep, and what each clause removes; changes nothing"
    )
    dry.add_argument("curated", metavar="CURATED", help="output of curate")
    dry.add_argument("filter", metavar="FILTER", help='as curation.filter, for example "0 < pass_rate < 0.6 and attempts >= 4"')

    report = command("report", "report", "a quality report of a curated data set, as a page and as JSON")
    report.add_argument("curated", metavar="CURATED", help="output of curate")
    report.add_argument("--traces", metavar="DIR", help="output of ingest that it was made from")
    report.add_argument("--out", required=True, metavar="DIR", help="folder for quality.html and quality.json")


def diff(options: Options) -> dict[str, Any]:
    """`tracewheel data diff`."""
    from tracewheel.curation.dataset_diff import diff_datasets

    limit = options.limit or None
    if limit is not None and limit < 0:
        raise DataError(f"--limit {limit}: a number of entries, or 0 for all")
    result = diff_datasets(_folder(options.before), _folder(options.after), limit=limit)
    return result if options.json else {"show": lambda: show_diff(result)}


def record(options: Options) -> dict[str, Any]:
    """`tracewheel data record`."""
    from tracewheel.core.files import read_table
    from tracewheel.core.store import produce_whole
    from tracewheel.environments.recorded.build import build_recording
    from tracewheel.environments.recorded.toolsets import tool_sets
    from tracewheel.traces.ingested_folder import TRACES_FOLDER

    traces = read_table(_folder(options.traces) / TRACES_FOLDER)
    if options.tool_set:
        chosen = tool_sets(traces).str.contains(re.escape(options.tool_set))
        if not chosen.any():
            raise DataError(f"--tool-set {options.tool_set}: no trace's tool set has that in its name")
        traces = traces[chosen]
    world = {"measured": None, "shared": True, "separate": False}[options.world]
    about = produce_whole(
        Path(options.out), lambda out: build_recording(traces, out, free_tools=options.free_tools, shared_world=world)
    )
    shown = {name: value for name, value in about.items() if name not in ("tools", "version")}
    return {"out": options.out, **shown, "environment": f"recorded:{options.out}"}


def report(options: Options) -> dict[str, Any]:
    """`tracewheel data report`."""
    from tracewheel.core.store import produce_whole
    from tracewheel.curation.quality.report import quality_report, write_quality
    from tracewheel.dashboard.files import write_quality_page

    def produce(out: Path) -> None:
        write_quality(data, out)
        write_quality_page(data, out)

    data = quality_report(_folder(options.curated), _folder(options.traces) if options.traces else None)
    produce_whole(Path(options.out), produce)
    return {"out": options.out, "funnel": data["funnel"]}


def filter_dry_run(options: Options) -> dict[str, Any]:
    """`tracewheel data filter`."""
    from tracewheel.core.files import read_table
    from tracewheel.curation.curated_folder import TASKS_FILE
    from tracewheel.curation.filters import Filter, dry_run_by_split

    wanted = Filter(options.filter)
    tasks = read_table(_folder(options.curated) / TASKS_FILE)
    result = {"curated": options.curated, "filter": options.filter, **dry_run_by_split(wanted, tasks)}
    return result if options.json else {"show": lambda: show_filter(result)}


def show_filter(result: Mapping[str, Any]) -> None:
    """Print what a filter keeps, and what each of its clauses removes."""
    from rich.table import Table
    from rich.text import Text

    from flows.console.look import result_console, say

    console = result_console()
    table = Table(title=f"{result['kept']} of {result['tasks']} tasks are kept")
    for heading in ("", "tasks", "kept"):
        table.add_column(heading)
    for clause in result["clauses"]:
        table.add_column(Text(f"removed by {clause['clause']}"), justify="right")
    for name, part in {"all": result, **result["splits"]}.items():
        table.add_row(name, str(part["tasks"]), str(part["kept"]), *(_removed(clause) for clause in part["clauses"]))
    console.print(table)
    console.print("alone: no other clause removes them; unknown: a value that the clause compares is missing", soft_wrap=True)
    say(
        console,
        next=[
            f"tracewheel curate PROFILE.yaml --traces DIR --set {shlex.quote('curation.filter=' + result['filter'])} --out DIR"
        ],
    )


def _removed(clause: Mapping[str, Any]) -> str:
    """How many tasks a clause removes."""
    if not clause["removes"]:
        return "0"
    unknown = f", {clause['unknown']} unknown" if clause["unknown"] else ""
    return f"{clause['removes']} ({clause['removes_alone']} alone{unknown})"


def show_diff(result: Mapping[str, Any]) -> None:
    """Print a table of the counts, and the first few changes."""
    from rich.table import Table

    from flows.console.look import result_console

    console = result_console()
    table = Table(title=f"{result['before']} → {result['after']}" + (": the same" if result["same"] else ""))
    for heading in ("", "before", "after", "added", "removed", "reworded", "changed", "labels"):
        table.add_column(heading)
    for name, counts in result["counts"].items():
        part = result[name]
        labels = ", ".join(f"{label} {count}" for label, count in part["by_label"].items())
        numbers = (counts["before"], counts["after"], *(part[what] for what in ("added", "removed", "reworded", "changed")))
        table.add_row(name, *map(str, numbers), labels)
    console.print(table)
    for name in result["counts"]:
        for line in _lines(result[name]["lists"]):
            console.print(clean(f"{name}: {line}"), markup=False, soft_wrap=True)


def _lines(lists: Mapping[str, list[Any]]) -> list[str]:
    """The first entries of each list, in words."""
    lines = []
    for what, entries in lists.items():
        for entry in entries[:EXAMPLES_SHOWN]:
            match what:
                case "changed":
                    changes = [f"{label} {pair[0]} → {pair[1]}" for label, pair in entry.items() if label != "id"]
                    lines.append(f"changed {entry['id']}: {', '.join(changes)}")
                case "reworded":
                    lines.append(f"reworded {entry['before']} → {entry['after']}")
                case _:
                    lines.append(f"{what} {entry}")
    return lines


def _folder(path: str) -> Path:
    if not Path(path).is_dir():
        raise DataError(f"{path}: no such folder")
    return Path(path)
