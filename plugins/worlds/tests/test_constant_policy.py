"""What always doing the same would earn in the wheel's environments."""

import json

import pytest

from tests.tracewheel.evaluation.test_constant_policy import RUBRIC, curated
from tracewheel.core.types import Task
from tracewheel.environments import make_environment
from tracewheel.evaluation.constant_policy import best_constant_policy


def test_the_calls_of_the_logs_are_tried_as_they_are(tmp_path):
    tasks = make_environment("math").make_tasks(60, 2)
    tasks = [Task(**{**vars(task), "goal": {"answer": "7"} if n % 2 else task.goal}) for n, task in enumerate(tasks)]
    call = {"id": "c", "type": "function", "function": {"name": "answer", "arguments": json.dumps({"value": "7"})}}
    episodes = [(task.id, json.dumps([{"role": "assistant", "content": None, "tool_calls": [call]}])) for task in tasks]
    pytest.importorskip("math_verify")
    found = best_constant_policy(RUBRIC, curated(tmp_path, tasks, episodes))
    assert found["environments"][0]["does"] == "answer(value=7)" and 0.3 < found["success"] < 0.8


def test_what_would_take_long_says_so(tmp_path):
    found = best_constant_policy(RUBRIC, curated(tmp_path, make_environment("terminal").make_tasks(10, 1)))
    assert (found["success"], found["n"]) == (None, 0)
    assert found["says"] == "terminal: not measured: its tools run boxes, processes or servers, which takes long"
