"""Judges on the dashboard: both rubrics side by side, from stored scores."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

from starlette.testclient import TestClient

from tracewheel.core.types import Score
from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.curves import judge_curves, rubric_rows
from tracewheel.dashboard.library import Library
from tracewheel.report.finished_run import RL
from tracewheel.scoring.score import read_scores, write_scores


def scored(name, explanation="judge: so and so", **breakdown):
    return Score(name, "t", "g", "scored", 0.5, breakdown, family="f", explanation=explanation)


def test_both_rubrics_of_policies_and_validations_and_damaged_scores(tmp_path):
    for entry, beside in (("evaluate-1", "training"), ("validate-1", "held_back"), ("broken-1", "training")):
        for place in ("", beside):
            (tmp_path / entry / "greedy" / place).mkdir(parents=True, exist_ok=True)
            write_scores(tmp_path / entry / "greedy" / place / "scores.parquet", [scored("one", success=1.0)])
    (tmp_path / "broken-1" / "greedy" / "scores.parquet").write_bytes(b"?")
    (tmp_path / "loop.json").write_text(json.dumps({"validations": {"0": "validate-1"}}))
    run = SimpleNamespace(store=tmp_path)
    evaluations = {"rl": SimpleNamespace(entry="evaluate-1"), "base": SimpleNamespace(entry="broken-1")}
    (both,) = rubric_rows(run, evaluations)
    assert (both.key, both.reward["training"].value, both.success["held_back"].value) == ("rl", 0.5, 1.0)
    (curve,) = judge_curves(run, tmp_path)
    assert curve.series == {"training": [(0, 0.5)], "held back": [(0, 0.5)]}
    (tmp_path / "loop.json").write_text(json.dumps({"validations": {"0": "broken-1"}}))
    assert judge_curves(run, tmp_path) == []


def test_the_run_page_shows_both_rubrics_where_one_is_held_back(shown, run_ids, tmp_path):
    work = shutil.copytree(shown, tmp_path / "work", ignore=shutil.ignore_patterns(".dashboard*"))
    library, address = Library([work]), f"/runs/work/{run_ids[-1]}"
    client = TestClient(create_app(library), base_url="http://127.0.0.1")
    assert "Both rubrics" not in client.get(address).text
    entry = library.run("work", run_ids[-1]).evaluation(RL)
    rows = [replace(row, total=0.125) for row in read_scores(entry.path / "greedy" / "scores.parquet")]
    (entry.path / "greedy" / "training").mkdir()
    write_scores(entry.path / "greedy" / "training" / "scores.parquet", rows)
    text = client.get(address).text
    assert ">Both rubrics</h3>" in text and text.count("<b>12.5%</b>") == 1
