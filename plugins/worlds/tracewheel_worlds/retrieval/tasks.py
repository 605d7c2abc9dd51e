"""Questions of retrieval QA: four families by what must be read, tiers by how many documents there are.

| family | what answers it |
|---|---|
| `fact` | one document |
| `bridge` | two: the second is named in the first |
| `chain` | three, each named in the one before |
| `comparison` | two that the question names, and a comparison of their years |

The documents of a task are a random world of one desk (`world.py`), so no fact holds in two tasks. With the tier grows the
number of documents (5, 9, 13, 17), and with it the number of those that name what is searched for.
"""

from __future__ import annotations

import random
from typing import Any

from tracewheel import ConfigError, Task, content_hash
from tracewheel_worlds.retrieval.stock import DESKS
from tracewheel_worlds.retrieval.world import (
    BORN,
    COMPANY,
    COUNTRY,
    EMPLOYER,
    FOUNDER,
    PERSON,
    SEAT,
    Document,
    World,
    follow,
    make_world,
)

FACT, BRIDGE, CHAIN, COMPARISON = "fact", "bridge", "chain", "comparison"
FAMILIES, TIERS = (FACT, BRIDGE, CHAIN, COMPARISON), (1, 2, 3, 4)

# By family: the kind of the first document, the relations to follow, and the question in two wordings.
Question = tuple[str, tuple[str, ...], tuple[str, ...]]
QUESTIONS: dict[str, tuple[Question, ...]] = {
    FACT: (
        (PERSON, (BORN,), ("Where was {one} born?", "In which city was {one} born?")),
        (PERSON, (EMPLOYER,), ("Who employs {one}?", "For which company does {one} work?")),
        (COMPANY, (SEAT,), ("Where is {one}?", "In which city is {one}?")),
        (COMPANY, (FOUNDER,), ("Who founded {one}?", "Who is the founder of {one}?")),
    ),
    BRIDGE: (
        (PERSON, (BORN, COUNTRY), ("In which country was {one} born?", "Which is the native country of {one}?")),
        (PERSON, (EMPLOYER, SEAT), ("In which city does {one} work?", "Where is the company of {one}?")),
        (COMPANY, (SEAT, COUNTRY), ("In which country is {one}?", "Which country is the home of {one}?")),
        (COMPANY, (FOUNDER, BORN), ("Where was the founder of {one} born?", "From which city is the founder of {one}?")),
    ),
    CHAIN: (
        (PERSON, (EMPLOYER, SEAT, COUNTRY), ("In which country does {one} work?", "In which country is the company of {one}?")),
        (
            COMPANY,
            (FOUNDER, BORN, COUNTRY),
            ("In which country was the founder of {one} born?", "From which country is the founder of {one}?"),
        ),
    ),
    COMPARISON: (
        (PERSON, (BORN,), ("Where was the elder of {one} and {other} born?", "Of {one} and {other}, where is the elder from?")),
        (PERSON, (EMPLOYER,), ("Who employs the elder of {one} and {other}?", "Of {one} and {other}, who employs the elder?")),
    ),
}  # fmt: skip
MAKE_TRIES = 1000


def make_task(family: str, tier: int, desk: int, rng: random.Random) -> Task:
    """A random task of a family and tier about the names of a desk."""
    while True:
        world = make_world(tier, desk, rng)
        kind, steps, wordings = rng.choice(QUESTIONS[family])
        if family == COMPARISON:
            one, other = rng.sample(world.names[kind], 2)
            hops, answer, wrong = _compared(world, one, other, steps[0])
        else:
            one, other = rng.choice(world.names[kind]), ""
            *hops, answer = follow(world, one, steps)
            wrong = hops[-1] if len(hops) > 1 else _another(world, one, steps[0])
        # A chain that comes back to its beginning, or two elders with one birthplace, ask for less than they seem to.
        if answer in (one, other, wrong) or len(set(hops)) < len(hops):
            continue
        goal = {"answers": [answer], "family": family, "tier": tier, "steps": list(steps), "hops": hops, "wrong": wrong}
        return retrieval_task(rng.choice(wordings).format(one=one, other=other), {"documents": world.documents}, goal)


def make_tasks(n: int, seed: int) -> list[Task]:
    """`n` different tasks, spread evenly over families, tiers and desks.

    Raises:
        ConfigError: so many were not found.
    """
    rng, tasks = random.Random(f"retrieval-tasks-{seed}"), dict[str, Task]()
    strata = [(family, tier) for tier in TIERS for family in FAMILIES]
    for number in range(n + MAKE_TRIES):
        if len(tasks) == n:
            break
        family, tier = strata[len(tasks) % len(strata)]
        task = make_task(family, tier, number % DESKS, rng)
        tasks.setdefault(task.fingerprint, task)
    if len(tasks) < n:
        raise ConfigError(f"retrieval: {n} different tasks are asked for, {len(tasks)} were found")
    return list(tasks.values())


def retrieval_task(prompt: str, initial_state: dict[str, Any], goal: dict[str, Any]) -> Task:
    """Make a task from its parts; family, tier and fingerprint follow from them.

    A question whose way is known is the same in other words: the fingerprint ignores the wording of these.
    """
    about = {"state": initial_state, "goal": goal} | ({} if goal.get("hops") else {"question": prompt})
    fingerprint = content_hash(about)
    return Task(
        id=f"retrieval-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment="retrieval",
        family=str(goal.get("family", "question")),
        tier=int(goal.get("tier", 1)),
        prompt=prompt,
        initial_state=initial_state,
        goal=goal,
        verifier="answer_match",
        fingerprint=fingerprint,
    )


def document_of(documents: list[Document], title: str) -> Document:
    """The document with a title."""
    return next(document for document in documents if document["title"] == title)


def _compared(world: World, one: str, other: str, step: str) -> tuple[list[str], str, str]:
    """The documents to read, what holds for the elder of two people, and what holds for the younger."""
    elder, younger = sorted((one, other), key=lambda person: int(world.facts[person]["year"]))
    return [one, other], world.facts[elder][step], world.facts[younger][step]


def _another(world: World, one: str, step: str) -> str:
    """What the relation is for somebody else; the same where everybody shares it."""
    answer = world.facts[one][step]
    others = [facts[step] for name, facts in world.facts.items() if step in facts and name != one]
    return next((name for name in others if name != answer), world.documents[0]["title"])
