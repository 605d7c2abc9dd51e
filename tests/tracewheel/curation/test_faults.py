"""The kind of a failure, from an episode's calls and its breakdown."""

import json
import random
import re

import pytest

from data.workspace_logs import faulty_calls
from tracewheel.core.types import Trace
from tracewheel.curation.divergence import Path, first_divergence
from tracewheel.curation.faults import FAULT_OF_PART, KINDS, Fault, FinishedEpisode, fault_word, find_fault
from tracewheel.curation.replay import replay_trace
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS, WorkspaceEnvironment, play
from tracewheel.environments.workspace.tasks import make_task


def kind_of(task, calls):
    environment = {"kind": "workspace", "initial_state": task.initial_state, "goal": task.goal}
    trace = Trace("t", play(task, calls), TOOLS, environment, None, None, None, None, None, "f", 1)
    replay = replay_trace(trace, WorkspaceEnvironment())
    return fault_word(FinishedEpisode(trace.messages, trace.tools, replay.breakdown, replay.ended), replay.success)


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
def test_the_breakdown_decides_when_the_calls_are_valid(success, breakdown, kind):
    assert fault_word(FinishedEpisode([{"role": "assistant", "content": "Done."}], [], breakdown), success) == kind


def episode(*calls, last="Done."):
    """Messages of calls (tool, arguments), then words."""
    messages = [{"role": "user", "content": "Go."}]
    for number, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}
        messages.append({"role": "assistant", "tool_calls": [{"id": str(number), "type": "function", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": str(number), "content": "ok"})
    return [*messages, {"role": "assistant", "content": last}]


PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}, "order": {"enum": ["name", "age"]}},
    "required": ["path"],
    "additionalProperties": False,
}
LOOK = [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}]
LOOK += [{"type": "function", "function": {"name": "take", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        ({}, "look: no 'path'"),
        ({"path": 3}, "look: 'path' is not what the schema asks for"),
        ({"path": "a", "depth": "deep"}, "look: 'depth' is not what the schema asks for"),
        ({"path": "a", "depth": True}, "look: 'depth' is not what the schema asks for"),
        ({"path": "a", "order": "size"}, "look: 'order' is not what the schema asks for"),
        ({"path": "a", "colour": "red"}, "look: 'colour' is no argument"),
        ("[1]", "look: no object"),
        ("{", "look: no object"),
    ],
)
def test_arguments_that_the_schema_does_not_allow(arguments, detail):
    assert find_fault(FinishedEpisode(episode(("look", arguments)), LOOK)) == Fault("invalid_call", detail)


@pytest.mark.parametrize("arguments", [{"path": "a"}, {"path": "a", "depth": 2.0}, {"path": "a", "order": "age"}])
def test_arguments_that_the_schema_allows(arguments):
    assert find_fault(FinishedEpisode(episode(("look", arguments)), LOOK)).kind == "unknown"


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        ("aa", "loop"),
        ("ababab", "loop"),
        ("abcabcabc", "loop"),
        ("xababab", "loop"),
        ("abab", "unknown"),
        ("abcabc", "unknown"),
    ],
)
def test_repeated_calls_are_a_loop(calls, kind):
    made = [("take", {"what": letter}) for letter in calls]
    assert find_fault(FinishedEpisode(episode(*made), LOOK)).kind == kind


def test_an_episode_that_was_cut_off_was_too_long():
    cut_off = FinishedEpisode(episode(("take", {})), LOOK, {"manifest": 0.0}, ended=False, stop_reason="max_turns")
    assert find_fault(cut_off) == Fault("too_long", "max_turns")


@pytest.mark.parametrize(
    ("failed", "success", "kind", "detail"),
    [
        ("ab", "abc", "early_stop", "never called c"),
        ("ab1", "ab2", "wrong_arguments", "b"),
        ("abc", "ab", "wrong_final_state", "called c besides"),
        ("ac", "ab", "wrong_final_state", "called c, never b"),
        ("ba", "ab", "unknown", ""),
    ],
)
def test_a_failure_is_compared_with_a_success(failed, success, kind, detail):
    """Letters are tools, the digits after them arguments."""

    def made(calls):
        return episode(*[(part[0], {"n": part[1:]}) for part in re.findall(r"[a-c]\d?", calls)])

    divergence = first_divergence(Path.of("failed", made(failed), []), [Path.of("success", made(success), [])])
    tools = [{"function": {"name": letter}} for letter in "abc"]
    messages = made(failed)
    assert find_fault(FinishedEpisode(messages, tools), divergence) == Fault(kind, detail)
    # The verifier's breakdown takes precedence.
    known = find_fault(FinishedEpisode(messages, tools, {"manifest": 0.0}), divergence)
    assert known == Fault("wrong_final_state", "forgot_manifest")


def test_without_known_tools_none_is_invented():
    assert find_fault(FinishedEpisode(episode(("anything", {})), [])).kind == "unknown"


def test_every_part_has_a_known_kind():
    for kind, _ in FAULT_OF_PART.values():
        assert kind in KINDS
