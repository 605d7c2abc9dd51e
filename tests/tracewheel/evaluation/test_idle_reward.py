"""What no work earns under a rubric: what is played, what counts, what is refused, and parts that do not exist."""

import pytest
from pydantic import ValidationError

from tracewheel.config import AuditConfig, RubricConfig
from tracewheel.core.errors import ConfigError, DoubtfulData
from tracewheel.core.kind_table import give
from tracewheel.core.types import Task
from tracewheel.environments import Observation, make_environment
from tracewheel.evaluation.idle_reward import check_idle, idle_reward

LOOKS = "calls without effect"


def objectives(part, **more):
    return RubricConfig.model_validate({"objectives": [{"kind": "part", "name": "parts", "part": part}], **more})


@pytest.fixture(scope="module")
def desk_tasks():
    return make_environment("workspace").make_tasks(40, 3)


def test_a_rubric_of_successes_pays_nothing_for_no_work(desk_tasks):
    found = idle_reward(RubricConfig(), desk_tasks, 0.3)
    (row,) = found["environments"]
    assert row["rewards"] == {"no call": 0.0, "only words": 0.0, LOOKS: 0.0} and row["full"] == 1.0
    assert (found["share"], found["reasons"], row["n"]) == (0.0, [], 24)
    assert check_idle(RubricConfig(), AuditConfig(), desk_tasks) == ""


def test_partial_credit_that_is_there_before_the_first_call_is_said_and_refused(desk_tasks):
    """Leaving the other files alone is a part of the workspace's verifier: it is there without any work."""
    rubric = objectives("workspace.untouched")
    found = idle_reward(rubric, desk_tasks, 0.3)
    assert found["share"] == 1.0 and found["says"].startswith("workspace: no call 1.00, only words 1.00, ")
    assert found["reasons"] == ["workspace: no call earns 100% of the full reward, more than 30% (audit.max_idle_reward)"]
    with pytest.raises(DoubtfulData, match=r"rubric: workspace: no call earns 100% .*before the first call"):
        check_idle(rubric, AuditConfig(), desk_tasks)
    assert "no call 1.00" in check_idle(rubric, AuditConfig(max_idle_reward=1.0), desk_tasks)


def test_a_part_that_no_verifier_gives_is_named_with_those_that_there_are(desk_tasks):
    with pytest.raises(ConfigError, match=r"no part 'workspace\.untuched'; its parts are .*workspace\.untouched"):
        idle_reward(objectives("workspace.untuched"), desk_tasks, 0.3)


def test_a_part_of_a_verifier_that_the_rubric_does_not_have_is_refused_as_the_profile_is_read():
    verifiers = [{"kind": "workspace"}, {"kind": "length", "args": {"most": 10}}]
    assert objectives("workspace.untouched", verifiers=verifiers[:1]).objectives
    with pytest.raises(ValidationError, match=r"objectives\.0\.part: no verifier of the rubric gives 'worspace\.moved'"):
        objectives("worspace.moved", verifiers=verifiers[:1])
    with pytest.raises(ValidationError, match="begins with workspace"):
        objectives("order_desk", verifiers=verifiers[:1])


class Counter:
    """Pays for every look, which changes nothing; and asks yes or no."""

    kind = f"{__name__}:Counter"
    system_prompt = "Look, then answer."

    def tools(self):
        number = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
        return [{"type": "function", "function": {"name": "look", "parameters": number}}]

    def task_from_log(self, prompt, logged):
        raise AssertionError("no log is read")

    def reset(self, task):
        pass

    def step(self, tool, args):
        return Observation("a wall", reward=0.2)

    def snapshot(self):
        return {}


def test_process_rewards_count_and_a_right_answer_by_chance_does_not():
    answers = ["yes" if n % 3 else "no" for n in range(24)]
    tasks = [
        Task(f"t{n}", give(Counter.kind), "qa", 1, "?", {}, {"answer": x}, "exact_match", f"t{n}")
        for n, x in enumerate(answers)
    ]
    (row,) = idle_reward(RubricConfig(), tasks, 0.3)["environments"]
    assert row["rewards"]["says 'yes'"] == pytest.approx(2 / 3)
    assert row["rewards"][LOOKS] == pytest.approx(0.6)
    assert (row["does"], row["share"]) == (LOOKS, pytest.approx(0.6))


def test_what_would_ask_a_model_is_not_measured(desk_tasks):
    judged = RubricConfig.model_validate({"verifiers": [{"kind": "judge", "args": {}}]})
    found = idle_reward(judged, desk_tasks, 0.3)
    assert found["share"] is None and "asks a model" in found["says"] and found["reasons"] == []
