"""Generic text for the tiny base policy of retrieval QA: single skills, most of them by an explicit order.

The base learns to copy, to search and open what it is told to, to find one property in a document, and to follow properties
that are listed one by one. What a plain question asks for it sees in few complete episodes only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tracewheel import Task, play_calls
from tracewheel_projects import World, chat_pieces, fixed_text
from tracewheel_worlds.retrieval.agent import Call, answer, look, search, solution
from tracewheel_worlds.retrieval.environment import SYSTEM_PROMPT, TOOLS, RetrievalEnvironment
from tracewheel_worlds.retrieval.stock import DESKS, IDS, YEARS, names_of
from tracewheel_worlds.retrieval.tasks import COMPARISON, FAMILIES, QUESTIONS, make_task
from tracewheel_worlds.retrieval.world import RELATIONS, TEXTS, make_world

Conversation = list[dict[str, Any]]
NOTED = "noted"
WORDS = {
    "repeat": "Repeat: {words}",
    "pick": "Which is {name}?\n{listing}",
    "earlier": "Which is earlier, {one} or {other}?",
    "search_for": "Search for {name}.",
    "open_name": "Open {name}.",
    "find": "Find for {name}: {steps}.",
    "find_elder": "Find for the elder of {one} and {other}: {steps}.",
    "said": "Step by step: ",
}
INVENTED: tuple[str, ...] = ()
LONGEST_LIST = 6
TRAINED_DESKS, TRAINED_TIERS, COMPLETE_TIERS = range(7), (1, 2, 3), (1, 2)
NAMES = tuple(name for desk in range(DESKS) for name in names_of(desk))
PROPERTIES = tuple(name for relations in RELATIONS.values() for name in relations)


def complete(rng: random.Random, families: tuple[str, ...]) -> Conversation:
    """A complete episode of one of the families, of tier 1 or 2, about the names of the training desks."""
    task = make_task(rng.choice(families), rng.choice(COMPLETE_TIERS), rng.choice(TRAINED_DESKS), rng)
    return play_calls(RetrievalEnvironment(), task, solution(task))


def pieces() -> set[str]:
    """The strings of retrieval QA that are one token each."""
    wordings = [*TEXTS.values(), *WORDS.values()]
    wordings += [wording for questions in QUESTIONS.values() for *_, both in questions for wording in both]
    said = {NOTED, "nothing found", "answered", "error: ", "error: no document ", "error: no tool named ", *PROPERTIES}
    said |= {" [", "]", ", ", "\n", " ", "."}
    return said | {*NAMES, *IDS, *YEARS, *fixed_text(wordings), *chat_pieces(SYSTEM_PROMPT, TOOLS, INVENTED, "query")}


def _answer(question: str, reply: str) -> Conversation:
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": question},
        {"role": "assistant", "content": reply},
    ]


def _some_task(rng: random.Random, *families: str) -> Task:
    return make_task(rng.choice(families or FAMILIES), rng.choice(TRAINED_TIERS), rng.randrange(DESKS), rng)


def _played(task: Task, prompt: str, calls: list[Call], reply: str = "") -> Conversation:
    """The calls under another prompt, and a last reply of the agent if there is one."""
    messages = play_calls(RetrievalEnvironment(), replace(task, prompt=prompt), calls)
    return [*messages, {"role": "assistant", "content": reply}] if reply else messages


def _repeat(rng: random.Random) -> Conversation:
    words = rng.sample([*NAMES, *IDS], rng.randint(1, LONGEST_LIST))
    separator = rng.choice((", ", "\n"))
    return _answer(WORDS["repeat"].format(words=separator.join(words)), separator.join(words))


def _pick(rng: random.Random) -> Conversation:
    count = rng.randint(2, LONGEST_LIST)
    pairs = list(zip(rng.sample(NAMES, count), rng.sample(IDS, count), strict=True))
    name, number = rng.choice(pairs)
    listing = "\n".join(f"{title} [{one}]" for title, one in pairs)
    return _answer(WORDS["pick"].format(name=name, listing=listing), number)


def _earlier(rng: random.Random) -> Conversation:
    one, other = rng.sample(YEARS, 2)
    return _answer(WORDS["earlier"].format(one=one, other=other), min(one, other, key=int))


def _search_for(rng: random.Random) -> Conversation:
    task = _some_task(rng)
    name = rng.choice(task.initial_state["documents"])["title"]
    return _played(task, WORDS["search_for"].format(name=name), [search(name)], NOTED)


def _open_name(rng: random.Random) -> Conversation:
    task = _some_task(rng)
    name = rng.choice(task.initial_state["documents"])["title"]
    return _played(task, WORDS["open_name"].format(name=name), look(task, name), NOTED)


def _find_one(rng: random.Random) -> Conversation:
    """One property of a name."""
    task = _some_task(rng)
    world = make_world(rng.choice(TRAINED_TIERS), rng.randrange(DESKS), rng)
    kind = rng.choice(list(RELATIONS))
    name, step = rng.choice(world.names[kind]), rng.choice(list(RELATIONS[kind]))
    task = replace(task, initial_state={"documents": world.documents})
    prompt = WORDS["find"].format(name=name, steps=step)
    return _played(task, prompt, [*look(task, name), answer(world.facts[name][step])])


def _find(rng: random.Random) -> Conversation:
    """The properties on the way to a question's answer, one after another."""
    families = [family for family in FAMILIES if family != COMPARISON]
    task = _some_task(rng, *families)
    prompt = WORDS["find"].format(name=task.goal["hops"][0], steps=", ".join(task.goal["steps"]))
    return _played(task, prompt, solution(task))


def _find_elder(rng: random.Random) -> Conversation:
    task = _some_task(rng, COMPARISON)
    one, other = task.goal["hops"]
    prompt = WORDS["find_elder"].format(one=one, other=other, steps=", ".join(task.goal["steps"]))
    return _played(task, prompt, solution(task))


def _said(rng: random.Random) -> Conversation:
    """The whole work for a plain question, where it is told to go step by step."""
    task = _some_task(rng)
    return _played(task, WORDS["said"] + task.prompt, solution(task))


SKILLS: dict[str, Callable[[random.Random], Conversation]] = {
    "repeat": _repeat,
    "pick": _pick,
    "earlier": _earlier,
    "search_for": _search_for,
    "open_name": _open_name,
    "find_one": _find_one,
    "find": _find,
    "find_elder": _find_elder,
    "said": _said,
}

WORLD = World(TOOLS, pieces, SKILLS, complete)
