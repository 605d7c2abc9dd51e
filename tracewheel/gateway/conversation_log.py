"""The log of served conversations: JSON lines in Tracewheel's own format, which `tracewheel ingest` reads.

A conversation is one line, written and flushed to the disk when it ends: a kill loses none that has ended. A file that has
grown to its size is left, and another begun; each process begins a file of its own, so none is ever written by two servers.
Files are their owner's alone, and so is a folder that is made for them. `tracewheel forget` replaces a file while it holds the
lock of the folder; a server that finds its file replaced begins another.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import RedactionConfig
from tracewheel.core import clock
from tracewheel.core.errors import DataError, SecretError
from tracewheel.core.locks import hold
from tracewheel.core.types import Trace
from tracewheel.gateway.exchange import Message
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.statements import Statement, line_of

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer


LOG = logging.getLogger(__name__)
SPELLED = ("messages", "tools", "info")  # what token ids spell; `info` holds the branches


class LogRedaction:
    """Redacts records before they are written. Its methods may be called from any thread.

    Token ids spell the text: where it is redacted there are none, and `info.redacted` says how many places of which kind were.
    A record from which a value cannot be removed is not logged.

    Args:
        config: What to redact, as for ingest.
        renderer: Spells token ids.

    Raises:
        ConfigError: pseudonyms need a key, and there is none.
    """

    def __init__(self, config: RedactionConfig, renderer: ChatRenderer) -> None:
        self._redactor, self._renderer, self._lock = Redactor(config), renderer, threading.Lock()

    def conversation(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """A conversation's record, itself where there is nothing to redact; None where it must not be written."""
        trace = Trace(**{**record, "tokens": None})
        with self._lock:
            if (made := self._redacted(trace)) is None:
                return None
            redacted, counts = made
            same = all(getattr(redacted, name) is getattr(trace, name) for name in SPELLED)
            if same and not self._is_spelled(record["tokens"]["token_ids"]):
                kept = record["tokens"]
            else:
                kept, counts = None, counts + Counter({"token_ids": 1})
        info = {**redacted.info, "redacted": dict(counts)} if counts else redacted.info
        return {**{name: getattr(redacted, name) for name in record}, "tokens": kept, "info": info}

    def shadow(self, record: dict[str, Any], before: Sequence[Message]) -> dict[str, Any] | None:
        """The record of a reply in the shadow, after the messages before it; as `conversation`."""
        said = [record["sent"], record["shadow"]]
        trace = Trace(record["turn"], [*before, *said], [], None, record["session"], record["user"], None, None, None, "", 0)
        with self._lock:
            if (made := self._redacted(trace)) is None:
                return None
            record = {**record, "session": made[0].session, "user": made[0].user}
            sent, shadow = made[0].messages[-2:]
            if [sent, shadow] == said and not self._is_spelled(record["token_ids"]):
                return record
        counts = {**made[1], "token_ids": 1}
        return {**record, "sent": sent, "shadow": shadow, "token_ids": None, "logprobs": None, "redacted": counts}

    def statement(self, statement: Statement) -> dict[str, Any] | None:
        """The line of what is said of a conversation, which it names as its own record does; None as in `conversation`."""
        with self._lock:
            try:
                return line_of(statement._replace(key=self._redactor.identity(statement.by, statement.key)))
            except SecretError as error:
                LOG.warning("an outcome is not logged: %s", error)
                return None

    def _redacted(self, trace: Trace) -> tuple[Trace, Counter[str]] | None:
        before = len(self._redactor.learned)
        try:
            made = self._redactor.trace(trace)
        except SecretError as error:
            LOG.warning("%s is not logged: %s", trace.id, error)
            return None
        if len(self._redactor.learned) > before:
            self._redactor.look_for_learned()
        return made

    def _is_spelled(self, ids: list[int]) -> bool:
        """Whether ids spell what is redacted, as may tools that were offered earlier and stand in no message."""
        try:
            return bool(self._redactor.record_bytes(self._renderer.decode(ids).encode("utf-8", "replace"))[1])
        except SecretError:
            return True


SERVED_FOLDER = Path("serving") / "logs"  # in the work folder
LARGEST = 64 << 20  # bytes of a file


class ConversationLog:
    """Appends records to files in a folder.

    Args:
        folder: Made if it is not there.
        name: What file names begin with.
        largest: Bytes after which another file is begun.
        forgotten: Says of a user and a session whether they were forgotten; of them nothing is written.

    Raises:
        DataError: the folder cannot be made.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "conversations",
        largest: int = LARGEST,
        forgotten: Callable[[str | None, str | None], bool] = lambda user, session: False,
    ) -> None:
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{folder}: cannot be made a folder for logs ({error.strerror}); name another") from error
        self._folder, self._name, self._largest = folder, name, largest
        self._forgotten, self._lock = forgotten, threading.Lock()
        self._file: int | None = None
        self._size = self._number = 0

    def write(self, record: dict[str, Any]) -> None:
        """Append one record, and wait until it is on the disk."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        with self._lock, hold(self._folder, wait=True):
            if self._forgotten(record.get("user"), record.get("session")):
                return
            if (
                self._file is None
                or not os.fstat(self._file).st_nlink
                or (self._size and self._size + len(line) > self._largest)
            ):
                self._begin()
            assert self._file is not None
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
            self._size += len(line)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _begin(self) -> None:
        if self._file is not None:
            os.close(self._file)
        while True:
            self._number += 1
            stamp = clock.now().strftime("%Y%m%dT%H%M%SZ")
            path = self._folder / f"{self._name}-{stamp}-{os.getpid()}-{self._number:04d}.jsonl"
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
                break
            except FileExistsError:
                continue
        self._size = 0
        folder = os.open(self._folder, os.O_RDONLY)  # its new entry, too
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
