"""The assistant: a personal assistant over a calendar, messages, contacts, a timesheet and notes."""

from tracewheel_worlds.assistant.environment import AssistantEnvironment

__all__ = ["AssistantEnvironment"]
