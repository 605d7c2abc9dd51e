"""A simulated user of one's own, in a profile:

    environment: {kind: refund_desk, args: {user: {kind: "examples.user_simulator:ForgetfulUser", args: {every: 3}}}}

This customer forgets what it was asked: to some messages it only says that it is confused, so an agent must ask again.
"""

from __future__ import annotations

from tracewheel.environments.users import ScriptedUser, UserBrief, UserTurn


class ForgetfulUser:
    """Answers as the scripted user does, but every `every`-th message only confuses it."""

    kind = "examples.user_simulator:ForgetfulUser"
    repeatable = True  # the same words get the same answers, so replays of an episode may ask again

    def __init__(self, every: int = 2) -> None:
        self._every, self._script = every, ScriptedUser()

    def begin(self, brief: UserBrief) -> None:
        """Begin an episode. The brief holds what the user knows; the agent sees none of it."""
        self._heard = 0
        self._script.begin(brief)

    def reply(self, said: str) -> UserTurn:
        """The answer to what the agent said. What it may say is checked by the environment, not here."""
        self._heard += 1
        if self._heard % self._every == 0:
            return UserTurn("Wait, what was the question?")
        return self._script.reply(said)
