"""A whole run whose final comparison may stop early."""

import json

import pandas as pd
import pytest


@pytest.mark.slow
def test_a_sequential_run_plays_parts_and_ends_with_one_verdict(command, profile, tmp_path):
    options = ("--run-dir", tmp_path, "--set", "gate.looks=3", "--json")
    done = command("retrain", profile, *options)
    assert done.returncode in (0, 3), done.stderr
    summary = json.loads(done.stdout)
    gate = summary["gate"]
    assert gate["level"] < 0.025
    joined = [path for path in (tmp_path / "store").iterdir() if path.name.startswith("join-")]
    sizes = {len(pd.read_parquet(path / "results.parquet")) for path in joined}
    assert sizes <= {4, 8, 12}
    assert gate["pairs"] == max(sizes)
    assert summary["noise_floor"]["greedy"]["pairs"] == gate["pairs"], "the A/A run is on the same tasks"
    again = command("retrain", profile, *options)
    assert json.loads(again.stdout)["gate"] == gate
    assert "Traceback" not in done.stderr + again.stderr
    plan = command("retrain", profile, *options[:-1], "--dry-run", "--json")
    assert json.loads(plan.stdout)["complete"]
