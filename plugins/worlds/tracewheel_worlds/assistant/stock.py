"""Who and what the assistant's tasks are about: circles that share no person, meeting, place or note.

Words are few and short, so that a tiny policy can know each of them as one token.
"""

from __future__ import annotations

CIRCLES = 8
PEOPLE_PER_CIRCLE, TITLES_PER_CIRCLE, PLACES_PER_CIRCLE, NOTES_PER_CIRCLE = 6, 5, 3, 3
_PEOPLE = """
Ann Ben Cleo Dora Eric Fay Glen Hugo Iris Jack Kate Leo Mona Nils Olga Paul Quinn Rosa Seth Tina Umar Vera Will Yuri
Adam Beth Carl Dina Emil Fred Gina Hans Ivan Jane Kurt Lena Mark Nora Otto Pia Ruth Sam Tom Ulla Vic Wendy Zoe Axel
"""
_TITLES = """
review budget survey audit launch hiring design pricing roadmap interview workshop training planning standup retro demo
kickoff handover estimate forecast contract invoice campaign release backlog testing security research branding logistics
inventory payroll warranty delivery catalog website tender lease insurance travel
"""
_PLACES = """
Oslo Rome Lima Cairo Delhi Paris Tokyo Quito Dakar Milan Seoul Perth Turin Malmo Kyoto Leeds Basel Porto Izmir Tunis
Accra Miami Texas Osaka
"""
_NOTES = """
parking badges wifi menu hotel taxi agenda dresscode entrance printer lunch shuttle garage heating holiday elevator
keys cleaning visitors projector coffee locker mailroom camera
"""
NOTE_TEXTS = (
    "use the north gate",
    "ask at the desk",
    "closed until noon",
    "bring your badge",
    "second floor on the left",
    "call before you come",
    "moved to next week",
    "open day and night",
    "sold out for now",
    "new rules from May",
)
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri")
TIMES = ("8:00", "9:00", "10:00", "11:00", "13:00", "14:00", "15:00", "16:00")
MOST_HOURS = 4
PEOPLE, TITLES, PLACES, NOTES = (tuple(words.split()) for words in (_PEOPLE, _TITLES, _PLACES, _NOTES))


def people_of(circle: int) -> list[str]:
    """The people of a circle; circles are numbered from 0."""
    return list(PEOPLE[circle::CIRCLES][:PEOPLE_PER_CIRCLE])


def titles_of(circle: int) -> list[str]:
    """What a circle's meetings are about."""
    return list(TITLES[circle::CIRCLES][:TITLES_PER_CIRCLE])


def places_of(circle: int) -> list[str]:
    """Where a circle's people work."""
    return list(PLACES[circle::CIRCLES][:PLACES_PER_CIRCLE])


def notes_of(circle: int) -> list[str]:
    """The titles of a circle's notes."""
    return list(NOTES[circle::CIRCLES][:NOTES_PER_CIRCLE])


def circle_of(person: str) -> int | None:
    """The circle of a person; None for a stranger."""
    return next((circle for circle in range(CIRCLES) if person in people_of(circle)), None)
