"""The table of all roads: played at a tiny size, judged, kept, and not played again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "plugins/search/benchmarks/roads.py"
TINY = [
    "training.tasks_per_iteration=4", "rollout.group_size=4", "evaluation.samples=1", "evaluation.pass_at=[1]",
    "curation={train_tasks: 24, validation_tasks: 4, held_out_tasks: 8, harder_tasks: 0}",
    "warm_start.epochs=1", "gate.min_pairs=4",
]  # fmt: skip


@pytest.fixture
def play(tmp_path):
    def run(*words):
        line = [sys.executable, str(SCRIPT), "--seeds", "0", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
        settings = [word for setting in TINY for word in ("--set", setting)]
        return subprocess.run([*line, *settings, *words], cwd=ROOT, capture_output=True, text=True, timeout=900)

    return run


@pytest.mark.slow
def test_cells_are_judged_and_not_played_again(play, tmp_path):
    done = play("--tokens", "1600", "--roads", "prompt", "GRPO")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "out" / "roads.json"
    first = path.read_bytes()
    cells = json.loads(first)["cells"]["0"]
    assert set(cells) == {"warm start", "prompt", "GRPO"}
    ids = cells["warm start"]["tasks"]["task_id"]
    for road in ("prompt", "GRPO"):
        assert cells[road]["tasks"]["task_id"] == ids and len(ids) == 8
        assert cells[road]["gate"]["verdict"] in ("promoted", "refused")
    assert 0 < cells["prompt"]["tokens"] <= 1600 <= cells["GRPO"]["tokens"]
    assert cells["GRPO"]["tokens"] == tokens_of(tmp_path / "work")
    again = play("--tokens", "1600", "--roads", "prompt", "GRPO")
    assert again.returncode == 0 and path.read_bytes() == first and "seed 0," not in again.stderr
    assert again.stdout.count("| GRPO |") == 1 and (tmp_path / "out" / "roads.md").read_text() in again.stdout
    other = play("--tokens", "1700", "--roads", "GRPO")
    assert other.returncode == 1 and "name another --out" in other.stderr


def tokens_of(work):
    import pandas as pd

    return sum(
        sum(mask) for file in work.glob("*/seed-0/GRPO/*/trajectories.parquet") for mask in pd.read_parquet(file)["action_mask"]
    )


def test_the_table_counts_by_hand(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from roads_table import page, success

    def cell(greedy, sampled, tokens=0, **more):
        tasks = {"task_id": ["a", "b"], "greedy": greedy, "sampled_successes": sampled, "sampled_attempts": [4, 4]}
        return {"tokens": tokens, "rounds": 2, "cpu_s": 3.0, "tasks": tasks, **more}

    promoted, refused = ({"gate": {"verdict": verdict}} for verdict in ("promoted", "refused"))
    start = cell([0.0, 1.0], [0, 2])  # (0 + 0 + 1 + 0.5) / 4
    assert success(start) == 0.375
    known = {
        "asked": {"tokens": 100, "settings": []},
        "cells": {
            "0": {"warm start": start, "GRPO": cell([1.0, 1.0], [4, 2], 100, **promoted)},  # 3.5 / 4
            "1": {"warm start": start, "GRPO": cell([0.0, 1.0], [2, 2], 120, **refused)},  # 2 / 4
        },
    }
    text = page(known, "warm start")
    assert "| GRPO | 0.875 | 0.500 | 0.688 | 1 of 2 | 110 | 2 | 3 |" in text
    assert "| GRPO minus warm start | +31.2 |" in text  # (50 + 12.5) / 2
