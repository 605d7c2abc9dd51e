"""Tells attempts from copies: of traces with the same messages, what marks one as an attempt of its own.

Of traces with equal messages, starting point, session and user:

- With an id, those with the same id, task and number of trial are copies, whatever their times; others are attempts.
- Without an id, those with the same time, task and number of trial are copies; others are attempts.
- With none of these, it is a copy of whatever has the same content.
- Of traces made of spans, one is a copy if it is a single span that wraps the other's, as the AI SDK's `ai.generateText`
  wraps `ai.generateText.doGenerate`, and starts within a second of it.

A copied file has the same ids and times, or none at all, so its traces are copies under any name.
"""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tracewheel.core.types import Trace
from tracewheel.traces.hash_index import hash_of
from tracewheel.traces.readers.building import made_id

if TYPE_CHECKING:
    from tracewheel.traces.hash_index import HashIndex

# Names under which a log numbers the attempts at a task; readers keep them in `info`.
ATTEMPTS = ("trial", "trial_id", "attempt", "attempt_id", "run", "run_id", "rollout", "rollout_id", "sample", "sample_id")
NUMBERS = (*ATTEMPTS, "repeat", "repetition", "epoch", "seed")
INNER = re.compile(r"\.do[A-Z]\w*$")
MADE = re.compile(r"trace-[0-9a-f]{16}")


class Identity(NamedTuple):
    """Hashes of a trace.

    Attributes:
        content: Of what copies share.
        own: Of that and the marks of the attempt; `content` where the log has none.
        wrapped: Of that, the operation and the second of a span that may wrap another, or be wrapped; empty for others.
        wrapping: The hashes that spans around it, or in it, have as `wrapped`.
    """

    content: bytes
    own: bytes
    wrapped: bytes = b""
    wrapping: tuple[bytes, ...] = ()

    @property
    def noted(self) -> tuple[bytes, ...]:
        """What to remember of it; the first says whether it is new."""
        return (self.own,) if self.own == self.content else (self.own, self.content)

    @classmethod
    def of(cls, trace: Trace, content: bytes) -> Identity:
        """The hashes of a trace whose messages, starting point, session and user have the hash `content`."""
        numbers = [trace.info.get(name) for name in NUMBERS]
        has_id = not (MADE.fullmatch(trace.id) and trace.id == _made(trace))
        marks = [trace.id if has_id else None, None if has_id else trace.created, trace.task, *numbers]
        own = content if marks == [None] * len(marks) else hash_of(content, repr(marks).encode("utf-8", "surrogatepass"))
        root, second = trace.info.get("root"), _second(trace.created)
        if trace.info.get("spans") != 1 or not isinstance(root, str) or second is None:
            return cls(content, own)
        operation, is_inner = INNER.sub("", root).encode(), INNER.search(root) is not None

        def around(of_inner: bool, at: int) -> bytes:
            return hash_of(content, b"wrapped", operation, bytes([of_inner]), str(at).encode())

        return cls(content, own, around(is_inner, second), tuple(around(not is_inner, second + step) for step in (-1, 0, 1)))


def are_new(identities: list[Identity], known: HashIndex) -> list[bool]:
    """Whether each trace is the first of its identity; notes all of them."""
    if not any(one.wrapped for one in identities):
        # One look-up of many hashes costs little more than one of a single hash.
        flags = known.add([part for one in identities for part in one.noted])
        firsts = itertools.accumulate((len(one.noted) for one in identities), initial=0)
        return [flags[first] for first, _ in zip(firsts, identities, strict=False)]
    new = []
    for one in identities:
        is_new = not any(map(known.contains, one.wrapping)) and known.add(list(one.noted))[0]
        if is_new and one.wrapped:
            known.add([one.wrapped])
        new.append(is_new)
    return new


def _made(trace: Trace) -> str:
    return made_id(trace.messages, trace.environment, trace.session, trace.user)


def _second(created: str | None) -> int | None:
    try:
        return int(datetime.fromisoformat(created).timestamp()) if created else None
    except (ValueError, OverflowError):
        return None
