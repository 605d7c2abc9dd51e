"""Simulated users: the protocol, a scripted one, and the check of what they say. `engines/` has the one behind an endpoint."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tracewheel.config.base import Strict
from tracewheel.core.kind_table import KindTable
from tracewheel.core.kinds import Kind, build
from tracewheel.environments.users.base import CheckedUser, Fact, UserBrief, UserSimulator, UserTurn
from tracewheel.environments.users.scripted import ScriptedUser

# The one behind an endpoint is of a floor above.
USERS = KindTable(
    "tracewheel.users",
    {
        "endpoint": "tracewheel.engines.endpoint_user:EndpointUser",
        "scripted": "tracewheel.environments.users.scripted:ScriptedUser",
    },
)

__all__ = ["USERS", "CheckedUser", "Fact", "ScriptedUser", "UserBrief", "UserConfig", "UserSimulator", "UserTurn", "make_user"]


class UserConfig(Strict):
    """Which user an environment talks to: `scripted`, `endpoint`, or `module:Class` for your own, and its arguments."""

    kind: str = ScriptedUser.kind
    args: dict[str, Any] = Field(default_factory=dict)


def make_user(config: UserConfig) -> UserSimulator:
    """Make a user simulator.

    Raises:
        ConfigError: there is no such user, or its arguments are wrong.
    """
    user: UserSimulator = build(Kind(config.kind, config.args), USERS, "user")
    return user
