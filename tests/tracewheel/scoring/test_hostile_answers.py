"""No answer of a policy turns its 0 into unscored: what is huge, deep, colliding or slow is 0, and soon, by every verifier."""

import json
import time

import pytest

from tracewheel.config import RubricConfig
from tracewheel.core.time_limits import Job, Timer, WatchedThreads, untimed
from tracewheel.core.types import Task, Trajectory
from tracewheel.scoring.rubric import Rubric

SECONDS = 15.0
SMALL = [number * (2**61 - 1) for number in range(-3, 4)]  # that fit into 64 bits
LONG = "a" * 400_000
DEEP = "[" * 100_000 + "]" * 100_000


def json_list(count, shift=0.0):
    return [{"n": [number + shift]} for number in range(count)]


# Verifier, arguments, goal, what the agent said.
TEXTS = [
    ("exact_match", {}, {"answer": "A"}, LONG),
    ("exact_match", {"normalise": ["squad"]}, {"answer": "A"}, ", the! " * 50_000),
    ("exact_match", {"normalise": ["squad"]}, {"answer": "A"}, "the"),
    ("regex", {"pattern": "(a+)+b"}, {}, LONG),
    ("regex", {"pattern": "a"}, {}, "\ud800"),
    ("format", {"json_schema": {"type": "string", "pattern": "^(a|a)+b$"}}, {}, json.dumps("a" * 40)),
    ("format", {"json_schema": {"type": "array", "uniqueItems": True}}, {}, json.dumps([*json_list(9000), 1, 1.0])),
    ("format", {"json_schema": {"type": "object"}}, {}, DEEP),
    ("format", {"tags": ["a", "b"]}, {}, "<a>" * 100_000),
    ("answer_match", {}, {"answers": ["A"]}, LONG),
    ("state_diff", {}, {"required": [{"path": "/answer", "to": "A"}]}, DEEP),
    ("recorded", {}, {"references": [[{"key": "a"}, {"key": "b"}]]}, LONG),
    ("tool_use", {"tools": ["a"]}, {}, LONG),
]  # fmt: skip


def trajectory(text, state):
    turns = [{"start": 0, "end": 0, "calls": 0, "malformed": 0, "policy_version": 0}]
    messages = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": text}]
    return Trajectory("e", "t", "g", 0, 0, 0, 1.0, [], [], [], turns, state, messages, "finished")


@pytest.mark.parametrize(("kind", "args", "goal", "said"), TEXTS, ids=lambda value: str(value)[:20])
def test_a_hostile_answer_is_0(kind, args, goal, said):
    check_hostile(kind, args, goal, said)


def check_hostile(kind, args, goal, said):
    rubric = RubricConfig.model_validate({"verifiers": [{"kind": kind, "args": args}]})
    task = Task("t", "no_such", "f", 1, "Do it.", {}, goal, kind, "t")
    state = {"calls": [{"key": str(n)} for n in range(100_000)], "unrecorded": []} if kind == "recorded" else {}
    state |= {"answer": said} if kind in ("answer_match", "state_diff", "process_checks") else {}
    began = time.thread_time()
    score = Rubric(rubric, [task]).score(task, trajectory(said, state))
    assert (score.status, score.total) == ("scored", 0.0), score.detail[:300]
    assert time.thread_time() - began < SECONDS


def test_waiting_within_waiting_counts_for_no_limit():
    """A verifier waits for its box, which waits for a place: both are one wait."""

    def work():
        with untimed():
            with untimed():
                time.sleep(0.1)
            time.sleep(0.6)
        return "done"

    threads = WatchedThreads(1)
    job = Job(work, Timer(0.3), "work")
    threads.run([job])
    threads.close()
    assert job.result == "done" and job.error is None


def test_no_answer_leaves_out_a_part_that_an_objective_reads():
    check_part("tool_use", "valid", {"tools": ["a"]})


def check_part(kind, part, args):
    objectives = [{"kind": "part", "name": "a", "part": f"{kind}.{part}"}]
    given = {"verifiers": [{"kind": kind, "args": args}], "objectives": objectives}
    task = Task("t", "no_such", "f", 1, "Do it.", {}, {"answer": "3"}, kind, "t")
    score = Rubric(RubricConfig.model_validate(given), [task]).score(task, trajectory("nothing", {}))
    assert (score.status, score.total) == ("scored", 0.0), score.detail
