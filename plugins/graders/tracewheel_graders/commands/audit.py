"""`tracewheel audit`: how often the graders of a profile accept wrong episodes and refuse right ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, ConfigError, DataError, WeakGrader, Writes, profile_of, profile_options, profile_words

if TYPE_CHECKING:
    from tracewheel import Block, Card, Grid

WORST = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument(
        "--curated", metavar="DIR", help="output of curate: audit its tasks (default: the environment's generator)"
    )
    parser.add_argument("--split", default="held_out", help="with --curated: its split (default held_out)")
    parser.add_argument("--verifier", metavar="KIND", help="another verifier to audit on these tasks, as module:Class")
    parser.add_argument("--run", metavar="ID", help="a complete run to note the result with: record, MLflow and lineage")
    parser.add_argument("--out", metavar="DIR", help="folder for audit.json and audit.html; replaced if it exists")
    judge = parser.add_argument_group("measure the rubric's judge by people's labels instead")
    judge.add_argument("--labelled", metavar="FILE", help="JSON lines: messages, label (pass or fail), and task")
    judge.add_argument("--held-back", action="store_true", help="the judge of evaluation.rubric, not that of rubric")
    judge.add_argument("--pass-mark", type=float, default=1.0, metavar="X", help="the total that is a pass (default: 1)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Audit the verifiers that decide success, or measure the judge.

    Raises:
        ConfigError: the rubric has no judge.
        DataError: there are no tasks, no solution of any is known, there is no such run, or a label is damaged.
        WeakGrader: a verifier is wrong more often than the profile's `audit` allows, or does not repeat itself.
    """
    if options.labelled:
        return _measure_judge(options)
    if not options.out:
        raise DataError("--out DIR is missing: the folder for audit.json and audit.html")
    config = profile_of(options, prefect=True)
    from tracewheel import (
        AuditSections,
        curated_folder,
        load_tasks,
        log_run,
        logged_solutions,
        note_audit,
        produce_whole,
        write_audit_page,
    )
    from tracewheel_graders.audit.audit import audit, generated_tasks, tasks_to_audit

    sections, solutions = AuditSections.of(config), {}
    if options.curated:
        curated = curated_folder(options)
        tasks = tasks_to_audit(sections, load_tasks(curated, options.split))
        solutions = logged_solutions(curated, tasks)
        if not tasks:
            raise DataError(f"--curated {curated}: the split {options.split} has no tasks; it has {_splits_of(curated)}")
    else:
        config.require("environment.kind")
        tasks = generated_tasks(sections)

    def produce(out: Path) -> dict[str, Any]:
        made = audit(sections, tasks, out, solutions, options.verifier, say=_note)
        write_audit_page(made, out)
        return made

    result = {**produce_whole(Path(options.out), produce), "out": options.out}
    if options.run:
        note_audit(config, options.run, Path(options.out))
        logged = log_run(Path(config.work_dir) / options.run, config.tracking)
        if logged.waits:
            _note(f"MLflow: {logged.reason}; `tracewheel runs sync` delivers it")
    graders = [*result["verifiers"].values(), *result["judges"].values()]
    failed = [f"{grader['kind']} {reason}" for grader in graders for reason in grader["reasons"]]
    failed += (f"rubric: {reason}; {result['idle']['advice']}" for reason in result["idle"].get("reasons", ()))
    if failed:
        more = f"; and {len(failed) - WORST} more" if len(failed) > WORST else ""
        raise WeakGrader("; ".join(failed[:WORST]) + more, result)
    return result


def _splits_of(curated: Path) -> str:
    from tracewheel import read_table

    counts = read_table(curated / "tasks.parquet", ("split",))["split"].value_counts()
    return ", ".join(f"{name} ({n})" for name, n in counts.items())


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure_judge(options: argparse.Namespace) -> dict[str, Any]:
    from tracewheel import EpisodeVerifier, make_verifier
    from tracewheel_graders.judges.calibration import calibration, judge_labelled, read_labelled

    if options.out:
        raise DataError("--labelled: figures go to standard output; leave --out away, and use --json > FILE")
    config = profile_of(options)
    rubric = config.evaluation.rubric if options.held_back else config.rubric
    judges = [term.spec for term in rubric.verifiers if term.kind == "judge"] if rubric else []
    if not judges:
        raise ConfigError(f"{'evaluation.rubric' if options.held_back else 'rubric'}: has no verifier of kind 'judge'")
    verifier = make_verifier(judges[0])
    assert isinstance(verifier, EpisodeVerifier)
    return calibration(judge_labelled(verifier, read_labelled(Path(options.labelled)), options.pass_mark))


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """A table of the verifiers, one of the judges, and where one fails; or how far a judge agrees with labels."""
    if "kappa" in result:
        return _judge_card(options, result)
    from tracewheel import Block, Card, Grid

    headings = ("verifier", "false accepts", "false rejects", "unscored", "doubtful", "exploitable at most", "again the same")
    rows = [
        (
            found["kind"],
            rate_text(found["false_accept"]),
            rate_text(found["false_reject"]),
            str(found["unscored"]),
            str(found["doubtful"]),
            f"{found['exploitable']['upper']:.1%} of tasks",
            "no" if any(found["repeats"]["differ"].values()) else "not tried" if found["repeats"]["error"] else "yes",
        )
        for found in result["verifiers"].values()
    ]
    parts: list[Grid | Block] = [Grid(headings, rows, figures=False)]
    if judges := result["judges"]:
        changes = list(dict.fromkeys(change for found in judges.values() for change in found["flips"]))
        of_judge = ("judge", "rubric", "tells right from wrong", *(f"flips: {change}" for change in changes), "talked into it")
        judged = [
            (
                found["kind"],
                " and ".join(found["rubrics"]).replace("_", " "),
                swayed_text(found["tells"]),
                *(swayed_text(found["flips"].get(change)) for change in changes),
                swayed_text(found["injected"]),
            )
            for found in judges.values()
        ]
        parts += [Block("Judges", []), Grid(of_judge, judged, figures=False)]
    graders = (*result["verifiers"].values(), *judges.values())
    parts.append(Block("", [f"{found['kind']} {reason}" for found in graders for reason in found["reasons"][:WORST]]))
    figures = [("without any work", idle["says"])] if (idle := result.get("idle")) else []
    says = f"{result['out']}/audit.html has each kind of probe, and examples"
    return Card(f"Audit of graders on {result['tasks']} tasks: {result['verdict']}", figures, parts, says)


def _judge_card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card, Grid

    kappa, bias = result["kappa"], result["length_bias"]
    table = [
        [name.replace("_", " "), _percent(result[name]["rate"]), "{:.1%} to {:.1%}".format(*result[name]["interval"])]
        for name in ("agreement", "false_accept", "false_reject")
    ]
    shown = "–" if kappa["value"] is None else f"{kappa['value']:.2f}"
    between = "–" if kappa["interval"] is None else "{:.2f} to {:.2f}".format(*kappa["interval"])
    rows = [(name.replace("_", " "), f"{result[name]:,}") for name in ("labelled", "without_verdict", "flagged")]
    rows.append(("length bias", "–" if bias is None else f"{bias['correlation']:+.2f} (p = {bias['p_value']:.2g})"))
    grid = Grid(("figure", "value", "95% interval"), [*table, ["Cohen's kappa", shown, between]])
    return Card("The judge and the labels", rows, [grid], next=[f"tracewheel retrain {profile_words(options)}"])


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def swayed_text(rate: Mapping[str, Any] | None) -> str:
    """As in `2 of 20: 10.0% (2.8% to 30.1%)`; a dash where nothing was to be seen."""
    if not rate or rate["rate"] is None:
        return "–"
    return f"{rate['swayed']} of {rate['tasks']}: {rate['rate']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"


def rate_text(rate: Mapping[str, Any]) -> str:
    """As in `3 of 400: 0.8% (0.3% to 2.2%)`."""
    return f"{rate['wrong']} of {rate['probes']}: {rate['rate']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"


COMMAND = Command(
    "audit",
    "how often graders accept wrong episodes and refuse right ones, and how far a judge agrees with people",
    add_options,
    run,
    card,
    Writes(("audit.json", "audit.html")),
)
