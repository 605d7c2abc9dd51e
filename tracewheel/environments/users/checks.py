"""The check of what a simulated user says: a user that errs must not count against the agent.

Each check stands for a way in which models fail as users: they make facts up or contradict their own, tell what only the
database knows, slip into the assistant's part, repeat themselves without end, or say nothing.
"""

from __future__ import annotations

import re

from tracewheel.environments.users.base import UserBrief

LOOP = 4
# What assistants say and customers do not.
ASSISTANT = re.compile(
    r"\bas an ai\b|\blanguage model\b|\bhow (?:can|may) i (?:help|assist)\b|\bi(?:'d| would) be happy to (?:help|assist)\b"
    r"|\bi(?:'ve| have) (?:processed|issued|approved|initiated|refunded|cancelled|exchanged)\b"
    r"|\bthank you for contacting\b|\bis there anything else i can\b|<tool_call>|\"arguments\"\s*:",
    re.IGNORECASE,
)


def problem_of(brief: UserBrief, heard: list[str], said_before: list[str], text: str) -> str:
    """What is wrong with a message of a simulated user, or "".

    Args:
        brief: What the user was told.
        heard: What the agent has said so far, the last message included.
        said_before: The user's earlier messages of this episode, the prompt first.
        text: The message.
    """
    if not text.strip():
        return "the user says nothing"
    if found := ASSISTANT.search(text):
        return f"the user answers as an assistant: {found.group()!r}"
    recent = said_before[-(LOOP - 1) :]
    if len(recent) == LOOP - 1 and set(recent) == {text} and len(set(heard[-LOOP:])) == LOOP:
        return f"the user repeats itself: {text!r} to {LOOP} different messages"
    return _value_problem(brief, heard, text) or _contradiction(brief, text)


def _value_problem(brief: UserBrief, heard: list[str], text: str) -> str:
    """A value in the text that the user cannot know; what the agent mentioned, or the prompt, it may repeat."""
    known = brief.allowed | {fact.value for fact in brief.facts}
    mentioned = " ".join((*heard, brief.prompt, brief.change))
    for value in sorted(brief.unknown - known):
        if _has(text, value) and not _has(mentioned, value):
            return f"the user tells what it cannot know: {value!r}"
    for found in re.findall(brief.values, text, re.IGNORECASE) if brief.values else ():
        if found.lower() not in {value.lower() for value in known} and not _has(mentioned, found):
            return f"the user makes a value up: {found!r}"
    return ""


def _contradiction(brief: UserBrief, text: str) -> str:
    for fact in brief.facts:
        if fact.denied and (found := re.search(fact.denied, text, re.IGNORECASE)):
            return f"the user contradicts its facts: {found.group()!r}, but {fact.name} is {fact.value}"
    return ""


def _has(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None
