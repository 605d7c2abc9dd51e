"""`tracewheel audit`: how often the graders of a profile accept wrong episodes and refuse right ones."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError, WeakGrader

if TYPE_CHECKING:
    from rich.table import Table

WORST = 8


def add_audit_command(parser: argparse.ArgumentParser) -> None:
    """The options of `audit` beside those of every command with a profile."""
    parser.add_argument(
        "--curated", metavar="DIR", help="output of curate: audit its tasks (default: the environment's generator)"
    )
    parser.add_argument("--split", default="held_out", help="with --curated: its split (default held_out)")
    parser.add_argument("--verifier", metavar="KIND", help="another verifier to audit on these tasks, as module:Class")
    parser.add_argument("--run", metavar="ID", help="a complete run to note the result with: record, MLflow and lineage")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="folder for audit.json and audit.html; replaced if it exists"
    )


def audit(options: argparse.Namespace) -> dict[str, Any]:
    """Audit the verifiers that decide success.

    Raises:
        DataError: there are no tasks, no solution of any is known, or there is no such run.
        WeakGrader: a verifier is wrong more often than the profile's `audit` allows, or does not repeat itself.
    """
    from flows.setup import prepare_environment, resolve_config

    config = resolve_config(options.config, options.overrides, options.run_dir)
    prepare_environment(config.work_dir, debug=options.debug)
    from tracewheel.config import AuditSections
    from tracewheel.core.store import produce_whole
    from tracewheel.curation.curated_folder import load_tasks
    from tracewheel.dashboard.files import write_audit_page
    from tracewheel.evaluation.audit.audit import audit, generated_tasks, tasks_to_audit
    from tracewheel.evaluation.audit.known import logged_solutions

    sections, solutions = AuditSections.of(config), {}
    if options.curated:
        from flows.console.arguments import folder_of

        curated = folder_of(options.curated, "--curated")
        tasks = tasks_to_audit(sections, load_tasks(curated, options.split))
        solutions = logged_solutions(curated, tasks)
        if not tasks:
            raise DataError(f"--curated {curated}: the split {options.split} has no tasks")
    else:
        config.require("environment.kind")
        tasks = generated_tasks(sections)

    def produce(out: Path) -> dict[str, Any]:
        made = audit(sections, tasks, out, solutions, options.verifier, say=lambda text: print(text, file=sys.stderr))
        write_audit_page(made, out)
        return made

    result = {**produce_whole(Path(options.out), produce), "out": options.out}
    if options.run:
        from tasks.records.audit import note_audit

        note_audit(config, options.run, Path(options.out))
    graders = [*result["verifiers"].values(), *result["judges"].values()]
    failed = [f"{grader['kind']} {reason}" for grader in graders for reason in grader["reasons"]]
    shown = result if options.json else {"show": lambda: show_audit(result)}
    if failed:
        more = f"; and {len(failed) - WORST} more" if len(failed) > WORST else ""
        raise WeakGrader("; ".join(failed[:WORST]) + more, shown)
    return shown


def show_audit(result: dict[str, Any]) -> None:
    """Print a table of the verifiers, and below it where one fails."""
    from rich.table import Table

    from flows.console.look import result_console

    console = result_console()
    table = Table(title=f"Audit of graders on {result['tasks']} tasks: {result['verdict']}")
    for heading in (
        "verifier",
        "false accepts",
        "false rejects",
        "unscored",
        "doubtful",
        "exploitable at most",
        "again the same",
    ):
        table.add_column(heading)
    for found in result["verifiers"].values():
        again = found["repeats"]
        table.add_row(
            found["kind"],
            rate_text(found["false_accept"]),
            rate_text(found["false_reject"]),
            str(found["unscored"]),
            str(found["doubtful"]),
            f"{found['exploitable']['upper']:.1%} of tasks",
            "no" if any(again["differ"].values()) else "yes" if not again["error"] else "not tried",
        )
    console.print(table)
    if result["judges"]:
        console.print(judges_table(result["judges"]))
    for found in (*result["verifiers"].values(), *result["judges"].values()):
        for reason in found["reasons"][:WORST]:
            console.print(f"{found['kind']} {reason}", markup=False, soft_wrap=True)
    console.print(f"{result['out']}/audit.html has each kind of probe, and examples", markup=False, soft_wrap=True)


def judges_table(judges: dict[str, Any]) -> Table:
    """A row for each judge: what it tells apart, what flips its verdicts, and how often a text for it wins."""
    from rich.table import Table

    changes = list(dict.fromkeys(change for found in judges.values() for change in found["flips"]))
    table = Table(title="Judges")
    for heading in ("judge", "rubric", "tells right from wrong", *(f"flips: {change}" for change in changes), "talked into it"):
        table.add_column(heading)
    for found in judges.values():
        flips = (swayed_text(found["flips"].get(change)) for change in changes)
        rubrics = " and ".join(found["rubrics"]).replace("_", " ")
        table.add_row(found["kind"], rubrics, swayed_text(found["tells"]), *flips, swayed_text(found["injected"]))
    return table


def swayed_text(rate: dict[str, Any] | None) -> str:
    """As in `2 of 20: 10.0% (2.8% to 30.1%)`; a dash where nothing was to be seen."""
    if not rate or rate["rate"] is None:
        return "–"
    return f"{rate['swayed']} of {rate['tasks']}: {rate['rate']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"


def rate_text(rate: dict[str, Any]) -> str:
    """As in `3 of 400: 0.8% (0.3% to 2.2%)`."""
    return f"{rate['wrong']} of {rate['probes']}: {rate['rate']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"
