"""The command says what it needs, and trains again by the command line, whose verdict it shows."""

import argparse
import json
import sys
from types import SimpleNamespace

import pytest

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel_forgetting.commands import forget

# In place of Python: writes what it was asked into the run's folder, as that run's record, and ends as `retrain` does.
RETRAIN = """#!/bin/sh
mkdir -p {work}/r1
echo '{{"started": "2026-11-01"}}' > {work}/r1/lineage.json
echo "$@" > {work}/r1/words
echo '{{"run_id": "r1", "gate": {{"verdict": "refused"}}}}'
exit {code}
"""


def options(**changes):
    given = {"config": "p.yaml", "overrides": ["a=1", "b=2"], "run_dir": None, "unsafe_local": False}
    acts = {"yes": False, "delete_adapters": False, "rewrite_logs": False, "retrain": False}
    return argparse.Namespace(**given | acts | changes)


@pytest.fixture
def retrain(tmp_path, monkeypatch):
    def ends_with(code):
        program = tmp_path / "python"
        program.write_text(RETRAIN.format(work=tmp_path, code=code))
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return SimpleNamespace(work_dir=str(tmp_path))

    return ends_with


@pytest.mark.parametrize("option", ["delete_adapters", "rewrite_logs", "retrain"])
def test_what_changes_something_needs_a_yes(option):
    with pytest.raises(ConfigError, match=f"--{option.replace('_', '-')} changes something"):
        forget.run(options(**{option: True}))


@pytest.mark.parametrize("code", [0, 3])
def test_it_trains_again_with_the_same_settings(retrain, tmp_path, code):
    found = forget._retrained(options(run_dir="runs", unsafe_local=True), retrain(code), None)
    assert found == {"run": "r1", "verdict": "refused", "effect": None}
    words = (tmp_path / "r1" / "words").read_text().strip()
    assert words == "-m flows.cli retrain p.yaml --set a=1 --set b=2 --run-dir runs --unsafe-local --json"


def test_a_run_that_fails_is_said(retrain):
    with pytest.raises(InfrastructureError, match="they are forgotten, but .* exit code 2"):
        forget._retrained(options(), retrain(2), None)


def test_the_effect_is_shown_in_points():
    effect = {"difference": -0.02, "interval": [-0.05, 0.01], "confidence": 0.95, "tasks": 200}
    proof = {"searched_for": 3, "files": 4, "bytes": 5_000_000}
    counts = {"entries_deleted": 1, "mlflow_traces_deleted": 0, "log_lines_deleted": 0}
    done = {**counts, "files_cleaned": [], "model_versions": {}, "candidate": None, "proof": proof}
    found = {"log_lines": [], "dvc": {"files": [], "not_searched": []}}
    result = json.loads(json.dumps({"done": done, "found": found, "effect": effect, "run": "r1", "verdict": "refused"}))
    said = forget._done_text(result)
    assert "success -2.0 points (-5.0 to +1.0, 95%) on 200 held-out tasks" in said and said.endswith("r1: refused\n")
