"""A simulated user whose every message is checked, as an environment's answer to the agent."""

from __future__ import annotations

from tracewheel.core.errors import DataError
from tracewheel.environments.base import Observation
from tracewheel.environments.users.base import ResumableUser, UserBrief, UserSimulator
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
