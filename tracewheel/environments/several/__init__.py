"""Several environments in one profile."""

from tracewheel.environments.several.environment import SeveralEnvironments

__all__ = ["SeveralEnvironments"]
