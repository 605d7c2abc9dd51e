"""Small random worlds: people, companies, cities and countries, the facts between them, and documents that tell these.

| document | facts |
|---|---|
| a person | year and city of birth, employer |
| a company | founder, seat |
| a city | country, twin |
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tracewheel_worlds.retrieval.stock import IDS, YEARS, cities_of, companies_of, countries_of, people_of

BORN, EMPLOYER, FOUNDER, SEAT, COUNTRY = "birthplace", "employer", "founder", "seat", "country"
PERSON, COMPANY, CITY = "person", "company", "city"
# What a document of a kind tells, and the kind of what it names.
RELATIONS = {
    PERSON: {BORN: CITY, EMPLOYER: COMPANY},
    COMPANY: {FOUNDER: PERSON, SEAT: CITY},
    CITY: {COUNTRY: "country"},
}
TEXTS = {
    PERSON: "Born in {year} in {birthplace}. Works for {employer}.",
    COMPANY: "Founded by {founder}. Based in {seat}.",
    CITY: "Lies in {country}. Twin town of {twin}.",
}
# How many people, companies, cities and countries there are: the more, the more documents name any of them.
SIZES = {1: (2, 1, 2, 2), 2: (4, 2, 3, 2), 3: (6, 3, 4, 3), 4: (8, 4, 5, 3)}

Document = dict[str, str]


@dataclass(frozen=True)
class World:
    """The facts by name, the names by kind, and the documents in random order."""

    facts: dict[str, dict[str, str]]
    names: dict[str, list[str]]
    documents: list[Document]


def make_world(tier: int, desk: int, rng: random.Random) -> World:
    """A random world of a desk's names. No two people are born in one year."""
    people, companies, cities, countries = (
        rng.sample(names, count)
        for names, count in zip(
            (people_of(desk), companies_of(desk), cities_of(desk), countries_of(desk)), SIZES[tier], strict=True
        )
    )
    years = rng.sample(YEARS, len(people))
    facts: dict[str, dict[str, str]] = {}
    for person, year in zip(people, years, strict=True):
        facts[person] = {"year": year, BORN: rng.choice(cities), EMPLOYER: rng.choice(companies)}
    for company in companies:
        facts[company] = {FOUNDER: rng.choice(people), SEAT: rng.choice(cities)}
    for city in cities:
        facts[city] = {COUNTRY: rng.choice(countries), "twin": rng.choice([other for other in cities if other != city])}
    names = {PERSON: people, COMPANY: companies, CITY: cities}
    kinds = {name: kind for kind, members in names.items() for name in members}
    titles = rng.sample(list(facts), len(facts))
    ids = rng.sample(IDS, len(facts))
    documents = [
        {"id": number, "title": title, "text": TEXTS[kinds[title]].format(**facts[title])}
        for number, title in zip(ids, titles, strict=True)
    ]
    return World(facts, names, documents)


def follow(world: World, start: str, steps: tuple[str, ...]) -> list[str]:
    """The names on the way from `start` along relations; the last is where it ends."""
    way = [start]
    for step in steps:
        way.append(world.facts[way[-1]][step])
    return way
