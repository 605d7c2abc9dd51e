"""The simulated month: its logs drift, are poisoned where they should be, and hold no task of the exam; its books add up."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_a_months_logs_drift_and_two_days_are_poisoned() -> None:
    from month_logs import ORDER, Sizes, days_of_logs, exam

    sizes = Sizes(days=10, first=60, daily=60)
    clean = [[json.loads(line) for line in day] for day in days_of_logs(sizes)]
    poisoned = [[json.loads(line) for line in day] for day in days_of_logs(sizes, poison={10: "flood", 9: "flipped"})]
    assert poisoned[:8] == clean[:8]
    changed = [old["reward"] != new["reward"] for old, new in zip(clean[8], poisoned[8], strict=True) if "reward" in old]
    assert 0.2 < sum(changed) / len(changed) < 0.6
    users = Counter(record["user"] for record in poisoned[9])
    assert (len(poisoned[9]), users["user-flood"]) == (120, 60)
    assert sum(ORDER in record["messages"][1]["content"] for record in poisoned[9]) == 60

    def share(day: list[dict[str, object]], *families: str) -> float:
        kinds = [record["environment"]["goal"]["selector"]["kind"] for record in day]  # type: ignore[index]
        return sum(kind in families for kind in kinds) / len(kinds)

    early, late = (share([record for day in days for record in day], "pattern", "prefix") for days in (clean[:3], clean[7:]))
    assert early > late + 0.1
    goals = {
        json.dumps([record["environment"]["initial_state"], record["environment"]["goal"]]) for day in clean for record in day
    }
    assert not {json.dumps([task.initial_state, task.goal]) for task in exam(100)} & goals


def test_the_books_say_where_each_trace_is(tmp_path: Path) -> None:
    import pandas
    from month_accounts import account

    from tracewheel.core.store import Store

    (tmp_path / "logs").mkdir()
    for day, names in (("1", "abc"), ("2", "de")):
        text = "".join(json.dumps({"id": name}) + "\n" for name in names)
        (tmp_path / "logs" / f"day-{day}.jsonl").write_text(text)

    def ingest(out: Path) -> dict[str, int]:
        pandas.DataFrame({"id": ["a", "c"]}).to_parquet(out / "traces.parquet")
        return {"read": 3, "kept": 2, "duplicates": 0, "quarantined": 1}

    entry = Store(tmp_path / "run/store").make("ingest", "x", ingest)
    (tmp_path / "run/ingested.json").write_text(json.dumps([{"entry": entry.path.name}]))
    days = [{"used_before": {"train_before": 0, "validation_before": 2}}]
    books = account(tmp_path / "run", tmp_path / "logs", days)
    assert (books["lines"], books["kept"], books["not_kept_by_file"]) == (5, 2, {"day-1.jsonl": 1, "day-2.jsonl": 2})
    assert books["held_out_trained_or_selected_before"] == 2
    assert books["unaccounted"] == 2  # one is in quarantine, and those of the second day are nowhere


@pytest.mark.slow
def test_three_days_by_themselves_with_one_poisoned(tmp_path: Path) -> None:
    """Through `tracewheel deploy`, a Prefect server and an MLflow server."""
    import subprocess
    import sys

    small = {
        "curation": {"held_out_tasks": 30, "validation_tasks": 10, "harder_tasks": 4, "train_tasks": 60},
        "training": {"iterations": 1, "tasks_per_iteration": 8, "validate_every": 1},
        "gate": {"min_pairs": 5},
    }
    out = tmp_path / "month.json"
    command = [sys.executable, "benchmarks/month.py", "--work", str(tmp_path / "work"), "--days", "3", "--first", "150"]
    command += ["--daily", "40", "--trouble", '{"3": "flipped"}', "--set", json.dumps(small), "--port", str(free_port())]
    done = subprocess.run([*command, "--json", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(out.read_text())
    assert [day["runs"][-1]["state"] for day in result["days"]] == ["COMPLETED"] * 3
    books = result["accounts"]
    assert (books["lines"], books["unaccounted"], books["held_out_trained_or_selected_before"]) == (230, 0, 0)
    poisoned = result["days"][2]
    assert poisoned["held"] == ["day-03.jsonl"] or (poisoned.get("gate") or {}).get("verdict") != "promoted"
    assert out.with_suffix(".png").is_file()


def free_port() -> int:
    """A port that is free, with the one after it."""
    from tracewheel.core.processes import free_port, is_free_port

    while not is_free_port((port := free_port()) + 1):
        pass
    return port
