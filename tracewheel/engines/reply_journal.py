"""An endpoint's replies, stored on disk as soon as they arrive, since they may have cost money.

A file of JSON lines, each with a reply, the name of its episode and a hash of the conversation that it answers. A subclass may
keep other entries in the same file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TextIO

from tracewheel.core.errors import DataError
from tracewheel.core.types import content_hash
from tracewheel.engines.chat_reply import Message, Reply


class ReplyJournal:
    """Use it as a context manager. Many threads may write to it at once.

    Args:
        path: The file; made with its folder when it does not exist. An incomplete last line is dropped.

    Attributes:
        spent: What all replies in the file cost.

    Raises:
        DataError: the file is no journal.
    """

    def __init__(self, path: Path) -> None:
        self.spent = 0.0
        self._path = path
        self._replies: dict[tuple[str, str], Reply] = {}
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        for line in _whole_lines(path):
            try:
                self._take_in(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}: is no journal of this version ({error}); move it away to start over") from error

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        with self._lock:
            self._file.close()

    def reply(self, episode: str, messages: list[Message], tools: list[dict[str, Any]], ask: Callable[[], Reply]) -> Reply:
        """The stored reply to the same conversation in the same episode, else a new one, which `ask` gets."""
        asked = content_hash([messages, tools])
        known = self._replies.get((episode, asked))
        if known:
            return known
        reply = self._replies[episode, asked] = ask()
        self._write({"episode": episode, "asked": asked, "reply": reply.to_record()})
        return reply

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with self._lock:
            assert self._file is not None
            if not self._file.closed:  # a thread that is still running after a command gave up
                self._file.write(line)
                self._file.flush()

    def _take_in(self, entry: dict[str, Any]) -> None:
        reply = Reply.from_record(entry["reply"])
        self._replies[entry["episode"], entry["asked"]] = reply
        self.spent += reply.usage.cost or 0.0


def _whole_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    whole, end, cut = path.read_bytes().rpartition(b"\n")
    if cut:
        path.write_bytes(whole + end)
    return whole.splitlines()
