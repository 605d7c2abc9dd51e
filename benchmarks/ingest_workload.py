"""Three kinds of logs, equal on every machine with the same Python.

| kind | what |
|---|---|
| `orders` | conversations with calls and results, from thirty words |
| `words` | the same in English: words of Python's own documentation, as often as there |
| `sessions` | agents that program: files of Python's library, listings with times, ids and paths, an image in every eighth |
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

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


KINDS = ("orders", "words", "sessions")


def write_log(path: Path, size: int, kind: str) -> int:
    """Write conversations of a kind, one a line, up to a size in bytes; returns how many."""
    count = written = 0
    with path.open("wb") as file:
        for line in LINES[kind]():
            written += file.write(line)
            count += 1
            if written >= size:
                break
    return count


def order_lines(first: int = 0) -> Iterator[bytes]:
    """Conversations of thirty words, numbered from the first."""
    drawn = random.Random(7)
    texts = [json.dumps(" ".join(drawn.choices(WORDS, k=drawn.randint(8, 60))))[1:-1] for _ in range(TEXTS)]
    head = json.dumps({"role": "system", "content": SYSTEM})
    tools = json.dumps(TOOLS)
    for number in itertools.count(first):
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


def word_lines(first: int = 0) -> Iterator[bytes]:
    """Conversations in the words of Python's documentation."""
    words = [word for text in topics.values() for word in text.split()]
    for number in itertools.count(first):
        drawn = random.Random(number)
        messages = [{"role": "system", "content": _said(drawn, words, 80)}]
        for turn in range(drawn.randint(2, 6)):
            messages.append({"role": "user", "content": _said(drawn, words, drawn.randint(10, 120))})
            call = {"name": "look_up", "arguments": json.dumps({"topic": drawn.choice(words), "page": turn})}
            calls = [{"id": f"call_{number:x}_{turn}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": _said(drawn, words, 300)})
            messages.append({"role": "assistant", "content": _said(drawn, words, drawn.randint(20, 200))})
        yield json.dumps({"id": f"words-{number}", "messages": messages, "reward": number % 2}).encode() + b"\n"


def session_lines(first: int = 0) -> Iterator[bytes]:
    """Conversations with an agent that reads and edits files."""
    library = Path(os.__file__).parent
    files = sorted(library.glob("*.py"))
    words = [word for text in topics.values() for word in text.split()]
    for number in itertools.count(first):
        drawn = random.Random(number)
        session = str(uuid.UUID(int=drawn.getrandbits(128), version=4))
        messages = [{"role": "user", "content": _said(drawn, words, 60)}]
        for turn in range(drawn.randint(4, 12)):
            file = drawn.choice(files)
            begin, source = drawn.randrange(40), file.read_text(encoding="utf-8", errors="replace").splitlines()[:400]
            read = "\n".join(f"{at:6}\t{line}" for at, line in enumerate(source[begin : begin + 200], begin + 1))
            listing = "\n".join(
                f"-rw-r--r-- 1 user user {drawn.randrange(10**6)} 2026-02-{drawn.randint(10, 28)} 11:22 src/{one.name}"
                for one in drawn.sample(files, 12)
            )
            shown = drawn.choice((read, read, listing, f"session_id: {session}\n" + _said(drawn, words, 90)))
            if turn == 3 and number % 8 == 0:
                shown = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + drawn.randbytes(120_000)).decode()
            path = f"/home/user/project/src/{file.name}"
            call = {"name": "read", "arguments": json.dumps({"file_path": path, "old_string": "\n".join(source[:6])})}
            calls = [{"id": f"toolu_{drawn.getrandbits(96):024x}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": _said(drawn, words, 30), "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": shown})
        messages.append({"role": "assistant", "content": _said(drawn, words, 50)})
        about = {"id": session, "session_id": session, "created": f"2026-02-12T22:11:{number % 60:02}.123Z"}
        yield json.dumps({**about, "messages": messages}).encode() + b"\n"


def _said(drawn: random.Random, words: list[str], count: int) -> str:
    return " ".join(drawn.choices(words, k=count))


LINES = {"orders": order_lines, "words": word_lines, "sessions": session_lines}
