"""The script for the day a GPU is at hand: its parts on this CPU, and that the failure of one leaves the others."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(monkeypatch):
    for folder in ("benchmarks", "benchmarks/gpu"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module


def test_each_part_survives_the_failure_of_another(module, monkeypatch, tmp_path):
    run = module("run")
    monkeypatch.setattr(run, "PARTS", {"unheard-of": 300, "decode": 300, "kernels": 1})
    monkeypatch.setattr(run, "_machine", lambda device: {})
    written = []
    real = run.subprocess.run

    def instead(command, **more):
        if "decode" in command:
            return run.subprocess.CompletedProcess(command, 0, 'noise\n[{"slots": 2}]\n', "")
        written.append(command)
        return real(command, **more)

    monkeypatch.setattr(run.subprocess, "run", instead)
    result = run.run_all(tmp_path / "gpu.json", None, "cpu", True, run.SECONDS)
    assert json.loads((tmp_path / "gpu.json").read_text()) == result
    parts = result["parts"]
    assert "invalid choice: 'unheard-of'" in parts["unheard-of"]["error"] and len(written) == 1
    assert parts["decode"]["result"] == [{"slots": 2}] and parts["kernels"] == {"error": "no time left"}


def test_the_work_of_an_update_counts_what_a_layout_computes(module):
    learning = module("learning")
    workload = learning.replace(learning.SMALL, tokens=64, prompt=0.5)
    model = learning.policy(workload, torch.float32)
    found = {
        name: learning._work(model, learning._batches(workload, name, "cpu"), name, workload) for name in ("packed", "forks")
    }
    shared = learning._work(model, learning._batches(workload, "shared_prefix", "cpu"), "shared_prefix", workload)
    assert sum(found["packed"][1]) - sum(shared[1]) == 2 * 32, "a group of three reads its prompt once"
    assert shared[0] < found["packed"][0]
    (batch,) = learning._batches(workload, "forks", "cpu")
    assert batch.before is not None and found["forks"][1] == [int(batch.attention_mask.sum())]


def test_the_gradients_of_two_types_are_compared(module, monkeypatch):
    learning = module("learning")
    monkeypatch.setattr(learning, "SMALL", learning.replace(learning.SMALL, tokens=64, action=8, observation=8))
    found = learning.parity("cpu", small=True)
    assert found["forks float32"]["distance"] == 0.0 and 0.0 < found["forks bfloat16"]["distance"] < 0.05


def pretended(part, *layers):
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("pretended_gpu.py")), part, *map(str, layers)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_update_mixes_no_devices_and_its_waits_do_not_grow_with_the_layers():
    two, four = pretended("learner", 2, 4)
    assert "add: ['pretended:0', 'cpu']" in two.pop("mixed") and four.pop("mixed")
    for layout, found in two.items():
        assert found["distance"] < 1e-5 and found["batches"] == 1, layout
        assert found["waits"] == four[layout]["waits"] and sum(found["waits"].values()) <= 14, (layout, found["waits"])


def test_a_step_of_the_engine_waits_for_tokens_and_log_probabilities_alone():
    (found,) = pretended("engine", 2)
    assert found["equal"] and found["turns"] == 3
    assert all(waits == {"tolist": 2} for waits in found["steps"]), found["steps"]


def test_an_older_torch_gets_grouped_heads(module, monkeypatch):
    from torch.nn.attention import varlen

    seen = {}

    def older(query, key, value, ends, key_ends, longest, longest_key, is_causal=False, scale=None):
        seen.update(key=key, is_causal=is_causal)
        return query

    monkeypatch.setattr(varlen, "varlen_attn", older)
    module("learning").older_torch()
    query, key = torch.zeros(3, 4, 2), torch.arange(12.0).view(3, 2, 2)
    varlen.varlen_attn(query, key, key, 0, 0, 3, 3, scale=None, window_size=(-1, 0), enable_gqa=True)
    assert seen["is_causal"] and torch.equal(seen["key"], key.repeat_interleave(2, 1))


def test_the_time_of_an_update_is_told_by_kernel(module, monkeypatch):
    learning = module("learning")
    monkeypatch.setattr(learning, "SMALL", learning.replace(learning.SMALL, tokens=64, action=8, observation=8))
    found = learning.kernels("cpu", small=True)
    assert any(row["kernel"] == "aten::mm" and row["calls"] > 0 for row in found)
    assert 0.5 < sum(row["share"] for row in found) <= 1.0 and found == sorted(found, key=lambda row: -row["ms"])


def test_trls_update_is_timed_beside_ours(module, monkeypatch):
    learning = module("learning")
    monkeypatch.setattr(learning, "SMALL", learning.replace(learning.SMALL, tokens=64, action=8, observation=8, group=2))
    found = learning.trl("cpu", small=True)
    assert found["trl"]["wall_s"] > 0.0 and found["times_as_fast"] > 0.0
    rows = learning.trajectories(learning.SMALL)["token_ids"]
    tokens = sum(map(len, rows))
    for side in ("ours", "trl"):
        assert found[side]["tokens_per_s"] * found[side]["wall_s"] == pytest.approx(tokens), side


@pytest.mark.slow
def test_the_loop_comes_to_its_verdict(module, monkeypatch):
    run = module("run")
    monkeypatch.setattr(run.sys, "argv", [])
    monkeypatch.chdir(ROOT)
    assert run.loop("cpu", small=True)["gate"]["verdict"] in ("promoted", "refused")
