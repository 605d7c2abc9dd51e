"""The kind of a failure, from an episode's calls and its breakdown."""

import random

import pytest

from tracewheel.curation.faults import fault_kind
from tracewheel.curation.replay import replay_trace
from tracewheel.environments.workspace import TOOLS, WorkspaceEnvironment
from tracewheel.environments.workspace_agent import play, solution
from tracewheel.environments.workspace_logs import faulty_calls
from tracewheel.environments.workspace_tasks import make_task
from tracewheel.types import Trace


def kind_of(task, calls):
    environment = {"kind": "workspace", "initial_state": task.initial_state, "goal": task.goal}
    trace = Trace("t", play(task, calls), TOOLS, environment, None, None, None, None, None, "f", 1)
    replay = replay_trace(trace, WorkspaceEnvironment())
    return fault_kind(trace.messages, trace.tools, replay.success, replay.breakdown, replay.ended)


@pytest.mark.parametrize(
    ("family", "fault", "kind"),
    [
        ("prefix", "", ""),
        ("prefix", "forget_manifest", "forgot_manifest"),
        ("pattern", "stop_early", "stopped_early"),
        ("list", "move_one_too_many", "moved_too_many"),
        ("content", "invent_tool", "invented_tool"),
        ("content", "repeat_calls", "repeated_calls"),
    ],
)
def test_each_fault_of_the_deployed_agent_is_recognised(family, fault, kind):
    task = make_task(family, 4, random.Random(3))
    assert kind_of(task, faulty_calls(task, fault)) == kind


def test_an_episode_that_just_stops_is_unfinished():
    task = make_task("pattern", 3, random.Random(3))
    assert kind_of(task, solution(task)[:2]) == "unfinished"


@pytest.mark.parametrize(
    ("success", "breakdown", "kind"),
    [
        (1.0, {"manifest": 0.0}, ""),
        (None, {}, ""),
        (float("nan"), {}, ""),
        (0.0, {"manifest": 0.0, "untouched": 0.0}, "moved_too_many"),
        (0.0, {"colour": 0.0}, "failed_colour"),
        (0.5, {"colour": 1.0}, "unknown"),
    ],
)
def test_the_breakdown_decides_when_the_calls_show_nothing(success, breakdown, kind):
    assert fault_kind([{"role": "assistant", "content": "Done."}], [], success, breakdown, ended=True) == kind
