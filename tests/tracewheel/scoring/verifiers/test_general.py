"""The general verifiers against a case table, and on stored episodes."""

import json
from pathlib import Path

import pytest

from tracewheel.core.errors import ConfigError
from tracewheel.core.kinds import kind_text
from tracewheel.core.types import Task
from tracewheel.environments.base import turn_messages
from tracewheel.scoring.verifiers import episode_from, make_verifier, verdict_of

TABLE = json.loads(Path(__file__).with_name("general_cases.json").read_text())
CASES = [(kind, case) for kind, cases in TABLE.items() for case in cases]
RAISED = {"KeyError": KeyError, "ValueError": ValueError}


def text_of(case):
    text = case["text"]
    return text["repeat"] * text["times"] if isinstance(text, dict) else text


def judged(kind, case):
    messages = [{"role": "user", "content": "Do it."}]
    for number, (tool, args, reply) in enumerate(case.get("calls", [])):
        messages += turn_messages(number, tool, args, reply)
    if "text" in case:
        messages.append({"role": "assistant", "content": text_of(case)})
    state = case.get("state", {})
    task = Task("t", "no_such", "f", 1, "Do it.", case.get("start", {}), case.get("goal", {}), kind, "t")
    verifier = make_verifier(kind_text(kind, case.get("args")))
    return verdict_of(verifier, task, state, lambda: episode_from(messages, 1, state, tokens=case.get("tokens")))


def check_case(kind, case):
    if "raises" in case:
        with pytest.raises(RAISED[case["raises"]]):
            judged(kind, case)
        return
    verdict = judged(kind, case)
    assert verdict.total == pytest.approx(case["total"], abs=1e-12)
    if "parts" in case:
        assert verdict.parts == case["parts"]


@pytest.mark.parametrize(("kind", "case"), CASES, ids=[f"{kind}: {case['name']}" for kind, case in CASES])
def test_case_table(kind, case):
    check_case(kind, case)


@pytest.mark.parametrize(
    ("kind", "args", "said"),
    [
        ("exact_match", {"place": "call", "key": "answer"}, "names a tool and its argument"),
        ("exact_match", {"place": "state", "key": "answer"}, "JSON Pointer"),
        ("regex", {"pattern": "(a)\\1"}, "no backreferences"),
        ("format", {"thinking": None}, "ask for something"),
        ("format", {"json_schema": {"type": "thing"}}, "not a JSON Schema"),
        ("format", {"json_schema": {"$ref": "http://127.0.0.1/schema"}}, "is not read"),
        ("state_diff", {"strict": True}, "no such argument"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(kind, args, said):
    with pytest.raises((ConfigError, ValueError), match=said):
        make_verifier(kind_text(kind, args))


def test_progress_of_a_state_is_the_share_of_required_changes_until_something_else_changes():
    goal = {"required": [{"path": "/x", "to": 2}, {"path": "/y", "to": 2}]}
    task = Task("t", "e", "f", 1, "Do it.", {"x": 1, "y": 1}, goal, "state_diff", "t")
    found = [make_verifier("state_diff").progress(task, state) for state in ({"x": 2, "y": 1}, {"x": 2, "y": 2}, {"x": 2})]
    assert found == [0.5, 1.0, 0.5]
    assert make_verifier("state_diff").progress(task, {"x": 2, "y": 1, "z": 1}) == 0.0
