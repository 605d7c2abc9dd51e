"""A short conversation with everything an agent's has, on which chat templates are checked."""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]

SYSTEM: Message = {"role": "system", "content": "You keep the books of a small shop."}
USER: Message = {"role": "user", "content": "What did Émile order, and when?"}
THOUGHT = "I need his number first."
ANSWER = "Two lamps, on 3 May."
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "find_customer",
            "description": "Looks up a customer by name.",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string", "description": "Full or first name"}},
                "required": ["name"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "list_orders",
            "description": "Lists the orders of a customer.",
            "parameters": {
                "type": "object",
                "properties": {"customer": {"type": "integer"}, "filters": {"type": "object"}},
                "required": ["customer"],
            },
        },
    },
]
# Text that needs escaping, nesting and each JSON type.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("find_customer", {"name": 'Émile "Mimi"\n<Zola> & Co.'}),
    ("list_orders", {"customer": 7, "filters": {"open": True, "above": 1.5, "tags": ["a", None]}}),
]


def call_message(*calls: tuple[str, dict[str, Any]], content: str | None = None, first: int = 0) -> Message:
    """An assistant message with these calls."""
    made = [
        {
            "id": f"call{first + index:05d}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def reply(name: str, content: str, number: int = 0) -> Message:
    """A tool's reply to the call of that number."""
    return {"role": "tool", "tool_call_id": f"call{number:05d}", "name": name, "content": content}


def says(content: str, **fields: Any) -> Message:
    return {"role": "assistant", "content": content, **fields}


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def with_tools(*, system: bool = True, parallel: bool = True) -> list[Message]:
    """Calls one by one and, with `parallel`, two at once, replies, an answer, and a question after it."""
    both = [call_message(*CALLS, first=1), reply("find_customer", "7", 1), reply("list_orders", "none", 2)] if parallel else []
    return [
        *([SYSTEM] if system else []),
        USER,
        call_message(CALLS[0]),
        reply("find_customer", '{"id": 7}'),
        *both,
        says(ANSWER),
        user("Has he paid?"),
        call_message(CALLS[1], first=3),
        reply("list_orders", "2 lamps, paid", 3),
        says("Yes."),
    ]


def without_tools(*, system: bool = True) -> list[Message]:
    """Words alone, the roles in turn."""
    return [*([SYSTEM] if system else []), USER, says(ANSWER), user("Has he paid?"), says("Yes.")]


def thinking(key: str, *, tools: bool, system: bool = True) -> list[Message]:
    """The same with a thought in each turn, under the key in which the template looks for it."""
    messages = with_tools(system=system) if tools else without_tools(system=system)
    return [{**each, key: THOUGHT} if each["role"] == "assistant" else each for each in messages]
