"""Where a run's data came from, and where it went: figures against the files themselves."""

import json

import pandas as pd
import pytest

from tracewheel.core.files import read_json
from tracewheel.dashboard.pages.lineage import roads_of, runs_taught, teachers_of, traces_of
from tracewheel.dashboard.pages.traces import intake_of, quarantine_of


@pytest.fixture
def run(library, run_ids):
    return library.run("demo", run_ids[0])


def test_the_intake_is_what_ingest_and_curation_counted(run):
    found = intake_of(run)
    report = read_json(run.store / found.entry / "report.json")
    assert found.report == report and not found.missing
    assert sum(row["traces"] for row in found.sources) == report["kept"]
    assert {row["reason"]: row["count"] for row in found.quarantine} == report["by_reason"]
    tasks = pd.read_parquet(run.store / found.curated / "tasks.parquet")
    assert {row["split"]: row["tasks"] for row in found.difficulty["splits"]} == tasks.groupby("split").size().to_dict()


def test_a_quarantine_with_lines_too_long_to_hold_still_says_where(tmp_path):
    record = {"file": "log.jsonl", "line": 7, "offset": 9, "reason": "not JSON", "detail": "cut", "raw": "x" * 200_000}
    (tmp_path / "q.jsonl").write_text(json.dumps(record, separators=(",", ":")) + "\n{broken\n")
    (row,) = quarantine_of(tmp_path / "q.jsonl", {"not JSON": 5})
    assert row["count"] == 5 and row["advice"].startswith("Usually a line")
    assert row["examples"] == [{"file": "log.jsonl", "line": 7, "offset": 9, "detail": "cut", "text": None, "length": None}]


def test_back_to_the_traces_and_forward_to_the_adapters(library, run):
    learned = pd.read_parquet(run.record.path / "learned.parquet")
    roads = {row["road"]: row["traces"] for row in roads_of(run)}
    assert roads == learned.groupby("road")["trace_id"].nunique().to_dict()
    _, every = teachers_of(run, "", "", 0, 10)
    assert every == learned["trace_id"].nunique()
    user = learned["user"].dropna().iloc[0]
    of_user = learned[learned["user"] == user]
    rows, found = teachers_of(run, str(user), "", 0, 500)
    assert {row["trace_id"] for row in rows if row["user"] == user} == set(of_user["trace_id"]) and found >= len(rows)
    taught = {row["run_id"]: row["traces"] for row in runs_taught(library, "user", str(user))}
    assert taught[run.run_id] == of_user["trace_id"].nunique()
    stored = traces_of(library.place("demo"), "user", str(user))
    assert set(of_user["trace_id"]) <= {row["id"] for row in stored}
    assert runs_taught(library, "user", "' OR 1=1 --") == [] and traces_of(library.place("demo"), "trace", "%") == []
