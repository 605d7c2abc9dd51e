"""Environments recorded from logs."""

from tracewheel.environments.recorded.environment import PREFIX, RecordedEnvironment

__all__ = ["PREFIX", "RecordedEnvironment"]
