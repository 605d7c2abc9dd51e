"""Records in files are read as they were stored; the shortest solution stays."""

import random

import pandas
import pytest

from tracewheel.curation.task_records import ROWS_AT_ONCE, STATE_COLUMNS, TASK_COLUMNS, JsonFile, Solutions, TaskRecords
from tracewheel.environments.workspace.tasks import FAMILIES, make_task


@pytest.fixture
def values_file(tmp_path):
    values_file = JsonFile(tmp_path / "values.jsonl")
    yield values_file
    values_file.close()


def test_values_are_read_in_any_order(values_file):
    values = {f"key {number}": {"text": "line\nline \u2028 é" * number, "number": number} for number in range(50)}
    for key, value in values.items():
        values_file.put(key, value)
        assert values_file.get(key) == value
    values_file.put("key 7", "another")
    values_file.put("last", None)
    assert values_file.get("key 7") == "another" and values_file.get("last") is None and "last" in values_file
    assert [values_file.get(key) for key in reversed(list(values)) if key != "key 7"] == [
        value for key, value in reversed(values.items()) if key != "key 7"
    ]
    assert values_file.get("nowhere") is None and "nowhere" not in values_file and len(values_file) == 51
    assert list(values_file) == sorted([*values, "last"])


def test_the_shortest_solution_stays(tmp_path):
    solutions = Solutions(tmp_path / "solutions.jsonl")
    long, short = [("look", {"at": 1}), ("finish", {})], [("finish", {})]
    solutions.add({"one": long, "other": short})
    solutions.add({"one": short, "other": long})
    assert solutions.get("one") == short and solutions.get("other") == short and solutions.get("third") is None
    solutions.close()


def test_tasks_are_read_as_tasks_and_as_a_frame(tmp_path):
    drawn = random.Random(0)
    made = {task.id: task for task in (make_task(FAMILIES[n % 4], 2 + n % 3, drawn) for n in range(40))}
    tasks = TaskRecords(tmp_path / "tasks.jsonl")
    for task in made.values():
        tasks.add(task)
    assert list(tasks) == [made[task_id] for task_id in sorted(made)] and len(tasks) == len(made)
    assert all(tasks.families[task.id] == task.family and tasks.tiers[task.id] == task.tier for task in made.values())
    wanted = list(made)[::3]
    expected = pandas.DataFrame([made[task_id].to_record() for task_id in wanted])
    pandas.testing.assert_frame_equal(tasks.frame(wanted), expected)
    assert list(expected) == list(TASK_COLUMNS)
    pandas.testing.assert_frame_equal(tasks.frame(wanted, STATE_COLUMNS), expected[list(STATE_COLUMNS)])
    assert list(tasks.frame([])) == list(TASK_COLUMNS) and len(tasks.frame([])) == 0
    many = wanted * (2 * ROWS_AT_ONCE // len(wanted))
    assert tasks.frame(many, ["id"])["id"].tolist() == many
    tasks.close()
