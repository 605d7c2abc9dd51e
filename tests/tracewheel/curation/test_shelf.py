"""What lies in a file comes back as it was put there; the shortest solution stays."""

import random

import pandas
import pytest

from tracewheel.curation.shelf import ROWS_AT_ONCE, STATES, TASK_COLUMNS, Shelf, Solutions, Tasks
from tracewheel.environments.workspace.tasks import FAMILIES, make_task


@pytest.fixture
def shelf(tmp_path):
    shelf = Shelf(tmp_path / "values.jsonl")
    yield shelf
    shelf.close()


def test_values_come_back_in_whatever_order_they_are_asked_for(shelf):
    values = {f"key {number}": {"text": "line\nline \u2028 é" * number, "number": number} for number in range(50)}
    for key, value in values.items():
        shelf.put(key, value)
        assert shelf.get(key) == value
    shelf.put("key 7", "another")
    shelf.put("last", None)
    assert shelf.get("key 7") == "another" and shelf.get("last") is None and "last" in shelf
    assert [shelf.get(key) for key in reversed(list(values)) if key != "key 7"] == [
        value for key, value in reversed(values.items()) if key != "key 7"
    ]
    assert shelf.get("nowhere") is None and "nowhere" not in shelf and len(shelf) == 51
    assert list(shelf) == sorted([*values, "last"])


def test_the_shortest_solution_stays(tmp_path):
    solutions = Solutions(tmp_path / "solutions.jsonl")
    long, short = [("look", {"at": 1}), ("finish", {})], [("finish", {})]
    solutions.add({"one": long, "other": short})
    solutions.add({"one": short, "other": long})
    assert solutions.get("one") == short and solutions.get("other") == short and solutions.get("third") is None
    solutions.close()


def test_tasks_come_back_as_tasks_and_as_a_frame(tmp_path):
    drawn = random.Random(0)
    made = {task.id: task for task in (make_task(FAMILIES[n % 4], 2 + n % 3, drawn) for n in range(40))}
    tasks = Tasks(tmp_path / "tasks.jsonl")
    for task in made.values():
        tasks.add(task)
    assert list(tasks) == [made[task_id] for task_id in sorted(made)] and len(tasks) == len(made)
    assert all(tasks.families[task.id] == task.family and tasks.tiers[task.id] == task.tier for task in made.values())
    wanted = list(made)[::3]
    expected = pandas.DataFrame([made[task_id].to_record() for task_id in wanted])
    pandas.testing.assert_frame_equal(tasks.frame(wanted), expected)
    assert list(expected) == list(TASK_COLUMNS)
    pandas.testing.assert_frame_equal(tasks.frame(wanted, STATES), expected[list(STATES)])
    assert list(tasks.frame([])) == list(TASK_COLUMNS) and len(tasks.frame([])) == 0
    many = wanted * (2 * ROWS_AT_ONCE // len(wanted))
    assert tasks.frame(many, ["id"])["id"].tolist() == many
    tasks.close()
