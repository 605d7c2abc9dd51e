"""A month of a deployed agent whose outcomes come late: 80% 1 to 5 days after the conversation, 5% corrected later.

    python benchmarks/late_outcomes.py                       # 30 days of 100 conversations, about five minutes
    python benchmarks/late_outcomes.py --train --out benchmarks/results/late_outcomes.md     # twenty minutes more

Late outcomes come by three roads: the conversation is logged again with its reward, a CSV is written anew each night, and
`serve` logs feedback. Each night `ingest_new` runs in a process of its own and is killed (SIGKILL) at random moments before one
goes to its end. Each night's counts are compared with a book that is kept apart. At the month's end the stored outcomes, and
what curation makes of them in a recorded environment, are compared with the same month whose outcomes were there at once.

With `--train` the tiny base imitates, after chosen nights, what either month knows to be right by then, and both policies play
the same new tasks in the workspace itself. What an outcome says in the end is what the workspace's verifier says; a corrected
one was wrong until then.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy
import pandas

LATE, CORRECTED, LONGEST = 0.8, 0.05, 5
TASKS, START = 120, datetime(2026, 10, 1, 8, tzinfo=UTC)
NIGHT = """
import sys
from tracewheel.config import IngestConfig
from tracewheel.traces.incremental import ingest_new
logs, said, out = sys.argv[1:]
ingest_new(IngestConfig.model_validate({"paths": [logs], "outcomes": {"paths": [said]}}), __import__("pathlib").Path(out))
"""


ABOUT_TRAINED = """After a night the tiny base imitates what either month knows to be right by then (the warm start of
`configs/tiny.yaml`, seeds 0 and 1), and both policies play 240 new tasks of the workspace, five episodes each. Conversations:
late and at once. Differences: late minus at once, with 95% intervals over tasks."""


@dataclass
class Month:
    """What happens on which day.

    Attributes:
        logs: New lines of the log, by day.
        said: Statements by day: trace, value, and the road that they take.
        truth: The outcome of each trace in the end.
        at_once: The lines of the same month with all outcomes there at once.
    """

    logs: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    said: dict[int, list[tuple[str, float, str]]] = field(default_factory=lambda: defaultdict(list))
    truth: dict[str, float] = field(default_factory=dict)
    at_once: list[dict[str, Any]] = field(default_factory=list)


NIGHTS, SEEDS, NEW_TASKS = (5, 10, 20, 30), (0, 1), 240


def month(days: int, a_day: int, drawn: random.Random) -> Month:
    """Draw a month; the last outcomes come days after its end."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # the repository, for `data`
    from data.workspace_logs import TRAINED_TIERS, log_record
    from tracewheel.core.types import content_hash
    from tracewheel.environments.workspace.tasks import FAMILIES, make_task

    strata = [(family, tier) for tier in TRAINED_TIERS for family in FAMILIES]
    pool = [make_task(*strata[number % len(strata)], drawn) for number in range(TASKS)]
    made = Month()
    for number in range(days * a_day):
        day, name = number // a_day, f"conv-{number}"
        task = drawn.choice(pool)
        moment = START + timedelta(days=day, seconds=number % a_day * 60)
        record = {}
        while "reward" not in record:  # the log's own is left out of three in ten
            record = log_record(task, f"user-{pool.index(task)}", f"s-{number}", moment, drawn)
        truth = record["reward"]
        record = {key: value for key, value in record.items() if key not in ("environment", "reward")}
        record |= {"id": name, "task_id": content_hash([task.id])}
        corrected = drawn.random() < CORRECTED
        value = 1.0 - truth if corrected else truth
        late = drawn.random() < LATE
        told = day + drawn.randint(1, LONGEST) if late else day
        if late:
            made.said[told].append((name, value, drawn.choice(["log", "csv", "serve"])))
        made.logs[day].append(record if late else record | {"reward": value})
        if corrected:
            made.said[told + drawn.randint(1, 3)].append((name, truth, drawn.choice(["csv", "serve"])))
        made.truth[name] = truth
        made.at_once.append(record | {"reward": truth})
    return made


def play(made: Month, folder: Path, drawn: random.Random, kept: Sequence[int] = ()) -> dict[str, Any]:
    """Live through the month; returns the kills and the nights, after checking each night's counts.

    The store is copied as it is after each of the nights `kept`, counted from 1, to `late-NIGHT`.
    """
    logs, said, out = folder / "logs", folder / "said.csv", folder / "ingested"
    logs.mkdir()
    records = {record["id"]: record for of_day in made.logs.values() for record in of_day}
    first: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    facts = {"nights": 0, "kills": 0, "seconds": 0.0, "said": 0, "corrected": 0}
    usual = 3.0
    for day in range(max(made.said) + 1):
        lines = list(made.logs[day])
        first |= {record["id"]: record["reward"] for record in lines if "reward" in record}
        for name, value, road in made.said[day]:
            at = (START + timedelta(days=day)).isoformat()
            if road == "log":
                lines.append(records[name] | {"reward": value})
            elif road == "csv":
                rows.append({"trace_id": name, "value": value, "kind": "verified", "said": at})
            else:
                lines.append({"type": "tracewheel.outcome", "id": name, "value": value, "kind": "verified", "said": at})
            facts["said"] += 1
            facts["corrected"] += first.setdefault(name, value) != value
        (logs / f"day-{day:02d}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        drawn.shuffle(rows)
        with said.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["trace_id", "value", "kind", "said"])
            writer.writeheader()
            writer.writerows(rows)
        command = [sys.executable, "-c", NIGHT, str(logs), str(said), str(out)]
        for _ in range(drawn.randint(0, 2) if rows else 0):
            process = subprocess.Popen(command)
            time.sleep(drawn.uniform(0.3, 1.05) * usual)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                facts["kills"] += 1
            process.wait()
        started = time.monotonic()
        if rows:
            subprocess.run(command, check=True)
            usual = time.monotonic() - started
            facts["seconds"] = round(facts["seconds"] + usual, 1)
            check_night(out, facts, len(first))
            facts["nights"] += 1
        if day + 1 in kept:
            shutil.copytree(out, folder / f"late-{day + 1}")
    return facts


def check_night(out: Path, facts: dict[str, Any], known: int) -> None:
    """Compare a night's counts with the book.

    Raises:
        AssertionError: they differ.
    """
    report = json.loads((out / "report.json").read_text())
    counts = report["outcomes"]
    assert report["read"] == report["kept"] + report["duplicates"] + report["quarantined"], report
    found = {"said": counts["said"], "corrected": counts["corrected"], "waiting": counts["waiting"]}
    assert found == {"said": facts["said"], "corrected": facts["corrected"], "waiting": 0}, (found, facts)
    stored = pandas.read_parquet(out / "traces.parquet", columns=["outcome"])["outcome"].notna().sum()
    assert stored == known, (stored, known)


def ingested_at_once(lines: list[dict[str, Any]], folder: Path) -> Path:
    """The folder into which a month whose outcomes were there at once is ingested."""
    from tracewheel.config import IngestConfig
    from tracewheel.traces.incremental import ingest_new

    log = folder.with_suffix(".jsonl")
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ingest_new(IngestConfig(paths=(str(log),)), folder)
    return folder


def success(curated_folder: Path, folder: Path, seed: int) -> tuple[str, numpy.ndarray]:
    """Train the tiny base on a curated folder and play the new tasks.

    Returns:
        The adapter's digest, and each task's share of successes over one greedy and four sampled episodes, [tasks].
    """
    from tracewheel.config import EvaluateSections, WarmStartSections
    from tracewheel.config.loading import load_config
    from tracewheel.core.fingerprint import digest_of
    from tracewheel.evaluation.evaluate import evaluate
    from tracewheel.learner.warm_start.stage import warm_start
    from tracewheel.policy.adapters import policy_of

    config = load_config("configs/tiny.yaml", [f"seed={seed}"])
    trained, played = folder / f"trained-{seed}", folder / f"played-{seed}"
    for place in (trained, played):
        place.mkdir(parents=True)
    warm_start(WarmStartSections.of(config), curated_folder, trained, "verified")
    policy = policy_of(trained, config.policy.base)
    evaluate(EvaluateSections.of(config), policy, new_tasks(), played, samples=4, seed=seed)
    found = pandas.read_parquet(played / "results.parquet").sort_values("task_id")
    share = (found["greedy"] + found["sampled_successes"]) / (1 + found["sampled_attempts"])
    return digest_of(trained / "adapter"), share.to_numpy()


def new_tasks() -> list[Any]:
    """Tasks of the month's families and tiers that are not the month's."""
    from data.workspace_logs import TRAINED_TIERS
    from tracewheel.environments.workspace.tasks import FAMILIES, make_task

    drawn = random.Random("new tasks")
    strata = [(family, tier) for tier in TRAINED_TIERS for family in FAMILIES]
    made = (make_task(*strata[number % len(strata)], drawn) for number in range(10 * NEW_TASKS))
    return list({task.id: task for task in made}.values())[:NEW_TASKS]


def trained(made: Month, folder: Path, nights: list[int], a_day: int) -> str:
    """Success of both months' policies after each of the nights, as a table."""
    rows = ["| night | outcomes known | right ones taught | wrong ones taught | success, late | at once | difference, points |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|")
    right = {name for name, value in made.truth.items() if value == 1.0}
    for night in nights:
        places = [folder / f"late-{night}", ingested_at_once(made.at_once[: night * a_day], folder / f"at-once-{night}")]
        known = [
            pandas.read_parquet(place / "traces.parquet", columns=["outcome"])["outcome"].notna().sum() for place in places
        ]
        sides = [folder / f"{place.name}-curated" for place in places]
        taught = [
            curated(place, side, folder / f"{place.name}-recording")[0] for place, side in zip(places, sides, strict=True)
        ]
        found = [[success(side, folder / f"{side.name}-seeds", seed) for side in sides] for seed in SEEDS]
        late, once = (numpy.mean([pair[side][1] for pair in found], axis=0) for side in (0, 1))
        low, high = interval(late - once)
        same = all(pair[0][0] == pair[1][0] for pair in found)
        shown = "0, the same adapters" if same else f"{100 * (late - once).mean():+.1f} ({low:+.1f} to {high:+.1f})"
        counts = [
            " and ".join(str(sum((name in right) == is_right for name in names)) for names in taught)
            for is_right in (True, False)
        ]
        rates = f"{late.mean():.3f} | {once.mean():.3f}"
        rows.append(f"| {night} | {known[0]} of {known[1]} | {counts[0]} | {counts[1]} | {rates} | {shown} |")
        print(rows[-1], flush=True)
    return "\n".join(rows)


def interval(differences: numpy.ndarray) -> tuple[float, float]:
    """The 95% interval of a mean difference in points, by 10,000 draws of tasks. `differences`: [tasks]."""
    drawn = numpy.random.default_rng(0).integers(0, len(differences), (10_000, len(differences)))
    low, high = numpy.quantile(100 * differences[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def curated(ingested: Path, folder: Path, recording: Path) -> tuple[list[str], dict[str, Any]]:
    """The demonstrations and the evidence that curation takes from an ingested folder."""
    from tracewheel.config import RetrainConfig
    from tracewheel.curation.curate import curate
    from tracewheel.environments.recorded.build import build_recording

    recording.mkdir()
    build_recording(pandas.read_parquet(ingested / "traces.parquet"), recording)
    curation = {"train_tasks": 30, "validation_tasks": 8, "held_out_tasks": 8, "harder_tasks": 0, "counts": "auto"}
    profile = {"name": "month", "environment": {"kind": f"recorded:{recording}"}}
    profile["curation"] = {**curation, "sets": {"sources": ["logged"]}}
    curate(RetrainConfig.model_validate(profile), ingested, folder)
    taught = pandas.read_parquet(folder / "sets/demonstrations.parquet")["trace_id"]
    return sorted(taught), json.loads((folder / "evidence.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--a-day", type=int, default=100, help="conversations (default 100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", action="store_true", help="train on both months, and compare the policies")
    parser.add_argument("--out", type=Path, help="write the table there, too")
    options = parser.parse_args()
    drawn = random.Random(options.seed)
    made = month(options.days, options.a_day, drawn)
    with tempfile.TemporaryDirectory(prefix="late-outcomes-") as place:
        folder = Path(place)
        last = max(made.said) + 1  # the night after which nothing is late any more
        nights = [*(night for night in NIGHTS if night <= options.days), last] if options.train else []
        facts = play(made, folder, drawn, nights)
        ingested_at_once(made.at_once, folder / "at-once")
        frames = [pandas.read_parquet(folder / name / "traces.parquet") for name in ("ingested", "at-once")]
        outcomes = [dict(zip(frame["id"], frame["outcome"], strict=True)) for frame in frames]
        late, at_once = (
            curated(folder / name, folder / f"{name}-curated", folder / f"{name}-recording") for name in ("ingested", "at-once")
        )
        policies = trained(made, folder, nights, options.a_day) if options.train else ""
    table = [
        ("conversations", len(made.truth)),
        ("outcomes said later", facts["said"]),
        ("of traces with a corrected one", facts["corrected"]),
        ("nights, killed ingests", f"{facts['nights']}, {facts['kills']}"),
        ("nights whose counts differ from the book", 0),
        ("seconds of a whole night's ingest, mean", round(facts["seconds"] / facts["nights"], 2)),
        ("traces whose outcome is not the true one", sum(outcomes[0].get(name) != value for name, value in made.truth.items())),
        (
            "traces whose outcome differs from the month at once",
            sum(outcomes[0][name] != outcomes[1][name] for name in made.truth),
        ),
        ("demonstrations (late, at once, in both)", f"{len(late[0])}, {len(at_once[0])}, {len({*late[0]} & {*at_once[0]})}"),
        ("tasks whose evidence differs", sum(late[1].get(task) != pair for task, pair in at_once[1].items())),
    ]
    text = "\n".join(["| a month | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in table)])
    if policies:
        text += f"\n\n## Trained\n\n{ABOUT_TRAINED}\n\n{policies}"
    print(text)
    if options.out:
        what = (
            f"`python benchmarks/late_outcomes.py`, seed {options.seed}, on two busy cores: 80% of the outcomes come 1 to 5 "
            "days after the\nconversation, 5% are corrected; ingests are killed at random moments."
        )
        options.out.write_text(f"# Outcomes that come late\n\n{what}\n\n{text}\n")


if __name__ == "__main__":
    main()
