"""Foundations of the benchmarks: the scripted policy follows its script, accounts add up, a worse ratio is reported."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_the_scripted_policy_makes_one_call_per_turn_until_the_environment_ends(tmp_path: Path) -> None:
    from rollouts_sides import ours, prefill_each_turn
    from rollouts_workload import CALL, Workload, write_policy

    from tracewheel.policy.loading import load_renderer

    write_policy(ROOT / "data/base", tmp_path)
    renderer = load_renderer(str(tmp_path), "hermes")
    name, arguments = CALL
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    turn = len(renderer.assistant_ids({"role": "assistant", "content": "", "tool_calls": [call]}))
    workload = Workload(turns=3, group=2, concurrency=4)
    for side in (ours, prefill_each_turn):
        _, generated = side(tmp_path, 1, {"kind": "transformers"})(workload)
        assert generated == 4 * 3 * turn


def test_trls_chat_template_equals_ours() -> None:
    from rollouts_workload import trl_chat_template
    from transformers import AutoTokenizer

    from tracewheel.environments.workspace.environment import TOOLS

    base = ROOT / "data/base"
    messages = [
        {"role": "user", "content": "probe"},
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "finish", "arguments": {}}}]},
        {"role": "tool", "name": "finish", "content": "done"},
    ]
    said = [
        AutoTokenizer.from_pretrained(base, **options).apply_chat_template(
            messages, tools=tools, tokenize=False, add_generation_prompt=True
        )
        for options, tools in (({}, TOOLS), ({"chat_template": trl_chat_template(base)}, TOOLS[:1]))
    ]
    assert said[0] == said[1]


def test_a_difference_between_policies_together_is_the_mean_of_their_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    import pandas as pd
    from measuring import together
    from smollm2 import stored

    from tracewheel.comparison.paired import paired_differences

    runs = stored("ablations")["0"]
    one, other, base = (
        pd.DataFrame(runs[name]["tasks"]["harder"]) for name in ("no action mask", "no action mask, other episodes", "as it is")
    )

    def difference(table: pd.DataFrame) -> float:
        return float(paired_differences(table, base, greedy_weight=0.5)["rows"][0]["difference"])

    assert difference(one) != difference(other)
    assert difference(together([one, other])) == pytest.approx((difference(one) + difference(other)) / 2)


def test_the_power_of_a_power_law_is_recovered() -> None:
    from rollouts import exponent

    points = [{"workload": {"turns": turns}, "sides": {"ours": {"episodes_per_cpu_s": 1 / turns**1.5}}} for turns in (2, 8, 32)]
    assert exponent(points, "ours") == 1.5
    assert exponent(points[:1], "ours") is None


def test_time_is_charged_once_to_the_innermost_account() -> None:
    from overhead_run import Ledger

    started = time.time()
    ledger = Ledger(started)
    inner = ledger.around("inner", lambda: time.sleep(0.05))
    outer = ledger.around("outer", lambda: (time.sleep(0.02), inner()))
    outer()
    seconds = ledger.close()
    assert seconds["inner"] >= 0.05
    assert 0.02 <= seconds["outer"] < seconds["inner"] + 0.02
    assert sum(seconds.values()) == pytest.approx(time.time() - started, abs=0.02)


def test_only_listed_tasks_are_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import overlap_environment

    from tracewheel.environments.workspace.tasks import make_task

    slow, fast = (make_task("pattern", 1, random.Random(seed)) for seed in (0, 1))
    (tmp_path / "tasks.json").write_text(json.dumps([slow.id]))
    monkeypatch.setenv("OVERLAP_TASKS", str(tmp_path / "tasks.json"))
    monkeypatch.setenv("OVERLAP_DELAY", "0.05")
    monkeypatch.setenv("OVERLAP_LOG", str(tmp_path / "begun"))
    overlap_environment.slow_tasks.cache_clear()
    for task, is_slow in ((fast, False), (slow, True)):
        environment = overlap_environment.SlowWorkspace()
        environment.reset(task)
        started = time.perf_counter()
        assert not environment.step("list_files", {"path": task.goal["source"]}).error
        assert (time.perf_counter() - started >= 0.05) == is_slow
        assert (tmp_path / "begun").exists() == is_slow
    overlap_environment.slow_tasks.cache_clear()


@pytest.mark.parametrize(
    ("measured", "fallen"),
    [
        ({"speed": 0.81, "power of the turns, ours": 1.19}, []),
        ({"speed": 0.79, "power of the turns, ours": 1.0}, ["speed"]),
        ({"speed": 2.0, "power of the turns, ours": 1.21}, ["power of the turns, ours"]),
        ({"power of the turns, ours": 0.5}, ["speed"]),
    ],
)
def test_a_ratio_20_percent_worse_is_reported(measured: dict[str, float], fallen: list[str]) -> None:
    from check_regression import worse

    assert worse({"speed": 1.0, "power of the turns, ours": 1.0}, measured) == fallen


PRODUCTS = """
import torch
from bfloat16_products import multiply_in_float32

multiply_in_float32()
shapes = [(96, 576), (576, 1536), (4, 96, 64), (4, 64, 70), (96, 1536), (4, 96, 70)]
low = [torch.randn(*shape, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_() for shape in shapes]
high = [matrix.detach().float().requires_grad_() for matrix in low]
made = [
    [left @ right, many @ others, torch.addmm(added, left, right, alpha=0.5), torch.baddbmm(more, many, others, beta=2)]
    for left, right, many, others, added, more in (low, high)
]
for one, other in zip(*made, strict=True):
    assert torch.equal(one, other.bfloat16())
    one.backward(torch.ones_like(one))
    other.backward(torch.ones_like(other))
for one, other in zip(low, high, strict=True):
    torch.testing.assert_close(one.grad, other.grad.bfloat16(), rtol=2**-6, atol=2**-6)
"""


def test_bfloat16_is_multiplied_in_float32_and_rounded_once() -> None:
    """In a process of its own: it is for the whole process."""
    from measuring import environment

    subprocess.run([sys.executable, "-c", PRODUCTS], env=environment(threads=1), check=True)
