"""Several environments in one profile."""

from tracewheel.environments.several.environment import SeveralEnvironments, member_for

__all__ = ["SeveralEnvironments", "member_for"]
