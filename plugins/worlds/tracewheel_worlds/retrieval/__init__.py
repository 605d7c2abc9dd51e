"""Retrieval QA: an agent that searches documents, opens what helps, and answers a question."""

from tracewheel_worlds.retrieval.environment import RetrievalEnvironment

__all__ = ["RetrievalEnvironment"]
