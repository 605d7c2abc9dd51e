"""Mutations of JSON records, as a hostile log, task or profile may hold them. Seeded: equal seeds give equal records."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

KINDS = (
    "subprocess:Popen",
    "os:system",
    "builtins:exec",
    "pickle:loads",
    "tests.no_such_module:Thing",
    "mcp",
    "harbor",
    "code",
)
PATHS = (
    "../../etc/passwd",
    "/etc/passwd",
    "recorded:/etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1:9/x",
    "|id",
    "\\\\host\\x",
)
TEXTS = (
    *KINDS,
    *PATHS,
    "{{ 7 * 7 }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "${IFS}$(id)",
    "\0",
    "(a+)+$",
    "",
    "é",
)
LONE_SURROGATE = "\ud83d"


def hostile_kind(drawn: random.Random) -> dict[str, Any]:
    """What a field with a kind may say, to have something of its own made."""
    args = drawn.choice(
        ({"args": ["sh", "-c", "echo > pwned"]}, {"command": "echo > pwned"}, {"path": drawn.choice(PATHS)}, {})
    )
    return {"kind": drawn.choice(KINDS), "args": args}


def hostile_environment(drawn: random.Random, kind: str) -> dict[str, Any]:
    """The environment of a record of a world, with fields that name what the record has no say in."""
    named = drawn.choice(
        (
            {"verifier": hostile_kind(drawn)},
            {"verifier": json.dumps(hostile_kind(drawn))},
            {"verifier": json.dumps({"kind": "os:system", "args": {"command": "echo > pwned"}})},
            {"verifier": json.dumps({"kind": "subprocess:Popen", "args": {"args": ["sh", "-c", "echo > pwned"]}})},
            {"folder": drawn.choice(PATHS), "task": drawn.choice(PATHS)},
            {"command": ["sh", "-c", "echo > pwned"], "url": drawn.choice(PATHS)},
            {"prompt": drawn.choice(TEXTS), "files": dict.fromkeys(PATHS, "x")},
            {"template": "{{ 7 * 7 }}", "pattern": "(a+)+$", "repository": drawn.choice(PATHS), "base": "--output=pwned"},
        )
    )
    return drawn.choice(({"kind": kind}, {"kind": kind}, hostile_kind(drawn))) | {"prompt": "Do it."} | named


def hostile_value(drawn: random.Random) -> Any:
    """A value of another type or size than anybody expects."""
    deep: Any = "end"
    for _ in range(drawn.choice((10, 70, 300))):
        deep = drawn.choice(([deep], {"a": deep}))
    values = (None, True, 0, -1, 10**30, -(2**63), 1e308, float("nan"), float("inf"), [], {}, [[]], [None], {"": None})
    return drawn.choice((*values, *TEXTS, deep, LONE_SURROGATE, "x" * 100_000, hostile_kind(drawn)))


def mutated(record: Any, drawn: random.Random, changes: int = 3) -> Any:
    """A copy of a JSON value with some changes: a value replaced, removed, doubled or given to another key."""
    made = copy.deepcopy(record)
    for _ in range(drawn.randint(1, changes)):
        places = list(_places(made))
        if not places:
            return hostile_value(drawn)
        holder, key = drawn.choice(places)
        match drawn.randrange(5):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 2 if isinstance(holder, dict) and len(holder) > 1:
                value = holder.pop(key)
                holder[drawn.choice(list(holder))] = value
            case _:
                holder[key] = hostile_value(drawn)
    return made


def _places(value: Any) -> Any:
    pending = [value]
    while pending:
        holder = pending.pop()
        if isinstance(holder, dict | list):
            for key in holder if isinstance(holder, dict) else range(len(holder)):
                yield holder, key
                pending.append(holder[key])
