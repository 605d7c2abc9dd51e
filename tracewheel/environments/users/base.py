"""The protocol of simulated users, and what one is told before an episode.

A simulated user knows what the agent must find out. Nothing of its brief enters the agent's context but by what it says,
and what it says is checked (`checks.py`): a user that errs ends the episode as the user's fault, and not as the agent's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tracewheel.core.errors import DataError
from tracewheel.environments.base import Observation


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


LOOP = 4
# What assistants say and customers do not.
ASSISTANT = re.compile(
    r"\bas an ai\b|\blanguage model\b|\bhow (?:can|may) i (?:help|assist)\b|\bi(?:'d| would) be happy to (?:help|assist)\b"
    r"|\bi(?:'ve| have) (?:processed|issued|approved|initiated|refunded|cancelled|exchanged)\b"
    r"|\bthank you for contacting\b|\bis there anything else i can\b|<tool_call>|\"arguments\"\s*:",
    re.IGNORECASE,
)


def problem_of(brief: UserBrief, heard: list[str], said_before: list[str], text: str) -> str:
    """What is wrong with a message of a simulated user, or "".

    Args:
        brief: What the user was told.
        heard: What the agent has said so far, the last message included.
        said_before: The user's earlier messages of this episode, the prompt first.
        text: The message.
    """
    if not text.strip():
        return "the user says nothing"
    if found := ASSISTANT.search(text):
        return f"the user answers as an assistant: {found.group()!r}"
    recent = said_before[-(LOOP - 1) :]
    if len(recent) == LOOP - 1 and set(recent) == {text} and len(set(heard[-LOOP:])) == LOOP:
        return f"the user repeats itself: {text!r} to {LOOP} different messages"
    return _value_problem(brief, heard, text) or _contradiction(brief, text)


def _value_problem(brief: UserBrief, heard: list[str], text: str) -> str:
    """A value in the text that the user cannot know; what the agent mentioned, or the prompt, it may repeat."""
    known = brief.allowed | {fact.value for fact in brief.facts}
    mentioned = " ".join((*heard, brief.prompt, brief.change))
    for value in sorted(brief.unknown - known):
        if _has(text, value) and not _has(mentioned, value):
            return f"the user tells what it cannot know: {value!r}"
    for found in re.findall(brief.values, text, re.IGNORECASE) if brief.values else ():
        if found.lower() not in {value.lower() for value in known} and not _has(mentioned, found):
            return f"the user makes a value up: {found!r}"
    return ""


def _contradiction(brief: UserBrief, text: str) -> str:
    for fact in brief.facts:
        if fact.denied and (found := re.search(fact.denied, text, re.IGNORECASE)):
            return f"the user contradicts its facts: {found.group()!r}, but {fact.name} is {fact.value}"
    return ""


def _has(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None


class CheckedUser:
    """What an environment with a user asks: a message of the agent in, an observation out.

    A message that fails its check ends the episode with the fault `user`: its stop reason is `user_failed`, and it is not
    scored. The reason stands in the observation's text.
    """

    def __init__(self, user: UserSimulator) -> None:
        self._user = user

    @property
    def repeatable(self) -> bool:
        return self._user.repeatable

    def begin(self, brief: UserBrief) -> None:
        """Begin an episode."""
        self._brief, self._heard, self._said = brief, list[str](), [brief.prompt]
        self._user.begin(brief)

    def answer(self, text: str) -> Observation:
        """What the user says to `text`."""
        self._heard.append(text)
        turn = self._user.reply(text)
        problem = turn.problem or ("" if turn.goodbye else problem_of(self._brief, self._heard, self._said, turn.text))
        if problem:
            return Observation(problem, fault="user")
        self._said.append(turn.text)
        return Observation(turn.text, done=turn.goodbye)

    def talk(self) -> list[list[str]]:
        """What was said so far: each entry is the agent's message and the answer to it. A failed answer is not in it."""
        return [list(turn) for turn in zip(self._heard, self._said[1:], strict=False)]

    def resume(self, brief: UserBrief, talk: list[list[str]]) -> None:
        """Begin an episode in which `talk` has been said.

        Raises:
            DataError: the user cannot go on from there.
        """
        self.begin(brief)
        if talk and isinstance(self._user, ResumableUser):
            self._user.resume(brief, talk)
        elif talk and not self.repeatable:
            raise DataError(f"the user {self._user.kind} cannot go on from an earlier talk: it has no resume(brief, talk)")
        else:
            for said, answer in talk:
                if self._user.reply(said).text != answer:
                    raise DataError(f"the user {self._user.kind} answers {said!r} otherwise than the snapshot says")
        self._heard += [said for said, _ in talk]
        self._said += [answer for _, answer in talk]
