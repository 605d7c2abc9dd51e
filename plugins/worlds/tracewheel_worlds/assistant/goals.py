"""What a goal asks for: the entries that each app should have gained."""

from __future__ import annotations

from typing import Any

BOOK, REPLY, HOURS, SHARE = "book", "reply", "hours", "share"
FAMILIES = (BOOK, REPLY, HOURS, SHARE)
TIERS = (1, 2, 3, 4)
APPS = ("events", "messages", "timesheet", "notes")
YES, NO, LOGGED = "yes", "no", "logged"
USUAL_HOURS = 1

State = dict[str, Any]
Goal = dict[str, Any]
Entry = dict[str, Any]


def wanted(state: State, goal: Goal) -> dict[str, list[Entry]]:
    """The entries that each app should gain, in no order; an app that is not named gains none.

    Args:
        state: The task's initial state.
        goal: Has `family`, `tier` and what these need, as `tasks.py` says.

    Raises:
        KeyError: the goal lacks a part.
        ValueError: there is no such family.
    """
    match goal["family"]:
        case "book":
            gained = _book(state, goal)
        case "reply":
            gained = _reply(state, goal)
        case "hours":
            gained = _hours(state, goal)
        case "share":
            gained = _share(state, goal)
        case _:
            raise ValueError(f"no family {goal['family']!r}")
    return {app: entries for app, entries in gained.items() if entries}


def is_free(state: State, day: str, time: str) -> bool:
    """Whether the calendar has nothing at that hour."""
    return not any(event["day"] == day and event["time"] == time for event in state["events"])


def people_at(state: State, place: str) -> list[str]:
    """The contacts who work at a place, in the order of the contacts."""
    return [contact["name"] for contact in state["contacts"] if contact["place"] == place]


def events_on(state: State, day: str) -> list[Entry]:
    """The events of a day, by hour."""
    found = [event for event in state["events"] if event["day"] == day]
    return sorted(found, key=lambda event: (int(event["time"].split(":")[0]), event["title"]))


def request_of(state: State, who: str) -> Entry:
    """The title, day and hour that a person's message asks for."""
    title, day, time = next(message["text"] for message in state["inbox"] if message["from"] == who).split()
    return {"title": title, "day": day, "time": time}


def guest_of(state: State, goal: Goal) -> str:
    """Whom to meet: the person named, or the contact at a place."""
    return str(goal["who"]) if "who" in goal else people_at(state, goal["place"])[0]


def meeting(title: str, day: str, time: str, who: str) -> Entry:
    return {"day": day, "time": time, "title": title, "who": who, "hours": USUAL_HOURS}


def message(to: str, text: str) -> Entry:
    return {"to": to, "text": text}


def hours_entry(day: str, title: str, hours: int) -> Entry:
    return {"day": day, "title": title, "hours": hours}


def _book(state: State, goal: Goal) -> dict[str, list[Entry]]:
    """An event at the first of two hours that is free; from tier 2 on a confirmation; from tier 3 on hours."""
    day, title, who = goal["day"], goal["title"], guest_of(state, goal)
    time = goal["time"] if is_free(state, day, goal["time"]) else goal["other"]
    return {
        "events": [meeting(title, day, time, who)],
        "messages": [message(who, f"{title} {day} {time}")] if goal["tier"] > 1 else [],
        "timesheet": [hours_entry(day, title, goal["hours"])] if goal["tier"] > 2 else [],
    }


def _reply(state: State, goal: Goal) -> dict[str, list[Entry]]:
    """An answer by the calendar; from tier 2 on the event if it is free, from tier 3 on a note if not, in tier 4 hours."""
    who = goal["who"]
    asked = request_of(state, who)
    title, day, time = asked["title"], asked["day"], asked["time"]
    free = is_free(state, day, time)
    return {
        "messages": [message(who, YES if free else NO)],
        "events": [meeting(title, day, time, who)] if free and goal["tier"] > 1 else [],
        "notes": [{"title": title, "text": f"{who} {day} {time}"}] if not free and goal["tier"] > 2 else [],
        "timesheet": [hours_entry(day, title, goal["hours"])] if goal["tier"] > 3 else [],
    }


def _hours(state: State, goal: Goal) -> dict[str, list[Entry]]:
    """The hours of one event, of a day, of a person's events, or of a day; the last two with messages."""
    events = events_on(state, goal["day"])
    if goal["tier"] == 1:
        events = [event for event in events if event["title"] == goal["title"]]
    elif goal["tier"] == 3:
        events = [event for event in events if event["who"] == goal["who"]]
    told = [goal["who"]] if goal["tier"] == 3 else [event["who"] for event in events]
    return {
        "timesheet": [hours_entry(event["day"], event["title"], event["hours"]) for event in events],
        "messages": [message(who, LOGGED) for who in told] if goal["tier"] > 2 else [],
    }


def _share(state: State, goal: Goal) -> dict[str, list[Entry]]:
    """A note's text to one person, to all at a place, or to all but one; in tier 4 with hours."""
    text = next(note["text"] for note in state["notes"] if note["title"] == goal["title"])
    who = [goal["who"]] if goal["tier"] == 1 else [one for one in people_at(state, goal["place"]) if one != goal.get("but")]
    return {
        "messages": [message(one, text) for one in who],
        "timesheet": [hours_entry(goal["day"], goal["title"], goal["hours"])] if goal["tier"] > 3 else [],
    }
