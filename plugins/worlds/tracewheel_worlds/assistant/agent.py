"""The scripted agent of the assistant: known solutions and near misses. They are never shown to a policy in training."""

from __future__ import annotations

from typing import Any

from tracewheel import Task
from tracewheel_worlds.assistant.goals import Entry, Goal, State, events_on, request_of, wanted
from tracewheel_worlds.assistant.stock import DAYS, TIMES

Call = tuple[str, dict[str, Any]]
DONE: Call = ("done", {})


def solution(task: Task) -> list[Call]:
    """The calls that solve a task: what must be looked up, what must be changed, and the end."""
    return [*looks(task.initial_state, task.goal), *changes(task.initial_state, task.goal), DONE]


def looks(state: State, goal: Goal) -> list[Call]:
    """What must be looked up before anything is changed."""
    match goal["family"]:
        case "book":
            place = [contacts(goal["place"])] if "place" in goal else []
            return [*place, events(goal["day"])]
        case "reply":
            return [("inbox", {"sender": goal["who"]}), events(request_of(state, goal["who"])["day"])]
        case "hours":
            return [events(goal["day"])]
    place = [contacts(goal["place"])] if "place" in goal else []
    return [("read_note", {"title": goal["title"]}), *place]


def changes(state: State, goal: Goal) -> list[Call]:
    """The calls that make the changes, in the order in which a person would make them."""
    gained = wanted(state, goal)
    calls = [add_event(entry) for entry in gained.get("events", [])]
    calls += [write_note(entry) for entry in gained.get("notes", [])]
    sent = [send(entry["to"], entry["text"]) for entry in gained.get("messages", [])]
    logged = [log_hours(entry) for entry in gained.get("timesheet", [])]
    if goal["family"] == "hours" and goal["tier"] == 4:  # one event after the other
        return [call for pair in zip(logged, sent, strict=True) for call in pair]
    return [*calls, *logged, *sent] if goal["family"] == "hours" else [*calls, *sent, *logged]


def contacts(place: str) -> Call:
    return "contacts", {"place": place}


def events(day: str) -> Call:
    return "events", {"day": day}


def add_event(entry: Entry) -> Call:
    return "add_event", {name: entry[name] for name in ("day", "time", "title", "who")}


def write_note(entry: Entry) -> Call:
    return "write_note", dict(entry)


def send(to: str, text: str) -> Call:
    return "send", {"to": to, "text": text}


def log_hours(entry: Entry) -> Call:
    return "log_hours", dict(entry)


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Calls that almost solve a task, by what is wrong with them."""
    state, goal = task.initial_state, task.goal
    looked, made = looks(state, goal), changes(state, goal)
    names = [name for name, _ in made]
    strangers = [contact["name"] for contact in state["contacts"] if contact["name"] not in _named(made)]
    found: dict[str, list[Call]] = {
        "half_done": made[:-1],
        "change_made_twice": [*made, made[-1]],
        "another_message": [*made, send(strangers[0], "ok")],
        "another_event_cancelled": [*made, ("cancel_event", {name: state["events"][0][name] for name in ("day", "time")})],
        "another_hour_logged": [*made, ("log_hours", {"day": DAYS[0], "title": "rest", "hours": 1})],
    }
    for name, field, others in (("add_event", "day", DAYS), ("add_event", "time", TIMES), ("log_hours", "day", DAYS)):
        if name in names:
            found[f"{name}_wrong_{field}"] = _changed(made, name, field, others)
    if "send" in names:
        found["wrong_recipient"] = _changed(made, "send", "to", strangers)
        found["wrong_text"] = _changed(made, "send", "text", ("yes", "no", "ok"))
        first = names.index("send")
        noted = write_note({"title": made[first][1]["to"], "text": made[first][1]["text"]})
        found["note_instead_of_message"] = [*made[:first], noted, *made[first + 1 :]]
    if "add_event" in names:
        found["wrong_guest"] = _changed(made, "add_event", "who", strangers)
    if "log_hours" in names:
        first = names.index("log_hours")
        args = made[first][1]
        for miss, value in (("hours_as_text", str(args["hours"])), ("hours_as_fraction", float(args["hours"]))):
            found[miss] = [*made[:first], ("log_hours", {**args, "hours": value}), *made[first + 1 :]]
        found["wrong_hours"] = _changed(made, "log_hours", "hours", (1, 2))
    if goal["family"] == "hours" and goal["tier"] in (1, 3):
        every = [log_hours({"day": event["day"], "title": event["title"], "hours": event["hours"]}) for event in _day(task)]
        found["every_event_logged"] = [*every, *(call for call in made if call[0] == "send")]
    return {miss: [*looked, *calls, DONE] for miss, calls in found.items()}


def _day(task: Task) -> list[Entry]:
    return events_on(task.initial_state, task.goal["day"])


def _named(calls: list[Call]) -> set[str]:
    return {args[field] for _, args in calls for field in ("to", "who") if field in args}


def _changed(calls: list[Call], name: str, field: str, values: Any) -> list[Call]:
    """The calls with another value in a field of the first call of that name."""
    first = next(place for place, (called, _) in enumerate(calls) if called == name)
    args = calls[first][1]
    other = next(value for value in values if value != args[field])
    return [*calls[:first], (name, {**args, field: other}), *calls[first + 1 :]]
