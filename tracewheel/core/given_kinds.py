"""Which kinds may be made: built-in ones, and those that the user named, in a profile or on the command line.

What a log, a data set, a task folder, a recording or a stored run names is data. No record decides which module is imported,
which program starts, or which path and address are opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tracewheel.core.types import canonical_json

OWN_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
VARIABLE = "TRACEWHEEL_GIVEN_KINDS"  # worker processes inherit it: they may make what their parent may
_silent: ContextVar[bool] = ContextVar("the profile of a stored run is read", default=False)


def give(kind: str, *others: str) -> str:
    """The user has named these kinds, as text: they may be made, with the kinds in their arguments. Returns the first."""
    known = _given()
    texts = (_short(text) for named in (kind, *others) for text in (named, *inner_kinds(named)))
    new = [text for text in texts if text not in known]
    if new and not _silent.get():
        os.environ[VARIABLE] = json.dumps([*known, *dict.fromkeys(new)])
    return kind


def give_changed(kind: str, changed: str) -> str:
    """A kind that we made of another: it may be made if that one may. A bare built-in name was never needed."""
    return give(changed) if is_given(kind) and not kind.isidentifier() else changed


@contextmanager
def naming_nothing() -> Iterator[None]:
    """Read the profile of a stored run: what it names, its author named and not the user."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def is_given(kind: str) -> bool:
    """Whether the user named this kind with these very arguments."""
    return _short(kind) in _given()


def may_import(name: str) -> bool:
    """Whether the user named `module:Class`, or another class of its module or, for `package.module`, of its package."""
    module = name.partition(":")[0]
    for given in _given():
        own = given.partition(":")[0]
        package = own.rpartition(".")[0] or own
        if OWN_CLASS.fullmatch(given) and (module == package or module.startswith(f"{package}.")):
            return True
    return False


def inner_kinds(text: str) -> Iterator[str]:
    """The kinds that a kind's text holds, each by name and with its arguments."""
    waiting: list[Any] = [json.loads(text)] if text.startswith("{") else []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            kind, args = value.get("kind"), value.get("args")
            if isinstance(kind, str):
                yield kind
                if isinstance(args, dict) and args:
                    yield canonical_json({"kind": kind, "args": args})
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _short(text: str) -> str:
    """A kind as the variable holds it, which the system allows 128 KiB: arguments as a hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] if text.startswith("{") else text


def _given() -> list[str]:
    found: list[str] = json.loads(os.environ.get(VARIABLE) or "[]")
    return found
