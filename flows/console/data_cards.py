"""What the commands about data say: ingest, curate, `make-tasks`, `export-traces`, `data record` and `data report`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.console.look import Block, Card, Grid, counted, number, one_line, percent, rows_of
from tracewheel.curation.agreement import GOOD_AGREEMENT, LEAST_AGREEMENT, Agreement
from tracewheel.traces.ingested_folder import QUARANTINE_FILE
from tracewheel.traces.shortfall import frequent_reasons, shortfall

Options = argparse.Namespace
Result = Mapping[str, Any]
COUNTS = ("read", "kept", "duplicates", "quarantined", "messages", "tool_calls", "tool_results")
SPLITS = ("train", "validation", "held_out", "harder")
DETAIL = 160


def ingest_card(options: Options, result: Result) -> Card:
    """Counts, the most frequent reasons of the quarantine, and whether there is enough to go on with."""
    out = Path(result["out"])
    rows = [("formats", counted(result["by_format"])), ("redacted", counted(result["redacted"]))]
    if result.get("skipped"):
        rows.append(
            ("not read", f"{len(result['skipped'])} files that are no logs: {one_line(', '.join(result['skipped']), 80)}")
        )
    added = result.get("added", result)
    if added == {name: result[name] for name in added}:
        rows = [(name.replace("_", " "), number(result[name])) for name in COUNTS] + rows
        parts: list[Grid | Block] = []
    else:
        figures = [(name.replace("_", " "), number(added[name]), number(result[name])) for name in COUNTS]
        parts = [Grid(("", "this time", "in all"), figures)]
    first = ""
    if result["quarantined"]:
        whys = frequent_reasons(result, out / QUARANTINE_FILE)
        for why in whys:
            lines = [f"{why.file}:{why.line}: {one_line(why.detail, DETAIL)}".rstrip(": "), f"→ {why.advice}"]
            parts.append(Block(f"{why.count} × {why.reason}", lines))
        first = _place(options, whys[0].file, whys[0].line)
    look_at, tone = "", "good"
    if short := shortfall(result):
        look_at, tone = short, "bad"
    elif not added["read"]:
        look_at = "nothing new in these logs; --full reads them again"
    elif result["quarantined"]:
        look_at, tone = f"{number(result['quarantined'])} records could not be read: {out / QUARANTINE_FILE}", "warning"
    next = [f"tracewheel ingest --explain {shlex.quote(first)}"] if first else []
    if tone != "bad":
        profile = next_profile(options)
        next.append(f"tracewheel curate {profile} --traces {shlex.quote(str(out))} --out {shlex.quote(f'{out}-curated')}")
    return Card(
        f"{number(result['kept'])} of {number(result['read'])} records kept, in {out}", rows, parts, look_at, tone, next
    )


def next_profile(options: Options) -> str:
    """The profile that an ingest was given; otherwise the user's own."""
    given = [path for path in options.paths if path.endswith((".yaml", ".yml"))]
    return shlex.quote(given[0]) if given else "PROFILE.yaml"


def _place(options: Options, file: str, line: int) -> str:
    """FILE:LINE of a record as it can be typed: files are stored without the folders that they share."""
    from tracewheel.traces.discovery import find_files

    if any(path.endswith((".yaml", ".yml")) for path in options.paths):
        return ""
    path = find_files(options.paths).get(file) if options.paths else None
    if path is None:
        return ""
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


def curate_card(options: Options, result: Result) -> Card:
    """The agreement with the log first, then what the tasks are."""
    funnel, agreement = result["funnel"], Agreement.from_record(result["agreement"])
    share = agreement.share
    rows = [("as logged", f"{agreement.agreeing} of {agreement.episodes} episodes ({percent(share)}) when they are replayed")]
    if agreement.reasons:
        rows.append(("", counted(agreement.reasons)))
    if recorded := funnel.get("recorded"):
        rows.append((f"log, by {recorded['by']}", counted(recorded["traces"])))
        if any(recorded["left_out"].values()):
            rows.append(("left out", counted(recorded["left_out"])))
    if funnel["dropped_traces"]:
        rows.append(("traces left out", counted(funnel["dropped_traces"])))
    dropped: dict[str, int] = {}
    for why in funnel["dropped_tasks"].values():
        dropped[why] = dropped.get(why, 0) + 1
    if dropped:
        rows.append(("tasks left out", counted(dropped)))
    rows += [
        ("tasks", f"{funnel['tasks_used']} used of {funnel['tasks']}, {funnel['tasks_unused']} in reserve"),
        ("failures", counted(result["labels"].get("failures", {}))),
        ("training sets", counted(result["sets"].get("rows", {}))),
    ]
    rows += [("" if place else "the logs lack", said) for place, said in enumerate(result.get("counts", {}).get("says", []))]
    splits = [
        (
            name.replace("_", "-"),
            number(result["splits"][name]["tasks"]),
            number(result["deployed"][name]["episodes"]),
            number(result["deployed"][name]["unscored"]),
            percent(result["deployed"][name]["success"]),
        )
        for name in SPLITS
    ]
    parts: list[Grid | Block] = []
    if share is not None and share < GOOD_AGREEMENT and agreement.first_difference:
        parts.append(_difference(agreement))
    parts.append(Grid(("split", "tasks", "episodes", "unscored", "logged agent's success"), splits))
    look_at, tone = _what_matters(result, agreement)
    profile = shlex.join([options.config, *(word for setting in options.overrides for word in ("--set", setting))])
    next = [] if tone == "bad" else [f"tracewheel warm-start {profile} --curated {result['out']} --out data/warm_start"]
    return Card(
        f"{funnel['tasks_used']} tasks of {funnel['traces']} traces in {result['out']}",
        rows,
        parts,
        look_at,
        tone,
        next,
    )


def _difference(agreement: Agreement) -> Block:
    first = agreement.first_difference
    assert first is not None
    replayed = "no reply: the log has a reply to no call" if first.replayed is None else first.replayed
    return Block(
        "The first reply that is not as logged",
        [
            f"trace {first.trace}, turn {first.turn}: {one_line(f'{first.call}({first.arguments})')}",
            f"logged:   {first.logged}",
            f"replayed: {replayed}",
        ],
    )


def _what_matters(result: Result, agreement: Agreement) -> tuple[str, str]:
    if result["leaks"]["found"]:
        return f"every figure is in doubt: {result['leaks']['says']}", "bad"
    share = agreement.share
    if share is None:
        return "no episode could be replayed", "bad"
    if share < LEAST_AGREEMENT:
        return f"only {percent(share)} of the episodes agree with their log: the environment is not the world of the log", "bad"
    if share < GOOD_AGREEMENT:
        return f"{percent(1 - share)} of the episodes do not agree with their log when they are replayed", "warning"
    if not result["sets"].get("rows", {}).get("demonstrations"):
        return (
            "no demonstration for a warm start: no success in the training split that counts (curation.sets.sources)",
            "warning",
        )
    success = result["deployed"]["held_out"]["success"]
    return f"to beat: the logged agent solves {percent(success)} of its held-out episodes", "good"


def recording_card(options: Options, result: Result) -> Card:
    """A recorded environment."""
    rows = [
        (name.replace("_", " "), number(value))
        for name, value in result.items()
        if isinstance(value, int | float | str | None) and name not in ("out", "environment")
    ]
    return Card(
        f"Recorded environment in {result['out']}",
        rows,
        look_at=f"name it in the profile: environment.kind: {result['environment']}",
        next=[
            f"tracewheel curate PROFILE.yaml --traces {options.traces} --set environment.kind={result['environment']} --out DIR"
        ],
    )


def quality_card(options: Options, result: Result) -> Card:
    """A quality report."""
    rows = [
        (
            step["name"],
            f"{number(step['count'])} {step['unit']}" + (f" (lost: {counted(step['lost'])})" if step["lost"] else ""),
        )
        for step in result["funnel"]
    ]
    return Card(f"Quality report in {result['out']}", rows, look_at=f"open {Path(result['out']) / 'quality.html'}")


def keys_card(options: Options, result: Result) -> Card:
    """The keys of dvc.yaml's stages."""
    rows = [(stage, str(Path(result["out"]) / f"{stage}.json")) for stage in result["stages"]]
    return Card(f"What each stage of dvc.yaml depends on, in {result['out']}", rows, next=["dvc repro"])


def figures_card(options: Options, result: Result) -> Card:
    """The figures that DVC shows."""
    rows = [
        (f"{group} {name}".replace("_", " "), number(value))
        for group in ("gate", "train", "cost")
        for name, value in result[group].items()
    ]
    rates = [
        (f"{policy} {name}".replace("_", " "), percent(v)) for policy, of in result["eval"].items() for name, v in of.items()
    ]
    return Card(f"Figures in {result['out']}", [*rates, *rows], next=["dvc metrics diff", "dvc plots show"])


def make_tasks_card(options: Options, result: Result) -> Card:
    return Card(
        f"{number(result['tasks'])} tasks of {result['environment']} written to {result['out']}",
        rows_of({name: ", ".join(f"{part} {count}" for part, count in result[name].items()) for name in ("families", "tiers")}),
        look_at="nobody has tried them: set curation.min_attempts to 0",
        next=[f"tracewheel ingest {result['out']} --out DIR"],
    )
