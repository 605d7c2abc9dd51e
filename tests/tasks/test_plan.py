"""What a run makes, listed from its profile, and what of it a work folder has."""

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.engine.plan import Known, stages_of
from tasks.engine.stage_code import TASKS
from tracewheel.config import load_config

CONFIGS = Path(__file__).parents[2] / "configs"
SHORT = str(CONFIGS / "tiny-short.yaml")


def labels(*settings, **known):
    return [call.label for call in stages_of(load_config(SHORT, list(settings)), Known(**known))]


def test_the_stages_of_a_short_run_in_their_order():
    assert labels("comparison={}") == [
        "ingest", "curate", "warm_start verified", "evaluate base validation", "evaluate warm_start_verified validation",
        "rollout 1 of 2", "score 1 of 2", "update 1 of 2", "evaluate rl-1 validation",
        "rollout 2 of 2", "score 2 of 2", "update 2 of 2", "evaluate rl-2 validation",
        "evaluate warm_start_verified held_out", "evaluate rl held_out", "evaluate warm_start_verified harder",
        "evaluate rl harder", "gate",
    ]  # fmt: skip


def test_a_run_from_a_champion_has_no_warm_start_and_an_audit_where_the_gate_asks():
    found = labels("comparison={}", "gate.false_accepts=audit", champion=True)
    assert [label for label in found if label.startswith(("warm_start", "champion", "audit"))] == ["champion", "audit"]


@pytest.mark.parametrize(
    ("settings", "known", "last"),
    [
        (["training.episodes=1"], {}, "update 1 of 2"),
        ([], {"iterations": 1}, "update 1 of 2"),
        ([], {"went_back": frozenset({2})}, "go_back 2 of 2"),
    ],
)
def test_a_loop_ends_with_its_budget_and_goes_back_with_the_guard(settings, known, last):
    found = labels(*settings, **known)
    assert last in found and f"evaluate rl-{2 if last.startswith('go_back') else 3} validation" not in found
    assert [label for label in found if label.startswith(("update", "go_back"))][-1] == last


def test_a_rate_found_by_trials_is_a_stage_of_the_first_iteration():
    found = labels("learner.learning_rate=auto")
    assert found.index("score 1 of 2") + 1 == found.index("rate_trials") == found.index("update 1 of 2") - 1


def test_work_is_counted_in_episodes_of_the_curated_tasks():
    config = load_config(SHORT, ["rollout.mode=async"])
    tasks = {"train": 5, "validation": 4, "held_out": 3, "harder": 0}
    units = {call.label: call.units for call in stages_of(config, Known(tasks=tasks))}
    assert units["collect 1 of 2"] == 5 * 4, "five tasks, groups of four"
    assert units["evaluate base validation"] == 4 * 2 and units["evaluate rl held_out"] == 3 * 3


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_a_longer_loop_goes_on_with_the_updates_of_a_shorter_one(schedule):
    one, other = (load_config(SHORT, [f"learner.schedule={schedule}", f"training.iterations={count}"]) for count in (2, 9))
    same = TASKS["update"].settings(one) == TASKS["update"].settings(other)
    assert same == (schedule == "constant"), "a rate that falls to the end depends on where that is"


def test_what_says_how_a_run_stands_loads_no_pytorch():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, tasks.records.decisions, tasks.tracking.registry; print('torch' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
