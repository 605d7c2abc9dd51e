"""A judge's replies and what they cost, kept in a file that all its threads and processes share."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracewheel import BudgetReached, DataError, Reply, hold_beside


class JudgeJournal:
    """Replies and budget of one judge, for any number of threads and processes with the same file. It is the clients' `Budget`.

    Args:
        path: The file; made with its folder when it does not exist.
        calls: The most requests that may be sent, retries included; None for no limit.
        money: The most that they may cost; None for no limit.

    Attributes:
        calls_sent: The requests so far, of all processes.
        spent: What they cost at most.

    Raises:
        DataError: the file is no journal.
    """

    def __init__(self, path: Path, calls: int | None = None, money: float | None = None) -> None:
        self.calls_sent, self.spent = 0, 0.0
        self._path, self._calls, self._money = path, calls, money
        self._replies: dict[str, Reply] = {}
        self._read_to = self._open = 0
        self._changed = threading.Condition()
        self._asking: dict[str, threading.Lock] = {}

    def reply(self, asked: str, ask: Callable[[], Reply]) -> Reply:
        """The kept reply, else a new one. Threads that ask the same wait for one answer.

        Args:
            asked: Hash of what is asked, and of whom.
            ask: Gets a reply, with this journal as its budget.
        """
        with self._changed:
            turn = self._asking.setdefault(asked, threading.Lock())
        with turn:
            with self._changed, hold_beside(self._path):
                self._catch_up()
                if asked in self._replies:
                    return self._replies[asked]
            reply = ask()
            with self._changed, hold_beside(self._path):
                self._catch_up()
                self._write({"asked": asked, "reply": reply.to_record()})
            return reply

    def reserve(self, at_most: float) -> None:
        """Reserve a request; wait while open ones of this process may still turn out cheaper.

        Raises:
            BudgetReached: it would be one too many, or could cost too much.
        """
        with self._changed:
            while True:
                with hold_beside(self._path):
                    self._catch_up()
                    if self._calls is not None and self.calls_sent >= self._calls:
                        raise BudgetReached(f"the budget of {self._calls} calls is reached ({self._path}): raise limits.calls")
                    if self._money is None or self.spent + at_most <= self._money:
                        self._write({"reserved": at_most})
                        self._open += 1
                        return
                if not self._open:
                    raise BudgetReached(
                        f"the budget of {self._money:g} is reached ({self._path}): {self.spent:.6g} is spent, and the next "
                        f"request may cost {at_most:.6g}; raise limits.money"
                    )
                self._changed.wait()

    def settle(self, at_most: float, cost: float) -> None:
        """Replace a reservation by the request's cost."""
        with self._changed, hold_beside(self._path):
            self._catch_up()
            self._open -= 1
            self._write({"settled": at_most, "cost": cost})
            self._changed.notify_all()

    def _catch_up(self) -> None:
        """Read what other processes have added; the caller holds the file's lock."""
        if not self._path.exists():
            return
        with self._path.open("rb") as stream:
            stream.seek(self._read_to)
            added = stream.read()
        whole, end, cut = added.rpartition(b"\n")
        if cut:  # by a kill: nobody else writes while the lock is held
            with self._path.open("r+b") as stream:
                stream.truncate(self._read_to + len(whole) + len(end))
        for line in whole.splitlines():
            try:
                self._take_in(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{self._path}: is no judge's journal ({error}); move it away to start over") from error
        self._read_to += len(whole) + len(end)

    def _take_in(self, entry: dict[str, Any]) -> None:
        if "reserved" in entry:
            self.calls_sent += 1
            self.spent += entry["reserved"]
        elif "settled" in entry:
            self.spent += entry["cost"] - entry["settled"]
        else:
            self._replies[entry["asked"]] = Reply.from_record(entry["reply"])

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        with self._path.open("ab") as stream:
            stream.write(line)
        self._read_to += len(line)
        self._take_in(entry)
