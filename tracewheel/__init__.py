"""Tracewheel: from the logged traces of an LLM agent to a better agent."""

__version__ = "0.1.0"
