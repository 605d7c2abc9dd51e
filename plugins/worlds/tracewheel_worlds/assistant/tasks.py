"""Tasks of the assistant: four families with four tiers each, so sixteen templates.

| family | tiers 1 to 4 |
|---|---|
| `book` | an event, at another hour if the first is taken; with a confirmation; and hours; and with the contact at a place |
| `reply` | answer a request by the calendar; and book it if free; or else note it; and log hours |
| `hours` | log one event of a day; all of them; those with one person, who is told; all, and everyone is told |
| `share` | send a note to one person; to all at a place; to all but one; to all, and log hours |

The names of a task come from one circle (`stock.py`). Entries are lists, not mappings: a log may sort the keys of a mapping.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tracewheel import Task, content_hash
from tracewheel_worlds.assistant.goals import BOOK, HOURS, REPLY, SHARE, Entry, Goal, State, hours_entry, message
from tracewheel_worlds.assistant.stock import (
    CIRCLES,
    DAYS,
    MOST_HOURS,
    NOTE_TEXTS,
    TIMES,
    notes_of,
    people_of,
    places_of,
    titles_of,
)

BUSY_SHARE = 0.5
PROMPTS: dict[str, dict[int, tuple[str, ...]]] = {
    BOOK: {
        1: (
            "Book {title} with {who} on {day} at {time}, or at {other} if I am busy.",
            "I need {title} with {who}: {day} {time}, or {other} if that is taken.",
        ),
        4: (
            "Book {title} with our contact in {place} on {day} at {time}, or at {other} if I am busy.",
            "I need {title} with whoever we know in {place}: {day} {time}, or {other} if that is taken.",
        ),
    },
    REPLY: {1: ("{who} asks for a meeting. Answer by my calendar.", "Look at what {who} wants and say if I can.")},
    HOURS: {
        1: ("Log my hours for {title} on {day}.", "Put {title} of {day} on my timesheet."),
        2: ("Log all my hours of {day}.", "Put all of {day} on my timesheet."),
        3: ("Log my hours with {who} on {day} and tell {who}.", "Put {day} with {who} on my timesheet and tell {who}."),
        4: ("Log all my hours of {day} and tell everyone I met.", "Put all of {day} on my timesheet and tell everyone I met."),
    },
    SHARE: {
        1: ("Send {who} the note {title}.", "{who} needs the note {title}."),
        2: ("Send everyone in {place} the note {title}.", "All of {place} should get the note {title}."),
        3: (
            "Send everyone in {place} except {but} the note {title}.",
            "All of {place} should get the note {title}, but not {but}.",
        ),
    },
}
TELL, LOG = (" Confirm it.", " Let them know."), (" Log {hours}h for it.", " Put {hours}h on my timesheet.")
BOOK_IT, NOTE_IT = (" Book it if I am free.",), (" If not, make a note.",)
LOG_ON = (" Log {hours}h for it on {day}.", " Put {hours}h for {day} on my timesheet.")
ADDED: dict[str, dict[int, tuple[tuple[str, ...], ...]]] = {
    BOOK: {1: (), 2: (TELL,), 3: (TELL, LOG), 4: (TELL, LOG)},
    REPLY: {1: (), 2: (BOOK_IT,), 3: (BOOK_IT, NOTE_IT), 4: (BOOK_IT, NOTE_IT, LOG)},
    SHARE: {1: (), 2: (), 3: (), 4: (LOG_ON,)},
}


def make_task(family: str, tier: int, rng: random.Random, circle: int | None = None) -> Task:
    """A random task of a family and tier, with the names of one circle."""
    place = rng.randrange(CIRCLES) if circle is None else circle
    cast = _Cast(rng, place)
    state = cast.world()
    goal = {BOOK: _book, REPLY: _reply, HOURS: _hours, SHARE: _share}[family](state, tier, cast)
    goal = {"family": family, "tier": tier, **goal}
    return assistant_task(prompt_of(goal, rng), state, goal)


def assistant_task(prompt: str, initial_state: State, goal: Goal) -> Task:
    """Make a task from its parts.

    The fingerprint ignores the wording: the same goal in the same state is the same task.
    """
    fingerprint = content_hash({"state": initial_state, "goal": goal})
    return Task(
        id=f"assistant-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment="assistant",
        family=goal["family"],
        tier=goal["tier"],
        prompt=prompt,
        initial_state=initial_state,
        goal=goal,
        verifier="assistant",
        fingerprint=fingerprint,
    )


def prompt_of(goal: Goal, rng: random.Random) -> str:
    """The request in one of its wordings."""
    family, tier = goal["family"], goal["tier"]
    heads = PROMPTS[family]
    head = heads[max(known for known in heads if known <= tier)] if (family, tier) != (SHARE, 4) else heads[2]
    wordings = [head, *ADDED.get(family, {}).get(tier, ())]
    return "".join(rng.choice(wording) for wording in wordings).format(**goal)


class _Cast:
    """The people, titles, places and notes of a task, each used once."""

    def __init__(self, rng: random.Random, circle: int) -> None:
        self.rng = rng
        self.people, self.titles, self.places, self.notes = (
            _shuffled(words(circle), rng) for words in (people_of, titles_of, places_of, notes_of)
        )
        self.days, self.times = _shuffled(DAYS, rng), _shuffled(TIMES, rng)

    def world(self) -> State:
        """A state with an entry in each app that no task is about."""
        rng = self.rng
        notes = [{"title": title, "text": text} for title, text in zip(self.notes[:2], rng.sample(NOTE_TEXTS, 2), strict=True)]
        contacts = [
            {"name": name, "place": self.places[place]} for name, place in zip(self.people, (0, 0, 0, 1, 1, 2), strict=True)
        ]
        rng.shuffle(contacts)
        rng.shuffle(notes)
        return {
            "contacts": contacts,
            "events": [self.event(self.days[-1], self.times[-1], self.titles[-1], self.people[-1])],
            "inbox": [{"from": self.people[-1], "text": f"{self.titles[-1]} {self.days[-2]} {self.times[-2]}"}],
            "messages": [message(self.people[-1], "ok")],
            "timesheet": [hours_entry(self.days[-1], self.titles[-1], self.hours())],
            "notes": notes,
        }

    def event(self, day: str, time: str, title: str, who: str) -> Entry:
        return {"day": day, "time": time, "title": title, "who": who, "hours": self.hours()}

    def hours(self) -> int:
        return self.rng.randint(1, MOST_HOURS)

    def taken(self, time: str) -> list[str]:
        """One or two hours of a day that are taken, `time` perhaps among them."""
        first = time if self.rng.random() < BUSY_SHARE else self.times[2]
        return [first, *self.times[3 : 3 + self.rng.randint(0, 1)]]


def _book(state: State, tier: int, cast: _Cast) -> Goal:
    day, (time, other) = cast.days[0], cast.times[:2]
    _add_events(state, day, cast.taken(time), cast, first_title=1)
    guest = {"place": cast.places[2]} if tier == 4 else {"who": cast.people[0]}
    goal = {**guest, "title": cast.titles[0], "day": day, "time": time, "other": other}
    return goal | ({"hours": cast.hours()} if tier > 2 else {})


def _reply(state: State, tier: int, cast: _Cast) -> Goal:
    who, title, day, time = cast.people[0], cast.titles[0], cast.days[0], cast.times[0]
    state["inbox"].insert(cast.rng.randint(0, 1), {"from": who, "text": f"{title} {day} {time}"})
    _add_events(state, day, cast.taken(time), cast, first_title=1)
    return {"who": who} | ({"hours": cast.hours()} if tier > 3 else {})


def _hours(state: State, tier: int, cast: _Cast) -> Goal:
    day, count = cast.days[0], 2 if tier in (2, 4) else cast.rng.randint(2, 3)
    _add_events(state, day, cast.times[:count], cast, first_title=0)
    own = [event for event in state["events"] if event["day"] == day]
    if tier == 1:
        return {"day": day, "title": cast.rng.choice(own)["title"]}
    if tier == 3:
        who = own[0]["who"]
        own[-1]["who"] = cast.rng.choice((who, own[-1]["who"])) if count == 3 else own[-1]["who"]
        return {"day": day, "who": who}
    return {"day": day}


def _share(state: State, tier: int, cast: _Cast) -> Goal:
    goal: Goal = {"title": cast.rng.choice(state["notes"])["title"]}
    if tier == 1:
        return goal | {"who": cast.people[0]}
    goal["place"] = cast.places[1 if tier == 2 else 0]
    if tier == 3:
        goal["but"] = cast.rng.choice(cast.people[:3])
    return goal | ({"day": cast.days[0], "hours": cast.hours()} if tier > 3 else {})


def _add_events(state: State, day: str, times: Sequence[str], cast: _Cast, first_title: int) -> None:
    """Events of different titles and people at these hours of a day, in any order of the calendar."""
    titles, people = cast.titles[first_title:-1], cast.people[1:-1]
    own = [cast.event(day, time, title, who) for time, title, who in zip(times, titles, people, strict=False)]
    for event in own:
        state["events"].insert(cast.rng.randint(0, len(state["events"])), event)


def _shuffled(words: Sequence[str], rng: random.Random) -> list[Any]:
    return rng.sample(words, len(words))
