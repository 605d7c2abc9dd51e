"""The replies of an endpoint, stored on disk as soon as they arrive, since they may have cost money.

A file of JSON lines. A line holds either a reply, with its episode and a hash of the conversation that it answers, or an
episode that has ended, whose replies are no longer needed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.engines.chat_reply import Message, Reply
from tracewheel.teacher.attempt import Attempt, EndpointEpisode, Speak

# Asks the endpoint for an episode's next reply.
Ask = Callable[[EndpointEpisode, list[Message], list[dict[str, Any]]], Reply]


class Journal:
    """Use it as a context manager. Many threads may write to it at once.

    Args:
        path: The file; made with its folder when it does not exist. An incomplete last line is dropped.

    Attributes:
        ended: The episodes that have ended, by key.
        spent: What all replies in the file cost.

    Raises:
        DataError: the file is no journal.
    """

    def __init__(self, path: Path) -> None:
        self.ended: dict[str, Attempt] = {}
        self.spent = 0.0
        self._path = path
        self._replies: dict[tuple[str, str], Reply] = {}
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        for line in _whole_lines(path):
            self._take_in(line)

    def __enter__(self) -> Journal:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        with self._lock:
            self._file.close()

    def speaker(self, wanted: EndpointEpisode, ask: Ask) -> Speak:
        """The model's replies in one episode: the stored reply to the same conversation, else a new one."""

        def speak(messages: list[Message], tools: list[dict[str, Any]]) -> Reply:
            asked = content_hash([messages, tools])
            known = self._replies.get((wanted.key, asked))
            if known:
                return known
            reply = ask(wanted, messages, tools)
            self._write({"episode": wanted.key, "asked": asked, "reply": reply.to_record()})
            return reply

        return speak

    def note(self, attempt: Attempt) -> None:
        """Store an episode that has ended; an unfinished one is continued another time."""
        if attempt.finished:
            self._write({"attempt": asdict(attempt)})
            self.ended[attempt.key] = attempt

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with self._lock:
            assert self._file is not None
            if not self._file.closed:  # a thread that is still running after a command gave up
                self._file.write(line)
                self._file.flush()

    def _take_in(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            if "attempt" in entry:
                attempt = Attempt(**entry["attempt"])
                self.ended[attempt.key] = attempt
            else:
                reply = Reply.from_record(entry["reply"])
                self._replies[entry["episode"], entry["asked"]] = reply
                self.spent += reply.usage.cost or 0.0
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self._path}: is no journal of this version ({error}); move it away to start over") from error


def _whole_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    whole, end, cut = path.read_bytes().rpartition(b"\n")
    if cut:
        path.write_bytes(whole + end)
    return whole.splitlines()
