"""The protocol of simulated users, and what one is told before an episode.

A simulated user knows what the agent must find out. Nothing of its brief enters the agent's context but by what it says,
and what it says is checked (`checks.py`): a user that errs ends the episode as the user's fault, and not as the agent's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Fact:
    """Something that the user knows and says when it is asked.

    Attributes:
        name: Of the fact, unique within a brief.
        value: The fact in a word or two, as the instruction of a model gives it.
        asked: A regular expression, searched without regard to case, of questions for this fact.
        sayings: The ways in which a scripted user says it.
        denied: A regular expression of what contradicts it, searched without regard to case; empty for none.
    """

    name: str
    value: str
    asked: str
    sayings: tuple[str, ...]
    denied: str = ""


@dataclass(frozen=True)
class UserBrief:
    """What a user is told.

    Attributes:
        instruction: Who the user is and what it wants, for a user that is a model.
        prompt: The user's first message, which opens the episode.
        facts: What it knows. Of two facts with one name, the second holds after the change of mind.
        allowed: Values that it may say beside those of its facts.
        unknown: Values that it cannot know, such as other customers' order numbers.
        values: A regular expression of what looks like such a value; one that neither the user knows nor the agent
            mentioned is invented. Empty for none.
        change: What it adds to its first answer when it changes its mind; empty when it does not.
        seed: Chooses among sayings.
    """

    instruction: str
    prompt: str
    facts: tuple[Fact, ...]
    allowed: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    values: str = ""
    change: str = ""
    seed: int = 0


@dataclass(frozen=True)
class UserTurn:
    """What a user says. `goodbye`: it leaves, which ends the episode. `problem`: what is wrong with the simulation, if so."""

    text: str
    goodbye: bool = False
    problem: str = ""


class UserSimulator(Protocol):
    """A simulated user of one episode at a time.

    `repeatable` says whether the same words of the agent get the same answers another time, as a script's do and a model's
    do not; then replays of an episode may ask it again.
    """

    kind: str
    repeatable: bool

    def begin(self, brief: UserBrief) -> None:
        """Begin an episode, whose first message is the brief's prompt."""
        ...

    def reply(self, said: str) -> UserTurn:
        """The answer to what the agent said."""
        ...


@runtime_checkable
class ResumableUser(UserSimulator, Protocol):
    """Optional protocol: a user that goes on from an earlier talk. A `repeatable` one needs it not: it is asked again."""

    def resume(self, brief: UserBrief, talk: list[list[str]]) -> None:
        """Begin an episode in which `talk` has been said: each entry is the agent's message and the answer to it."""
        ...
