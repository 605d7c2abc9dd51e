"""The patch environment: a repository and an issue; the agent reads, edits, runs tests and submits."""

from tracewheel_worlds.patch.environment import PatchEnvironment

__all__ = ["PatchEnvironment"]
