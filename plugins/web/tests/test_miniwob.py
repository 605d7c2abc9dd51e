"""MiniWoB++: seeds, rewards and what is stored."""

import pytest

from plugins.web.tests.conftest import opened
from tracewheel import DataError, make_verifier
from tracewheel_web.miniwob.agents import AGENTS


@pytest.fixture(scope="module")
def environment(miniwob_pages):
    found = opened("miniwob")
    yield found
    found.close()


@pytest.fixture(scope="module")
def tasks(environment):
    return environment.make_tasks(3, seed=1)


def rewarded(environment, task, calls):
    environment.reset(task)
    for call in calls:
        if environment.step(*call).done:
            break
    return make_verifier(task.verifier).verify(task, environment.snapshot())


def check(environment, tasks):
    for task in tasks:
        assert rewarded(environment, task, environment.solution(task)) == (1.0, {"reward": 1.0, "raw": 1.0}), task
        assert rewarded(environment, task, [])[0] == 0.0, task
        for name, calls in environment.near_misses(task).items():
            assert rewarded(environment, task, calls)[0] == 0.0, (task, name, calls)


def test_a_page_is_solved_by_its_agent_and_by_nothing_less(environment, tasks):
    check(environment, tasks)


@pytest.mark.slow
def test_so_is_every_page(environment):
    tasks = environment.make_tasks(len(AGENTS), seed=1)
    assert {task.family for task in tasks} == set(AGENTS) and {task.tier for task in tasks} == {1, 2, 3}
    check(environment, tasks)


def test_the_same_seed_gives_the_same_page_whatever_was_there_before(environment, tasks):
    for task in [*tasks, *reversed(tasks)]:
        environment.reset(task)
        assert task.prompt.endswith(environment.step("look", {}).text)
    again = environment.task_from_log(tasks[0].prompt, {"initial_state": tasks[0].initial_state})
    assert again == tasks[0]


def test_a_wrong_end_is_less_than_nothing_for_the_page_and_nothing_for_us(environment):
    task = next(task for task in environment.make_tasks(9, seed=2) if task.family == "choose-list")
    (submit,) = [item["ref"] for item in _items(environment, task) if item["role"] == "button"]
    listed = next(item for item in environment.view.items if "options" in item)
    wrong = next(option for option in listed["options"] if f"Select {option} from" not in task.prompt)
    calls = [("select", {"ref": listed["ref"], "option": wrong}), ("click", {"ref": submit})]
    assert rewarded(environment, task, calls) == (0.0, {"reward": 0.0, "raw": -1.0})
    assert environment.step("look", {}).text == "error: the episode is over"


def _items(environment, task):
    environment.reset(task)
    return environment.view.items


@pytest.mark.parametrize(
    "start", [None, {"page": "click-tab"}, {"page": "../core/core", "seed": 1}, {"page": "click-tab", "seed": True}]
)
def test_a_log_names_only_our_pages(environment, start):
    with pytest.raises(DataError, match="initial_state"):
        environment.task_from_log("x", {"initial_state": start})


def test_pictures_are_kept_by_digest_when_asked_for(miniwob_pages, tmp_path):
    environment = opened("miniwob", pages=["click-button"], screenshots=str(tmp_path / "pictures"))
    (task,) = environment.make_tasks(1, seed=0)
    assert "raw" in rewarded(environment, task, environment.solution(task))[1]
    pictures = environment.snapshot()["pictures"]  # the place that was clicked lies on what was there before
    assert [sorted(picture) for picture in pictures] == [["at", "picture", "size"], ["picture", "size"]]
    for picture in pictures:
        content = (tmp_path / "pictures" / f"{picture['picture']}.webp").read_bytes()
        assert content[:4] == b"RIFF" and len(content) < 20_000
    environment.close()
