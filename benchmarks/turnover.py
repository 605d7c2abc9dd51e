"""Do full sets follow a world that drifts? The month's logs, curated night by night, with and without turnover.

    python benchmarks/turnover.py --json benchmarks/results/turnover.json      # 30 nights on each side, about two minutes

The logs are those of the simulated month (`month_logs.py`): families move from mostly `pattern` and `prefix` to mostly `list`
and `content`. Sets are full after the first day. It trains nothing: it shows which families the sets of each night hold
beside those of the night's own tasks, how many held-out tasks change, and that none was trained or selected on before.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measuring import emit, machine, table
from month_logs import Sizes, days_of_logs

LATE = ("list", "content")  # the families that the month drifts to
SETS = {"train_tasks": 60, "validation_tasks": 20, "held_out_tasks": 60, "harder_tasks": 0, "min_attempts": 1}
SHARES = {"turnover": 0.5, "none": 0.0}


def nights(share: float, days: list[list[bytes]], folder: Path) -> list[dict[str, Any]]:
    """What each night's curation has in its sets."""
    import pandas

    from tracewheel.config import CurateSections, IngestConfig, RetrainConfig
    from tracewheel.curation.curate import HowTo, curate
    from tracewheel.curation.split_record import SplitRecord
    from tracewheel.traces.ingest import ingest

    settings = {**SETS, "shares": {"test": 0.35, "validation": 0.15}, "recent_share": share}
    config = RetrainConfig(name="turnover", environment={"kind": "workspace"}, curation=settings)  # type: ignore[arg-type]
    how = HowTo(reuse=folder / "reuse")
    record, used, before, known, rows = None, set[str](), set[str](), set[str](), []
    for night, lines in enumerate(days, 1):
        with (folder / "log.jsonl").open("ab") as file:
            file.writelines(line + b"\n" for line in lines)
        ingest(IngestConfig(paths=(str(folder / "log.jsonl"),)), folder / f"ingested-{night}")
        report = curate(CurateSections.of(config), folder / f"ingested-{night}", folder / f"{night}", None, record, how)
        record = SplitRecord.read(folder / f"{night}")
        tasks = pandas.read_parquet(folder / f"{night}/tasks.parquet", columns=["id", "family", "split"])
        held = set(tasks.loc[tasks["split"] == "held_out", "id"])
        outcomes = pandas.read_parquet(folder / f"{night}/outcomes.parquet")
        asked = outcomes[~outcomes["trace_id"].isin(known)].drop_duplicates("task_id")
        known |= set(outcomes["trace_id"])
        row = {
            "night": night,
            "late_in_logs": late(Counter(asked["family"])),
            "late_in_train": late(report["splits"]["train"]["families"]),
            "late_in_held_out": late(report["splits"]["held_out"]["families"]),
            "new_held_out": len(held - before) if before else 0,
            "used_before": len(held & used),
            "sizes": dict(Counter(tasks["split"])),
        }
        used |= set(tasks.loc[tasks["split"].isin(["train", "validation"]), "id"])
        before = held
        rows.append(row)
    return rows


def late(families: Mapping[str, int]) -> float:
    """The share of the families that the month drifts to."""
    return sum(families.get(name, 0) for name in LATE) / max(1, sum(families.values()))


def shown(sides: dict[str, list[dict[str, Any]]]) -> str:
    """A row for five nights each."""
    head = ["nights", "list and content in the nights' tasks", "in training", "without turnover", "in held-out"]
    head += ["without turnover", "tasks that entered held-out", "held out though used before"]
    lines = []
    for first in range(0, len(sides["turnover"]), 5):
        ours, still = (sides[name][first : first + 5] for name in ("turnover", "none"))
        rates = [mean(ours, "late_in_logs"), mean(ours, "late_in_train"), mean(still, "late_in_train")]
        rates += [mean(ours, "late_in_held_out"), mean(still, "late_in_held_out")]
        counts = [sum(row[name] for row in ours) for name in ("new_held_out", "used_before")]
        lines.append([f"{first + 1} to {first + len(ours)}", *(f"{rate:.0%}" for rate in rates), *counts])
    return table(head, lines)


def mean(rows: list[dict[str, Any]], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    days = list(days_of_logs(Sizes(days=options.days), options.seed))
    sides: dict[str, list[dict[str, Any]]] = {}
    for name, share in SHARES.items():
        with tempfile.TemporaryDirectory() as folder:
            sides[name] = nights(share, days, Path(folder))
    used = {name: sum(row["used_before"] for row in rows) for name, rows in sides.items()}
    result = {"machine": machine(1), "seed": options.seed, "sets": SETS, "used_before_in_all_nights": used, "nights": sides}
    emit(result, shown(sides), options.json)


if __name__ == "__main__":
    main()
