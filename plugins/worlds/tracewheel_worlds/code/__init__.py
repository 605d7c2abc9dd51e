"""Code: an agent writes, runs and mends Python in a box, and hidden tests judge its files elsewhere."""

from tracewheel_worlds.code.environment import CodeEnvironment

__all__ = ["CodeEnvironment"]
