"""An episode of a program that rewrote its history, with every kind of field, written down by hand."""

import importlib.util
import json
from pathlib import Path

import pytest

from tracewheel.core.types import Score, Trajectory
from tracewheel_lab.export.episode import Episode

TESTS = Path(__file__).parents[3] / "tests"


def _fixtures_of(*conftests):
    """The fixtures of the core's tests, which this folder does not lie below."""
    for path in conftests:
        spec = importlib.util.spec_from_file_location(f"lab_{path.replace('/', '_')}", TESTS / path / "conftest.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield from (
            (name, value) for name, value in vars(module).items() if type(value).__name__ == "FixtureFunctionDefinition"
        )


globals().update(_fixtures_of(".", "flows", "tracewheel", "tracewheel/dashboard"))

SYSTEM = {"role": "system", "content": "You file."}
ASK = {"role": "user", "content": "Tidy up."}


def call(number, name, arguments):
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


LIST = {"role": "assistant", "content": None, "reasoning_content": "look first", "tool_calls": [call(1, "list", '{"a":1}')]}
LISTED = {"role": "tool", "tool_call_id": "c1", "name": "list", "content": "é.txt"}
MOVE = {"role": "assistant", "content": "Moving.", "tool_calls": [call(2, "move", '{"n": 2}'), call(3, "move", "not JSON")]}
MOVED = {"role": "tool", "tool_call_id": "c2", "name": "move", "content": ""}
FAILED = {"role": "tool", "tool_call_id": "c3", "name": "move", "content": "error"}
COMPACTED = {"role": "user", "content": "So far: one file moved."}
DONE = {"role": "assistant", "content": "Done."}
HELP = {"role": "user", "content": "Which files are old?"}
HELPED = {"role": "assistant", "content": "None."}


@pytest.fixture(scope="session")
def branched():
    """Four turns in three histories: the program compacted its history after the second turn, and asked a helper.

    Flat tokens:   0 1 2 | 3 4 | 5 6 | 7 8 9 | 10 11 | 12 13 | 14 15
                   prompt  T0    obs   T1      after T0: summary, T2   helper: prompt, T3
    Token 5 is forced by exploration: it belongs to turn 1, which sampled 7 to 9.
    """
    ids = list(range(100, 116))
    sampled = {3, 4, 7, 8, 9, 11, 13, 14, 15}
    turns = [
        {"start": 3, "end": 5, "calls": 1, "malformed": 0, "policy_version": 2, "forced": 0, "changes": []},
        {
            "start": 7,
            "end": 10,
            "calls": 2,
            "malformed": 1,
            "policy_version": 2,
            "forced": 1,
            "changes": [[8, 3]],
            "reward": 0.0,
        },
        {"start": 11, "end": 12, "calls": 0, "malformed": 0, "policy_version": 3, "forced": 0, "changes": []},
        {"start": 13, "end": 16, "calls": 0, "malformed": 0, "policy_version": 3, "forced": 0, "changes": []},
    ]
    branches = [
        {"reason": "", "turns": [0, 1], "messages": [SYSTEM, ASK, LIST, LISTED, MOVE, MOVED, FAILED], "agent": "main"},
        {
            "reason": "messages were removed",
            "turns": [2],
            "messages": [SYSTEM, ASK, LIST, LISTED, COMPACTED, DONE],
            "agent": "main",
        },
        {"reason": "another opening", "turns": [3], "messages": [HELP, HELPED], "agent": "helper"},
    ]
    return Trajectory(
        id="t1",
        task_id="task-7",
        group="task-7",
        sample=1,
        seed=2**63 + 1,
        policy_version=2,
        temperature=0.7,
        token_ids=ids,
        action_mask=[int(place in sampled) for place in range(16)],
        logprobs=[-place / 100 if place in sampled else 0.0 for place in range(16)],
        turns=turns,
        final_state={"files": []},
        messages=branches[2]["messages"],
        stop_reason="finished",
        forks=[[10, 4], [12, -1]],
        branches=branches,
    )


@pytest.fixture(scope="session")
def scored(branched):
    score = Score("t1", "task-7", "task-7", "scored", 0.25, {"moved": 0.5}, answer="Done.", explanation="one file is missing")
    return Episode(branched, score, [{"type": "function", "function": {"name": "list"}}], "tiny", "rollout 3")


@pytest.fixture(scope="session")
def as_json():
    """What a file would give back."""
    return lambda value: json.loads(json.dumps(value, allow_nan=False))
