"""Redaction in a second process: it reads batches of records from its input, and writes what became of them, in order.

It is a new process, not a fork, as libraries with threads do not survive a fork. It does not import the program that started
it, hears no signal, and ends when its input does: with that program, however that ends. A batch is a line of JSON.
"""

from __future__ import annotations

import base64
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import orjson

from tracewheel.config.curation import RedactionConfig
from tracewheel.core.errors import InfrastructureError, SecretError
from tracewheel.core.types import Trace
from tracewheel.traces.parquet import NOT_STORABLE
from tracewheel.traces.quarantine import Quarantined, not_storable, withheld
from tracewheel.traces.redaction.redactor import Redactor

START = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.buffer.readline())\n"
    "from tracewheel.traces.redaction.second_process import main; main()"
)
Record = Trace | Quarantined


class Redacted(NamedTuple):
    """What became of a record.

    Attributes:
        item: Without secrets; None for a trace that holds none.
        found: How many places were redacted, by kind.
        learned: The secrets that it revealed: kinds by value.
    """

    item: Record | None
    found: Counter[str]
    learned: dict[str, str]


def redacted(redactor: Redactor, item: Record, messages: Sequence[bytes] = ()) -> Redacted:
    """Redact a record; one that cannot be redacted is put in quarantine without its bytes.

    Args:
        redactor: Redacts; what it has learned stays as it is.
        item: The record.
        messages: Each message of a trace as JSON text.
    """
    redactor.learned, earlier = {}, redactor.learned
    try:
        if isinstance(item, Trace):
            try:
                new, found = redactor.trace(item, messages)
                return Redacted(None if new is item else new, found, redactor.learned)
            except SecretError as error:
                item = withheld(item, error)
            except NOT_STORABLE as error:
                item = not_storable(item, error)
        aside, found = redactor.quarantined(item)
        return Redacted(aside, found, redactor.learned)
    finally:
        redactor.learned = earlier


class SecondProcess:
    """Redacts batches of records beside this process; it starts with the first.

    Args:
        config: What to redact.
    """

    def __init__(self, config: RedactionConfig) -> None:
        self._config, self._known = config, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    @property
    def pid(self) -> int | None:
        """The process's id; None before it starts and after it has ended."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def send(self, batch: Sequence[bytes], known: Mapping[str, str]) -> None:
        """Have records redacted, as `written` writes them; `known` are the secrets to look for in all."""
        if self._process is None:
            self._start()
        news = orjson.dumps(dict(known) if len(known) != self._known else None)
        self._known = len(known)
        self._frames.put(b"[" + news + b",[" + b",".join(batch) + b"]]\n")

    def receive(self) -> list[Redacted | None]:
        """What became of the batch that was sent first; None of a record that is to be redacted here.

        Raises:
            InfrastructureError: the process has ended.
        """
        assert self._process and self._process.stdout
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            code = self._process.wait()
            how = (
                f"was killed by signal {-code}; if that is 9, memory may be short"
                if code < 0
                else f"ended with exit code {code}"
            )
            raise InfrastructureError(f"ingest: its second process {how}. Nothing is half-written: run it again")
        return [one and Redacted(_read(one["item"]), Counter(one["found"]), one["learned"]) for one in orjson.loads(line)]

    def _start(self) -> None:
        command = [sys.executable, "-I", "-c", START]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._frames.put(orjson.dumps(sys.path) + b"\n" + self._config.model_dump_json().encode() + b"\n")
        # Apart, as this process would wait for the other to read, and the other for this one.
        threading.Thread(target=_write, args=(self._process.stdin, self._frames), daemon=True).start()

    def __enter__(self) -> SecondProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is None:
            return
        if kind is not None:
            self._process.kill()
        self._frames.put(None)
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()


def _write(file: BinaryIO, frames: queue.SimpleQueue[bytes | None]) -> None:
    try:
        with file:
            while (frame := frames.get()) is not None:
                file.write(frame)
                file.flush()
    except OSError:
        pass  # whoever reads what it writes is told


def main() -> None:
    """Redact until the input ends."""
    for heard in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(heard, signal.SIG_IGN)
    frames, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints is no frame
    redactor = Redactor(RedactionConfig.model_validate_json(frames.readline()))
    for line in frames:
        news, batch = orjson.loads(line)
        if news is not None:
            redactor.learned = news
            redactor.look_for_learned()
            redactor.learned = {}
        made = (redacted(redactor, item) for record in batch if (item := _read(record)))
        out.write(b"[" + b",".join(map(_answer, made)) + b"]\n")
        out.flush()


def written(item: Record, messages: Sequence[bytes] = ()) -> bytes | None:
    """A record as JSON text; None where JSON cannot hold it.

    Args:
        item: The record.
        messages: Each message of a trace as JSON text, where the caller has it.
    """
    fields: dict[str, Any] = vars(item).copy()
    if isinstance(item, Quarantined):
        fields["raw"] = base64.b64encode(item.raw).decode()
    elif messages:
        fields["messages"] = [*map(orjson.Fragment, messages)]
    with contextlib.suppress(*NOT_STORABLE):
        return orjson.dumps(fields)
    return None


def _read(fields: dict[str, Any] | None) -> Record | None:
    if fields is None:
        return None
    return Quarantined(**{**fields, "raw": base64.b64decode(fields["raw"])}) if "raw" in fields else Trace(**fields)


def _answer(made: Redacted) -> bytes:
    text = written(made.item) if made.item else b"null"
    with contextlib.suppress(*NOT_STORABLE):
        if text:
            return orjson.dumps({"item": orjson.Fragment(text), "found": made.found, "learned": made.learned})
    return b"null"
