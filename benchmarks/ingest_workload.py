"""Synthetic logs in OpenAI's format: conversations with calls and results, as large and varied as real agent logs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

WORDS = [
    "order",
    "refund",
    "invoice",
    "delivery",
    "address",
    "customer",
    "account",
    "payment",
    "window",
    "status",
    "number",
    "request",
    "answer",
    "confirm",
    "change",
    "cancel",
    "return",
    "product",
    "price",
    "warehouse",
    "shipping",
    "tracking",
    "support",
    "ticket",
    "policy",
    "item",
    "quantity",
    "date",
    "receipt",
    "exchange",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.replace('_', ' ').capitalize()} in the shop's books.",
            "parameters": {
                "type": "object",
                "properties": {"key": {"type": "string", "description": "What to look for."}, "limit": {"type": "integer"}},
                "required": ["key"],
            },
        },
    }
    for name in ("find_order", "read_order", "change_order", "find_customer", "send_message")
]
SYSTEM = "You are a shop's agent. " + " ".join(WORDS) * 2
USERS, TEXTS = 5000, 2000


def write_log(path: Path, traces: int, first: int = 0) -> int:
    """Write traces, one per line, numbered from the given first. Equal numbers give equal bytes.

    Returns:
        Bytes written.
    """
    with path.open("wb") as file:
        for line in lines(traces, first):
            file.write(line)
    return path.stat().st_size


def lines(traces: int, first: int = 0) -> Iterator[bytes]:
    """The lines of a log."""
    drawn = random.Random(7)
    texts = [json.dumps(" ".join(drawn.choices(WORDS, k=drawn.randint(8, 60))))[1:-1] for _ in range(TEXTS)]
    head = json.dumps({"role": "system", "content": SYSTEM})
    tools = json.dumps(TOOLS)
    for number in range(first, first + traces):
        drawn = random.Random(number)
        messages = [head, f'{{"role": "user", "content": "Order {number}: {drawn.choice(texts)}"}}']
        for turn in range(drawn.randint(2, 7)):
            name = TOOLS[drawn.randrange(len(TOOLS))]["function"]["name"]
            identity = f"call_{number:x}_{turn}"
            arguments = f'{{\\"key\\": \\"{number}-{turn}\\", \\"limit\\": {turn}}}'
            call = f'{{"id": "{identity}", "type": "function", "function": {{"name": "{name}", "arguments": "{arguments}"}}}}'
            messages.append(f'{{"role": "assistant", "content": null, "tool_calls": [{call}]}}')
            messages.append(f'{{"role": "tool", "tool_call_id": "{identity}", "content": "{drawn.choice(texts)}"}}')
        messages.append(f'{{"role": "assistant", "content": "{drawn.choice(texts)}"}}')
        about = f'"id": "chat-{number}", "session": "s-{number}", "user": "u-{number % USERS}", "reward": {number % 2}'
        yield f'{{{about}, "messages": [{", ".join(messages)}], "tools": {tools}}}\n'.encode()
