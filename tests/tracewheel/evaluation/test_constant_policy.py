"""The best constant policy: what it may do, that it is chosen away from the held-out tasks, and what is not measured."""

import pandas as pd
import pytest

from tracewheel.config import RubricConfig
from tracewheel.core.types import Task
from tracewheel.environments import make_environment
from tracewheel.evaluation.constant_policy import best_constant_policy

RUBRIC = RubricConfig()


def curated(folder, tasks, episodes=()):
    """Of five tasks one is held out twice: two of five."""
    rows = [
        task.to_record() | {"split": ("train", "held_out", "validation", "train", "held_out")[n % 5]}
        for n, task in enumerate(tasks)
    ]
    pd.DataFrame(rows).to_parquet(folder / "tasks.parquet")
    columns = ["task_id", "messages"]
    pd.DataFrame([dict(zip(columns, row, strict=True)) for row in episodes], columns=columns).to_parquet(
        folder / "episodes.parquet"
    )
    return folder


def test_refusing_everything_is_the_refund_desk_s_floor_and_wins_about_a_third(tmp_path):
    tasks = make_environment("refund_desk").make_tasks(250, 5)
    found = best_constant_policy(RUBRIC, curated(tmp_path, tasks))
    (row,) = found["environments"]
    assert (row["environment"], row["does"], found["n"]) == ("refund_desk", "close(outcome=refused)", 100)
    assert 0.2 < found["success"] < 0.4 and found["interval"][0] < found["success"] < found["interval"][1]
    assert found["says"] == f"refund_desk: close(outcome=refused) ({found['success']:.1%})"
    assert best_constant_policy(RUBRIC, tmp_path) == found


class QuietWorld:
    """Questions and answers: no tools, no known solutions."""

    kind = f"{__name__}:QuietWorld"
    system_prompt = "Answer."

    def tools(self):
        return []

    def reset(self, task):
        pass

    def snapshot(self):
        return {}

    def step(self, tool, args):
        raise AssertionError("there are no tools")


def test_a_frequent_answer_is_a_policy_for_texts(tmp_path):
    answers = ["yes" if n % 3 else f"no {n}" for n in range(60)]
    tasks = [
        Task(f"t{n}", QuietWorld.kind, "qa", 1, "?", {}, {"answer": x}, "exact_match", f"t{n}") for n, x in enumerate(answers)
    ]
    found = best_constant_policy(RUBRIC, curated(tmp_path, tasks))
    assert found["environments"][0].get("does") == "says 'yes'", found
    assert found["success"] == pytest.approx(2 / 3, abs=0.1)


def test_what_would_ask_a_model_says_so(tmp_path):
    judged = RubricConfig.model_validate({"verifiers": [{"kind": "judge", "args": {}}]})
    curated(tmp_path, make_environment("workspace").make_tasks(10, 1))
    assert "asks a model" in best_constant_policy(judged, tmp_path)["says"]


def test_an_environment_that_fails_does_not_end_the_run(tmp_path):
    tasks = [Task("t", "workspace", "f", 1, "p", {"nothing": 1}, {}, "workspace", f"t{n}") for n in range(5)]
    assert "not measured: " in best_constant_policy(RUBRIC, curated(tmp_path, tasks))["says"]
