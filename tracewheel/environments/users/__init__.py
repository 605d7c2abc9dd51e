"""Simulated users: the protocol, a scripted one, and the check of what they say. The one behind an endpoint is in `engines/`."""

from __future__ import annotations

from tracewheel.core.plugins import load_class
from tracewheel.environments.users.base import Fact, UserBrief, UserSimulator, UserTurn
from tracewheel.environments.users.checked import CheckedUser
from tracewheel.environments.users.scripted import ScriptedUser

USERS: dict[str, type] = {ScriptedUser.kind: ScriptedUser}
# Built in, but of a floor above: found by name.
ENDPOINT = "endpoint"
ENDPOINT_CLASS = "tracewheel.engines.endpoint_user:EndpointUser"

__all__ = ["USERS", "CheckedUser", "Fact", "ScriptedUser", "UserBrief", "UserSimulator", "UserTurn", "user_class"]


def user_class(kind: str) -> type:
    """The class of a user simulator: `scripted`, `endpoint`, or `module:Class` for your own.

    Raises:
        ConfigError: there is no such user.
    """
    return load_class(ENDPOINT_CLASS if kind == ENDPOINT else kind, USERS, "user")
