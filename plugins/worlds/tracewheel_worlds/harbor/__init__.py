"""Harbor and terminal-bench task directories: a shell in the sandbox, and the task's own tests."""

from tracewheel_worlds.harbor.environment import HarborEnvironment

__all__ = ["HarborEnvironment"]
