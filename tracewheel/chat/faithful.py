"""Whether a chat template writes a logged conversation as it was said: what it cannot is left out of training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tracewheel.chat.renderer import ChatRenderer, Message

BROKEN_CALL = "a call with broken arguments"
REFUSED = "the chat template refuses it"
MOVED = "the chat template drops or moves a message"


def why_unfaithful(renderer: ChatRenderer, messages: Sequence[Message], tools: list[dict[str, Any]], opening: int = 0) -> str:
    """Why a conversation cannot be rendered as it was said, or "".

    What the agent wrote in a call with broken arguments is not known, so no template can write it. Many templates are made
    for a user who begins and a single system message: some refuse other orders, some gather all system messages at the
    beginning, some leave them out. Only conversations with such an order are rendered here.

    Args:
        renderer: That of the policy.
        messages: The conversation in OpenAI chat format.
        tools: The tools it was offered.
        opening: As in `conversation.render_conversation`.
    """
    if any(_is_broken(call["function"]["arguments"]) for message in messages for call in message.get("tool_calls") or ()):
        return BROKEN_CALL
    if not _is_unusual(messages):
        return ""
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    try:
        renderer.conversation(list(messages), tools, opening)
        text = renderer.decode(renderer.prompt_ids(list(messages[: last + 1]), tools))
    except Exception:  # a template raises whatever its author chose
        return REFUSED
    at = 0
    for message in messages[: last + 1]:
        said = (message.get("content") or "").strip()
        at = text.find(said, at)
        if at < 0:
            return MOVED
        at += len(said)
    return ""


def _is_broken(arguments: Any) -> bool:
    if not isinstance(arguments, str):
        return not isinstance(arguments, dict)
    try:
        return not isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return True


def _is_unusual(messages: Sequence[Message]) -> bool:
    """Whether the agent speaks before the user, or a system message is not the first."""
    roles = [message["role"] for message in messages]
    first_user = roles.index("user") if "user" in roles else len(roles)
    return "assistant" in roles[:first_user] or any(role in ("system", "developer") for role in roles[1:])
