"""A month of a deployed agent whose outcomes come late: 80% 1 to 5 days after the conversation, 5% corrected later.

    python benchmarks/late_outcomes.py                       # 30 days of 100 conversations, about five minutes
    python benchmarks/late_outcomes.py --out benchmarks/results/late_outcomes.md

Late outcomes come by three roads: the conversation is logged again with its reward, a CSV is written anew each night, and
`serve` logs feedback. Each night `ingest_new` runs in a process of its own and is killed (SIGKILL) at random moments before one
goes to its end. Each night's counts are compared with a book that is kept apart. At the month's end the stored outcomes, and
what curation makes of them in a recorded environment, are compared with the same month whose outcomes were there at once.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas

LATE, CORRECTED, LONGEST = 0.8, 0.05, 5
TASKS, START = 60, datetime(2026, 10, 1, 8, tzinfo=UTC)
NIGHT = """
import sys
from tracewheel.config import IngestConfig
from tracewheel.traces.ingest import ingest_new
logs, said, out = sys.argv[1:]
ingest_new(IngestConfig.model_validate({"paths": [logs], "outcomes": {"paths": [said]}}), __import__("pathlib").Path(out),
           records_per_commit=60)
"""


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


def month(days: int, a_day: int, drawn: random.Random) -> Month:
    """Draw a month; the last outcomes come days after its end."""
    from tracewheel.core.types import content_hash
    from tracewheel.demo.workspace_logs import TRAINED_TIERS, log_record
    from tracewheel.environments.workspace.tasks import FAMILIES, make_task

    strata = [(family, tier) for tier in TRAINED_TIERS for family in FAMILIES]
    pool = [make_task(*strata[number % len(strata)], drawn) for number in range(TASKS)]
    made = Month()
    for number in range(days * a_day):
        day, name = number // a_day, f"conv-{number}"
        task = drawn.choice(pool)
        moment = START + timedelta(days=day, seconds=number % a_day * 60)
        record = log_record(task, f"user-{pool.index(task)}", f"s-{number}", moment, drawn)
        record = {key: value for key, value in record.items() if key not in ("environment", "reward")}
        record |= {"id": name, "task_id": content_hash([task.id])}
        value = float(drawn.random() < 0.6)
        late = drawn.random() < LATE
        told = day + drawn.randint(1, LONGEST) if late else day
        if late:
            made.said[told].append((name, value, drawn.choice(["log", "csv", "serve"])))
        made.logs[day].append(record if late else record | {"reward": value})
        if drawn.random() < CORRECTED:
            value = 1.0 - value
            made.said[told + drawn.randint(1, 3)].append((name, value, drawn.choice(["csv", "serve"])))
        made.truth[name] = value
        made.at_once.append(record | {"reward": value})
    return made


def play(made: Month, folder: Path, drawn: random.Random) -> dict[str, Any]:
    """Live through the month; returns the kills and the nights, after checking each night's counts."""
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
    parser.add_argument("--out", type=Path, help="write the table there, too")
    options = parser.parse_args()
    from tracewheel.config import IngestConfig
    from tracewheel.traces.ingest import ingest_new

    drawn = random.Random(options.seed)
    made = month(options.days, options.a_day, drawn)
    with tempfile.TemporaryDirectory(prefix="late-outcomes-") as place:
        folder = Path(place)
        facts = play(made, folder, drawn)
        (folder / "at-once.jsonl").write_text("".join(json.dumps(record) + "\n" for record in made.at_once))
        ingest_new(IngestConfig(paths=(str(folder / "at-once.jsonl"),)), folder / "at-once")
        frames = [pandas.read_parquet(folder / name / "traces.parquet") for name in ("ingested", "at-once")]
        outcomes = [dict(zip(frame["id"], frame["outcome"], strict=True)) for frame in frames]
        late, at_once = (
            curated(folder / name, folder / f"{name}-curated", folder / f"{name}-recording") for name in ("ingested", "at-once")
        )
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
    print(text)
    if options.out:
        what = (
            f"`python benchmarks/late_outcomes.py`, seed {options.seed}, on two busy cores: 80% of the outcomes come 1 to 5 "
            "days after the\nconversation, 5% are corrected; ingests are killed at random moments."
        )
        options.out.write_text(f"# Outcomes that come late\n\n{what}\n\n{text}\n")


if __name__ == "__main__":
    main()
