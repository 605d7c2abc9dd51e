"""The assistant: what its tools change, what its verifier says, what it takes from a log, and whom its tasks share."""

import itertools
import random

import pytest

from tracewheel.core.errors import DataError
from tracewheel_worlds.assistant.environment import AssistantEnvironment
from tracewheel_worlds.assistant.goals import FAMILIES, TIERS, is_free
from tracewheel_worlds.assistant.stock import CIRCLES, NOTES, PEOPLE, PLACES, TITLES, circle_of
from tracewheel_worlds.assistant.tasks import assistant_task, make_task
from tracewheel_worlds.assistant.verifier import AssistantVerifier

CONTACTS = [{"name": "Ann", "place": "Oslo"}, {"name": "Ben", "place": "Rome"}]
STATE = {
    "contacts": CONTACTS,
    "events": [{"day": "Mon", "time": "9:00", "title": "audit", "who": "Ben", "hours": 2}],
    "inbox": [],
    "messages": [],
    "timesheet": [{"day": "Mon", "title": "audit", "hours": 2}],
    "notes": [],
}
GOAL = {"family": "book", "tier": 3, "who": "Ann", "title": "demo", "day": "Mon", "time": "9:00", "other": "14:00", "hours": 1}
TASK = assistant_task("Book demo with Ann on Mon at 9:00, or at 14:00 if I am busy. Confirm it. Log 1h for it.", STATE, GOAL)
EVENT = ("add_event", {"day": "Mon", "time": "14:00", "title": "demo", "who": "Ann"})
CONFIRMED = ("send", {"to": "Ann", "text": "demo Mon 14:00"})
LOGGED = ("log_hours", {"day": "Mon", "title": "demo", "hours": 1})


def parts(*calls):
    apps = AssistantEnvironment()
    apps.reset(TASK)
    for name, args in calls:
        apps.step(name, args)
    return AssistantVerifier().verify(TASK, apps.snapshot())


@pytest.mark.parametrize("calls", itertools.permutations((EVENT, CONFIRMED, LOGGED)))
def test_what_was_asked_for_counts_in_any_order(calls):
    assert parts(*calls) == (1.0, {"events": 1.0, "messages": 1.0, "timesheet": 1.0, "untouched": 1.0})


@pytest.mark.parametrize(
    ("calls", "failed"),
    [
        ([EVENT, CONFIRMED], {"timesheet"}),
        ([EVENT, CONFIRMED, LOGGED, LOGGED], {"untouched"}),
        ([EVENT, CONFIRMED, LOGGED, ("cancel_event", {"day": "Mon", "time": "9:00"})], {"untouched"}),
        ([EVENT, CONFIRMED, LOGGED, ("write_note", {"title": "demo", "text": "done"})], {"untouched"}),
        ([EVENT, ("send", {"to": "Ben", "text": "demo Mon 14:00"}), LOGGED], {"messages", "untouched"}),
        ([EVENT, CONFIRMED, ("log_hours", {"day": "Mon", "title": "demo", "hours": True})], {"timesheet"}),
        ([("add_event", {**EVENT[1], "time": "9:00"}), CONFIRMED, LOGGED], {"events", "untouched"}),
    ],
)
def test_each_part_fails_alone(calls, failed):
    total, breakdown = parts(*calls)
    assert total == 0.0 and {name for name, value in breakdown.items() if value == 0.0} == failed


def test_an_entry_that_was_there_before_does_not_count_as_new():
    """The same entry twice is two entries, so one that was there before does not stand for one that was asked for."""
    state = {**STATE, "timesheet": [*STATE["timesheet"], {"day": "Mon", "title": "demo", "hours": 1}]}
    task = assistant_task(TASK.prompt, state, GOAL)
    apps = AssistantEnvironment()
    apps.reset(task)
    for name, args in (EVENT, CONFIRMED):
        apps.step(name, args)
    assert AssistantVerifier().verify(task, apps.snapshot())[1]["timesheet"] == 0.0
    apps.step(*LOGGED)
    assert AssistantVerifier().verify(task, apps.snapshot())[0] == 1.0


@pytest.mark.parametrize(
    ("tool", "args", "text"),
    [
        ("events", {"day": "Mon"}, "9:00 audit Ben 2"),
        ("events", {"day": "Tue"}, "(none)"),
        ("contacts", {"place": "Oslo"}, "Ann"),
        ("timesheet", {"day": "Mon"}, "audit 2"),
        ("send", {"to": "Zoe", "text": "yes"}, "error: no contact Zoe"),
        ("cancel_event", {"day": "Mon", "time": "8:00"}, "error: no event on Mon at 8:00"),
        ("log_hours", {"day": "Mon", "title": "demo"}, "error: arguments must be day, title, hours"),
        ("call", {}, "error: no tool named call"),
    ],
)
def test_what_the_apps_reply(tool, args, text):
    apps = AssistantEnvironment()
    apps.reset(TASK)
    before = apps.snapshot()
    observation = apps.step(tool, args)
    assert observation.text == text and observation.error == text.startswith("error")
    assert apps.snapshot() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"initial_state": {**STATE, "events": [{"day": "Mon"}]}}, "initial_state.events"),
        ({"goal": {**GOAL, "family": "dance"}}, "'goal' needs 'family'"),
        ({"goal": {key: value for key, value in GOAL.items() if key != "hours"}}, "needs 'hours'"),
        ({"goal": {"family": "share", "tier": 1, "title": "menu", "who": "Ann"}}, "not in 'initial_state'"),
        ({"goal": {"family": "hours", "tier": 2, "day": "Fri"}}, "asks for no change"),
    ],
)
def test_logs_that_are_not_whole_are_refused(change, said):
    with pytest.raises(DataError, match=said):
        AssistantEnvironment().task_from_log("Book it.", {"initial_state": STATE, "goal": GOAL} | change)


def test_circles_share_no_name():
    assert all(len(set(words)) == len(words) for words in (PEOPLE, TITLES, PLACES, NOTES))
    rng = random.Random(0)
    for circle in range(CIRCLES):
        for family, tier in itertools.product(FAMILIES, TIERS):
            task = make_task(family, tier, rng, circle)
            assert {circle_of(contact["name"]) for contact in task.initial_state["contacts"]} == {circle}
            (variant,) = AssistantEnvironment().variants(task, 1, 0)
            assert circle_of(variant.initial_state["contacts"][0]["name"]) == circle


def test_the_first_hour_is_taken_in_half_of_the_requests():
    rng = random.Random(1)
    goals = [make_task("book", 1, rng) for _ in range(300)]
    free = [is_free(task.initial_state, task.goal["day"], task.goal["time"]) for task in goals]
    assert 0.4 < sum(free) / len(free) < 0.6
    assert all(is_free(task.initial_state, task.goal["day"], task.goal["other"]) for task in goals)
