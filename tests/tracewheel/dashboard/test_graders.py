"""The audit of graders on a run's page: of the run, of its work folder, and a file that cannot be read."""

import json
import shutil

import pytest
from starlette.testclient import TestClient

from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.library import Library

RATE = {"wrong": 3, "probes": 1000, "rate": 0.003, "low": 0.001, "high": 0.0088}
FOUND = {
    "kind": "workspace", "verdict": "failed", "reasons": ["accepts 3 of 60 episodes of claim.<b>"], "tasks": 60, "probes": 1200,
    "false_accept": RATE, "false_reject": RATE | {"wrong": 0, "probes": 0}, "unscored": 4, "doubtful": 7,
    "exploitable": {"tasks": 3, "of": 60, "upper": 0.1241}, "repeats": {"episodes": 64, "differ": {"order": 0}, "error": ""},
    "examples": [{
        "what": "wrong", "kind": "claim.forged", "wants": "refuse", "total": 1.0, "task_id": "t", "prompt": "<script>alert(1)",
        "calls": ["answer {'text': '<img>'}"], "said": "done </section>", "error": "", "explanation": "",
    }],
}  # fmt: skip
AUDIT = {"tasks": 60, "without_solution": 2, "environments": ["workspace"], "verifiers": {"v": FOUND}}


@pytest.fixture
def work(shown, tmp_path):
    return shutil.copytree(shown, tmp_path / "work", ignore=shutil.ignore_patterns(".dashboard*"))


def test_a_run_with_an_audit_shows_its_rates_and_worst_examples(work, run_ids):
    client, address = TestClient(create_app(Library([work])), base_url="http://127.0.0.1"), f"/runs/work/{run_ids[-1]}"
    assert "The graders" not in client.get(address).text

    (work / "audit").mkdir()
    (work / "audit" / "audit.json").write_text(json.dumps(AUDIT))
    text = client.get(address).text
    assert "not of this run" in text and "at most 12.4%" in text

    (work / run_ids[-1] / "audit.json").write_text(json.dumps(AUDIT))
    text = client.get(address).text
    assert "not of this run" not in text
    expected = ("0.1% to 0.9%, 3 of 1,000", "3 of 60 seen", "<td>7</td><td>4</td>", "worst examples (1 of 1)", "2 more tasks")
    for words in expected:
        assert words in text, words
    assert "&lt;script&gt;alert(1)" in text and "<img>" not in text and "claim.&lt;b&gt;" in text

    (work / run_ids[-1] / "audit.json").write_text(json.dumps({"verifiers": 3}))
    answer = client.get(address)
    assert answer.status_code == 200 and "the audit cannot be read" in answer.text
