"""The scripted user: it says a fact when asked for it, and leaves when it is asked for nothing, or for one thing for ever."""

from __future__ import annotations

import random
import re
from collections import Counter

from tracewheel.environments.users.base import Fact, UserBrief, UserTurn

PATIENCE = 2
NUDGES = ("Please see to it.", "What do you need to know?", "Go on, please.")
GOODBYE = "Goodbye."


class ScriptedUser:
    """A user that answers each question it recognises, in the words that its brief's seed chooses.

    What it recognises are the patterns of its facts. It changes its mind, if the brief says so, with its first answer. A
    message that asks for nothing gets a nudge, the second one a goodbye, and so does the third question for one fact.
    """

    kind = "scripted"
    repeatable = True

    def begin(self, brief: UserBrief) -> None:
        self._brief = brief
        self._changed = False
        self._unasked = 0
        self._asked = Counter[str]()

    def reply(self, said: str) -> UserTurn:
        asked = [fact for fact in self._facts() if re.search(fact.asked, said, re.IGNORECASE)]
        self._asked.update(fact.name for fact in asked)
        self._unasked += not asked
        if self._unasked >= PATIENCE or any(self._asked[fact.name] > PATIENCE for fact in asked):
            return UserTurn(GOODBYE, goodbye=True)
        if not asked:
            return UserTurn(self._choice("nudge", NUDGES))
        answers = [self._choice(fact.name, fact.sayings) for fact in asked]
        if self._brief.change and not self._changed:
            self._changed = True
            answers.append(self._brief.change)
        return UserTurn(" ".join(answers))

    def _facts(self) -> list[Fact]:
        """The facts that hold now, one of each name."""
        given = self._brief.facts if self._changed else reversed(self._brief.facts)
        return list({fact.name: fact for fact in given}.values())

    def _choice(self, name: str, sayings: tuple[str, ...]) -> str:
        return random.Random(f"{self._brief.seed}-{name}").choice(sayings)
