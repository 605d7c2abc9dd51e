"""`tracewheel curate`: tasks, splits and verified episodes of traces."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Command, Writes
from flows.console.arguments import (
    allow_option,
    curation_of,
    earlier_record,
    folder_of,
    leak_option,
    note,
    out_option,
    profile_options,
    profile_words,
)
from flows.console.look import Block, Card, Grid, counted, number, one_line, percent
from flows.console.stages import produced, stage_profile
from tracewheel.core.errors import DoubtfulData

if TYPE_CHECKING:
    from tracewheel.curation.agreement import Agreement


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--traces", required=True, metavar="DIR", help="output of ingest")
    parser.add_argument(
        "--earlier", metavar="DIR", help="an earlier curate's output or a run's folder: resume its splits, pass rates"
    )
    parser.add_argument("--splits", metavar="FILE", help="record of splits to carry: read where it exists, and written")
    parser.add_argument(
        "--reuse", metavar="DIR", help="replays of earlier curations, reused and added to; the output is the same"
    )
    parser.add_argument("--splits-lost", action="store_true", help="an earlier record is lost: rebuild it from the logs")
    leak_option(parser)
    allow_option(
        parser,
        "--allow-drift",
        "curation.allow_drift=true",
        "exit with 0 although under half of the episodes agree with their log",
    )
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Curate.

    Raises:
        DoubtfulData: too few episodes agree with their log, or no work earns too much of the reward.
        ConfigError: an objective of the rubric names a part that no verifier gives.
        LeakError: the splits leak.
    """
    config = stage_profile(options, "environment.kind")
    from tracewheel.config import CurateSections
    from tracewheel.core.store import place_copy
    from tracewheel.curation.agreement import Agreement
    from tracewheel.curation.curate import HowTo, curate
    from tracewheel.curation.curated_folder import SPLITS_FILE, TRAIN, load_tasks
    from tracewheel.curation.difficulty import KeptPassCounts
    from tracewheel.evaluation.idle_reward import idle_reward

    sections = CurateSections.of(config)
    traces, out = folder_of(options.traces, "--traces"), Path(options.out)
    folder = curation_of(folder_of(options.earlier, "--earlier")) if options.earlier else None
    counts = KeptPassCounts.read(folder) if folder else None
    record = earlier_record(options, folder)
    how = HowTo(reuse=Path(options.reuse) if options.reuse else None, say=lambda text: note(f"tracewheel: {text}"))
    result = produced(options, config, "curate", lambda place: curate(sections, traces, place, counts, record, how))
    if options.splits:
        place_copy(out / SPLITS_FILE, Path(options.splits))
    if not config.curation.allow_drift and (drift := Agreement.from_record(result["agreement"]).drifts()):
        raise DoubtfulData(f"{drift}; mend the environment, or accept it with --allow-drift", result)
    result["idle"] = idle_reward(config.rubric, load_tasks(out, TRAIN), config.audit.max_idle_reward)
    if reasons := result["idle"]["reasons"]:
        raise DoubtfulData(f"rubric: {'; '.join(reasons)}; {result['idle']['advice']}", result)
    return result


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """The agreement with the log first, then what the tasks are."""
    from tracewheel.curation.agreement import GOOD_AGREEMENT, Agreement
    from tracewheel.curation.curated_folder import SPLITS

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
    rows += [("" if place else "without a score", why) for place, why in enumerate(funnel.get("unscored_for", []))]
    if versions := result.get("versions"):
        rows.append(("other versions", versions["says"]))
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
    if idle := result.get("idle"):
        rows.append(("without any work", idle["says"]))
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
    profile = profile_words(options)
    next = [] if tone == "bad" else [f"tracewheel stage warm-start {profile} --curated {result['out']} --out data/warm_start"]
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


def _what_matters(result: Mapping[str, Any], agreement: Agreement) -> tuple[str, str]:
    from tracewheel.curation.agreement import GOOD_AGREEMENT, LEAST_AGREEMENT

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
    if why := result["funnel"].get("unscored_for"):
        return f"{result['funnel']['unscored']} episodes have no score; {why[0]}", "warning"
    if share := result.get("idle", {}).get("share"):
        return f"an episode without any work earns {percent(share)} of the full reward", "warning"
    success = result["deployed"]["held_out"]["success"]
    return f"to beat: the logged agent solves {percent(success)} of its held-out episodes", "good"


COMMAND = Command(
    "curate",
    "make tasks, splits and verified episodes of traces",
    add_options,
    run,
    card,
    Writes(
        ("tasks.parquet", "episodes.parquet", "report.json"),
        ("*.parquet", "sets/*.parquet", "evidence.json", "quality.html", "quality.json"),
    ),
)
