"""Generic text for the assistant's tiny base policy: single skills, most of them by an explicit order.

The base learns to copy, to look things up, to say whether an hour is free, to carry out orders one after the other, and to do
what a request calls for where it is told to go by the rules. Plain requests it sees in few complete episodes only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tracewheel import Task, play_calls
from tracewheel_projects import World, chat_pieces, fixed_text
from tracewheel_worlds.assistant import agent, goals, stock
from tracewheel_worlds.assistant.agent import DONE, Call, solution
from tracewheel_worlds.assistant.environment import NOTHING, SYSTEM_PROMPT, TOOLS, AssistantEnvironment
from tracewheel_worlds.assistant.goals import FAMILIES
from tracewheel_worlds.assistant.tasks import ADDED, PROMPTS, make_task

Conversation = list[dict[str, Any]]
NOTED = "noted"
WORDS = {
    "repeat": "Repeat: {words}",
    "pick": "What is at {time}?\n{listing}",
    "hours_of": "How long is {title}?\n{listing}",
    "look": "Look at {day}.",
    "who": "Who works in {place}?",
    "read": "Read the note {title}.",
    "wrote": "What did {who} write?",
    "is_free": "Am I free on {day} at {time}?",
    "add": "Add {title} {day} {time} {who}. ",
    "send": "Send {to} {text}. ",
    "log": "Log {title} {day} {hours}. ",
    "note": "Note {title} {text}. ",
    "log_each": "Log each event of {day}.",
    "log_with": "Log each event of {day} with {who}.",
    "send_each": "Send {text} to each in {place}.",
    "send_most": "Send {text} to each in {place} except {but}.",
    "rules": "By the rules: ",
}
INVENTED = ("find_person",)
LONGEST_LIST, LONGEST_ORDERS = 5, 4


def complete(rng: random.Random, families: tuple[str, ...]) -> Conversation:
    """A complete episode of one of the families, of tier 1 or 2."""
    task = make_task(rng.choice(families), rng.randint(1, 2), rng)
    return play_calls(AssistantEnvironment(), task, solution(task))


def pieces() -> set[str]:
    """The strings of the assistant that are one token each."""
    wordings = [wording for tiers in PROMPTS.values() for heads in tiers.values() for wording in heads]
    wordings += [wording for tiers in ADDED.values() for parts in tiers.values() for part in parts for wording in part]
    said = {
        goals.YES,
        goals.NO,
        goals.LOGGED,
        NOTED,
        NOTHING,
        "ok",
        "done",
        ", ",
        " ",
        "\n",
        ".",
        '", "hours": ',
        "}}\n</tool_call>",
    }
    said |= {str(hours) for hours in range(1, stock.MOST_HOURS + 1)}
    said |= {
        "error: ",
        "error: no contact ",
        "error: no event on ",
        " at ",
        "error: no tool named ",
        "error: arguments must be ",
    }
    said |= {*stock.PEOPLE, *stock.TITLES, *stock.PLACES, *stock.NOTES, *stock.NOTE_TEXTS, *stock.DAYS, *stock.TIMES}
    return said | {*fixed_text([*wordings, *WORDS.values()]), *chat_pieces(SYSTEM_PROMPT, TOOLS, INVENTED, "name")}


def _answer(question: str, reply: str) -> Conversation:
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": question},
        {"role": "assistant", "content": reply},
    ]


def _some_task(rng: random.Random, *tiers: int, families: tuple[str, ...] = FAMILIES) -> Task:
    return make_task(rng.choice(families), rng.choice(tiers), rng)


def _played(task: Task, prompt: str, calls: list[Call], reply: str = "") -> Conversation:
    """The calls under another prompt, and a last reply of the agent if there is one."""
    messages = play_calls(AssistantEnvironment(), replace(task, prompt=prompt), calls)
    return [*messages, {"role": "assistant", "content": reply}] if reply else messages


def _repeat(rng: random.Random) -> Conversation:
    pool = [*stock.PEOPLE, *stock.TITLES, *stock.NOTES, *stock.DAYS, *stock.TIMES, *stock.NOTE_TEXTS]
    words = rng.sample(pool, rng.randint(1, LONGEST_LIST))
    separator = rng.choice((", ", "\n", " "))
    return _answer(WORDS["repeat"].format(words=separator.join(words)), separator.join(words))


def _listing(rng: random.Random) -> list[tuple[str, str, str, str]]:
    count = rng.randint(1, LONGEST_LIST)
    times = sorted(rng.sample(stock.TIMES, count), key=stock.TIMES.index)
    titles, people = rng.sample(stock.TITLES, count), rng.sample(stock.PEOPLE, count)
    return [
        (time, title, who, str(rng.randint(1, stock.MOST_HOURS)))
        for time, title, who in zip(times, titles, people, strict=True)
    ]


def _pick(rng: random.Random) -> Conversation:
    lines = _listing(rng)
    listing = "\n".join(" ".join(line) for line in lines)
    time, title, _, hours = rng.choice(lines)
    if rng.random() < 0.5:
        return _answer(WORDS["hours_of"].format(title=title, listing=listing), f"{title} {hours}")
    return _answer(WORDS["pick"].format(time=time, listing=listing), title)


def _look(rng: random.Random) -> Conversation:
    """One of the four look-ups."""
    task = _some_task(rng, 1, 2, 3)
    state = task.initial_state
    kind = rng.choice(("look", "who", "read", "wrote"))
    if kind == "look":
        day = rng.choice(stock.DAYS)
        return _played(task, WORDS[kind].format(day=day), [agent.events(day)], NOTED)
    if kind == "who":
        place = rng.choice(state["contacts"])["place"]
        return _played(task, WORDS[kind].format(place=place), [agent.contacts(place)], NOTED)
    if kind == "read":
        title = rng.choice(state["notes"])["title"]
        return _played(task, WORDS[kind].format(title=title), [("read_note", {"title": title})], NOTED)
    who = rng.choice(state["inbox"])["from"]
    return _played(task, WORDS[kind].format(who=who), [("inbox", {"sender": who})], NOTED)


def _is_free(rng: random.Random) -> Conversation:
    task = _some_task(rng, 1, 2, families=(goals.BOOK, goals.HOURS))
    state, day = task.initial_state, task.goal["day"]
    events = goals.events_on(state, day)
    time = rng.choice(events)["time"] if events and rng.random() < 0.5 else rng.choice(stock.TIMES)
    prompt = WORDS["is_free"].format(day=day, time=time)
    return _played(task, prompt, [agent.events(day)], goals.YES if goals.is_free(state, day, time) else goals.NO)


def _order(rng: random.Random, task: Task) -> tuple[str, Call]:
    """An explicit order and its call."""
    title, day, time = rng.choice(stock.TITLES), rng.choice(stock.DAYS), rng.choice(stock.TIMES)
    who = rng.choice(task.initial_state["contacts"])["name"]
    kind = rng.choice(("add", "send", "log", "note"))
    match kind:
        case "add":
            call = agent.add_event(goals.meeting(title, day, time, who))
        case "send":
            text = rng.choice((f"{title} {day} {time}", rng.choice(stock.NOTE_TEXTS), goals.YES, goals.NO, goals.LOGGED))
            call = agent.send(who, text)
        case "log":
            call = agent.log_hours(goals.hours_entry(day, title, rng.randint(1, stock.MOST_HOURS)))
        case _:
            call = agent.write_note({"title": title, "text": f"{who} {day} {time}"})
    return WORDS[kind].format(**call[1]), call


def _orders(rng: random.Random) -> Conversation:
    """Explicit orders, carried out one after the other."""
    task = _some_task(rng, 1)
    orders = [_order(rng, task) for _ in range(rng.randint(1, LONGEST_ORDERS))]
    return _played(task, "".join(text for text, _ in orders), [*(call for _, call in orders), DONE])


def _each(rng: random.Random) -> Conversation:
    """The same call for each line of a listing, or for those with one person."""
    kind = rng.choice(("log_each", "log_with", "send_each"))
    if kind == "send_each":
        task = _some_task(rng, 1, 2)
        place, text = rng.choice(task.initial_state["contacts"])["place"], rng.choice(stock.NOTE_TEXTS)
        calls = [agent.send(who, text) for who in goals.people_at(task.initial_state, place)]
        return _played(task, WORDS[kind].format(text=text, place=place), [agent.contacts(place), *calls, DONE])
    task = _some_task(rng, 1, 2, 3, families=(goals.HOURS,))
    day = task.goal["day"]
    events = goals.events_on(task.initial_state, day)
    who = rng.choice(events)["who"]
    chosen = [event for event in events if kind == "log_each" or event["who"] == who]
    calls = [agent.log_hours(goals.hours_entry(day, event["title"], event["hours"])) for event in chosen]
    return _played(task, WORDS[kind].format(day=day, who=who), [agent.events(day), *calls, DONE])


def _all_but_one(rng: random.Random) -> Conversation:
    """A message to each person of a listing but one."""
    task = _some_task(rng, 3, families=(goals.SHARE,))
    place, but, text = task.goal["place"], task.goal["but"], rng.choice(stock.NOTE_TEXTS)
    calls = [agent.send(who, text) for who in goals.people_at(task.initial_state, place) if who != but]
    prompt = WORDS["send_most"].format(text=text, place=place, but=but)
    return _played(task, prompt, [agent.contacts(place), *calls, DONE])


def _answers(rng: random.Random) -> Conversation:
    """As `_by_rules`, of requests for a meeting alone."""
    task = _some_task(rng, 1, 2, 3, families=(goals.REPLY,))
    return _played(task, WORDS["rules"] + task.prompt, solution(task))


def _by_rules(rng: random.Random) -> Conversation:
    """What a request calls for, where it is said to go by the rules."""
    task = _some_task(rng, 1, 2, 3)
    return _played(task, WORDS["rules"] + task.prompt, solution(task))


SKILLS: dict[str, Callable[[random.Random], Conversation]] = {
    "repeat": _repeat,
    "pick": _pick,
    "look": _look,
    "is_free": _is_free,
    "orders": _orders,
    "each": _each,
    "all_but_one": _all_but_one,
    "answers": _answers,
    "by_rules": _by_rules,
}

WORLD = World(TOOLS, pieces, SKILLS, complete)
