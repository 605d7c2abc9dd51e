"""Verdicts of real runs in words: the held-out results of the demo and of SmolLM2, judged again, and the exact text."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tracewheel.config import GateConfig
from tracewheel.dashboard.library import unpack_demo
from tracewheel.evaluation.candidate import waits
from tracewheel.evaluation.error_budget import Look
from tracewheel.evaluation.gate import decide
from tracewheel.evaluation.paired_outcomes import RESULTS_FILE
from tracewheel.evaluation.wording import gain_of, in_words

ROOT = Path(__file__).parents[3]
VERIFIED = "warm_start_verified"
# What is said, by name: the table to read and to change when a sentence changes (by running this file).
TEXTS = Path(__file__).parent / "verdicts.json"
# SmolLM2's: seed, challenger, baseline, the baseline's name, and what else is asked.
RUNS = {
    "GRPO, seed 0": (0, "rl", "warm_start", VERIFIED, {}),
    "GRPO, seed 1, against a longer warm start": (1, "rl", "longer", VERIFIED, {}),
    "DPO, seed 0": (0, "dpo", "warm_start", VERIFIED, {}),
    "GRPO, seed 2": (2, "rl", "warm_start", VERIFIED, {}),
    "GRPO, seed 2, the hundredth gate of a year": (2, "rl", "warm_start", VERIFIED, {"look": Look(100, 0.012)}),
    "GRPO, seed 2, with rejection sampling as champion": (2, "rl", "rejection_sampling", "champion", {}),
    "DPO, seed 2": (2, "dpo", "warm_start", VERIFIED, {}),
    "RL that improved on no validation iteration": (0, "warm_start", "warm_start", VERIFIED, {"trained": False}),
    "the base, which cannot call the tools": (0, "base", "warm_start", VERIFIED, {}),
    "GRPO, seed 0, after the year's budget": (0, "rl", "warm_start", VERIFIED, {"look": Look(366, 1.0)}),
    "GRPO, seed 0, with graders that let 30% of failures pass": (0, "rl", "warm_start", VERIFIED, {"false_accepts": 0.3}),
    "GRPO, seed 0, a sandbox that failed in 60 of 200 tasks": (0, "rl", "warm_start", VERIFIED, {"failed": 60}),
    "GRPO, seed 0, on the first 15 tasks": (0, "rl", "warm_start", VERIFIED, {"tasks": 15}),
}


def smollm2(seed, policy):
    kept = json.loads((ROOT / "benchmarks/results/smollm2.json").read_text())["seeds"][str(seed)]
    return pd.DataFrame({**kept["tasks"]["held_out"], **kept["policies"][policy]["outcomes"]["held_out"]})


def judged(name):
    """The record of a verdict, as the gate's stage writes it."""
    seed, challenger, baseline, called, more = RUNS[name]
    asked = {key: value for key, value in more.items() if key not in ("failed", "tasks")}
    tables = [smollm2(seed, policy).head(more.get("tasks", 1000)) for policy in (challenger, baseline)]
    tables[0].loc[: more.get("failed", 0) - 1, "greedy"] = np.nan
    return decide(GateConfig(), *tables, baseline=called, **asked).to_record()


def demo_verdicts(folder):
    """Those of the two runs that the dashboard ships, the second of which challenges the first's champion."""
    from tracewheel.core.run_record import RunRecord
    from tracewheel.report.finished_run import FinishedRun

    work = unpack_demo(folder)
    found, spent = {}, 0.0
    for number, gate in enumerate(sorted(work.glob("*/gate.json")), 1):
        run = FinishedRun(RunRecord(work, gate.parent.name))
        ours, theirs = (pd.read_parquet(run.evaluation(name).path / RESULTS_FILE) for name in ("rl", run.baseline))
        config = GateConfig(gates_per_year=2, confidence=0.8)
        record = decide(config, ours, theirs, baseline=run.baseline, look=Look(number, spent)).to_record()
        spent += record["level"]
        assert record["difference"] == pytest.approx(run.gate["difference"])
        found[f"the demo's run {number}"] = record
    return found


def every_verdict(folder):
    found = {**demo_verdicts(folder), **{name: judged(name) for name in RUNS}}
    waiting = waits(found["GRPO, seed 2, the hundredth gate of a year"], instead=False)
    return {**found, "the same, where candidates are named": waiting}


def test_verdicts_of_real_runs_in_words(tmp_path):
    said = {name: in_words(json.loads(json.dumps(record))) for name, record in every_verdict(tmp_path).items()}
    assert said == json.loads(TEXTS.read_text())


def test_a_night_that_changed_nothing_asks_nothing():
    record = judged("RL that improved on no validation iteration") | {"level": None, "look": None}
    first = "RL improved on no validation iteration; the challenger is the starting policy. Nothing to test, no budget spent."
    assert in_words(record)[0] == first


def test_the_gain_of_a_promotion_is_the_one_to_expect():
    promoted, refused = judged("DPO, seed 0"), judged("DPO, seed 2")
    assert promoted["verdict"] == "promoted" and 0 < gain_of(promoted) < promoted["difference"]
    assert promoted["interval"][0] < gain_of(promoted) < promoted["interval"][1]
    assert gain_of(refused) == refused["difference"] and refused["expected_gain"] is None


def test_records_of_earlier_versions_are_told_too():
    old = {
        "verdict": "promoted",
        "difference": 0.21,
        "interval": [0.15, 0.27],
        "gained": 45,
        "lost": 3,
        "pairs": 200,
        "baseline": VERIFIED,
    }
    assert in_words(old)[:3] == [
        "Promoted: +21.0 points over the warm start on verified logs, measured on 200 tasks.",
        "The true difference lies between +15.0 and +27.0 points.",
        "It gains 45 tasks and loses 3.",
    ]
    assert in_words({"verdict": "refused", "reasons": ["it fell"]}) == ["Not promoted: it fell."]


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        texts = {name: in_words(record) for name, record in every_verdict(Path(temporary)).items()}
    TEXTS.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    json.dump(texts, sys.stdout, indent=1, ensure_ascii=False)
