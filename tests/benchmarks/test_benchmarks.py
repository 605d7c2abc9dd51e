"""Foundations of the benchmarks: the scripted policy follows its script, accounts add up, a worse ratio is reported."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pandas
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

    from tracewheel.evaluation.family_differences import paired_differences

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


@pytest.mark.slow
def test_late_and_corrected_outcomes_are_joined_and_counted_although_ingests_are_killed(tmp_path: Path) -> None:
    from late_outcomes import month, play

    made = month(6, 40, random.Random(1))
    facts = play(made, tmp_path, random.Random(1))  # compares each night's counts with its own book
    frame = pandas.read_parquet(tmp_path / "ingested/traces.parquet")
    assert dict(zip(frame["id"], frame["outcome"], strict=True)) == made.truth
    assert facts["kills"] and facts["corrected"] and facts["said"] > 100


def test_the_stored_month_judged_again_spends_nothing_on_nights_that_changed_nothing() -> None:
    """Days 1 and 6 are the first and the second look; on day 20 a reserve of at most 65 tasks lets a challenger wait."""
    from benchmarks.gate_month import judged_again
    from tracewheel.config import GateConfig
    from tracewheel.evaluation.error_budget import Look, level_of

    month = json.loads((ROOT / "benchmarks/results/month.json").read_text())
    nights = {row["day"]: row for row in judged_again(month)}
    assert [day for day, row in nights.items() if row["now"] == "promoted"] == [1, 6]
    assert (nights[5]["now"], nights[9]["now"], nights[20]["now"], nights[28]["now"]) == (
        "not asked",
        "refused",
        "waits",
        "not known",
    )
    config = GateConfig(**month["profile"]["gate"])
    assert nights[6]["level"] == level_of(config, Look(2, nights[1]["level"], "only"))
