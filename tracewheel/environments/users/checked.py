"""A simulated user whose every message is checked, as an environment's answer to the agent."""

from __future__ import annotations

from tracewheel.environments.base import Observation
from tracewheel.environments.users.base import UserBrief, UserSimulator
from tracewheel.environments.users.checks import problem_of


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
