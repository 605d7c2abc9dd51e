"""An engine in a thread of its own, asked by many programs at once.

The engine's sessions are chosen here: a request goes on in the session of its program that has computed most of its context,
and the rest is forgotten. Where the engine can hold no more sessions, one that waits for its program makes room.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from tracewheel.chat.grammar import GrammarState
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.types import content_hash
from tracewheel.engines.base import Engine, Generation, Request

LEAST_SHARED = 0.5  # of a session's tokens: below, another session is opened rather than these forgotten
IDLE_SECONDS = 0.5


@dataclass(frozen=True)
class Ask:
    """A turn that a program wants.

    Attributes:
        owner: The program. Its sessions are nobody else's.
        ids: The whole context.
        most: The most tokens of the turn.
        seed: Of the owner's first session; further ones get seeds made from it.
        temperature: None for the engine's.
        greedy: Take the most likely token at each step.
        grammar: What the turn may say, None for anything.
    """

    owner: str
    ids: list[int]
    most: int
    seed: int = 0
    temperature: float | None = None
    greedy: bool = False
    grammar: GrammarState | None = None

    @property
    def kind(self) -> tuple[str, float | None, bool]:
        """What a session's requests have in common."""
        return self.owner, self.temperature, self.greedy


@dataclass(frozen=True)
class Answer:
    """A sampled turn, and how many of its context's tokens the engine had already."""

    generation: Generation
    cached: int


@dataclass(eq=False)
class _Session:
    number: int
    kind: tuple[str, float | None, bool]
    ids: list[int] = field(default_factory=list)
    asked: tuple[Ask, int, Future[Answer]] | None = None
    used: int = 0
    released: bool = False


class EngineThread:
    """Runs an engine until `close`.

    Args:
        engine: Only this thread uses it from now on. It holds `most_sessions` at once; one without that name, any number.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._most: int | None = getattr(engine, "most_sessions", None)
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._sessions: dict[int, _Session] = {}
        self._opened: dict[str, int] = {}
        self._waiting: list[tuple[Ask, Future[Answer]]] = []
        self._numbers, self._clock = itertools.count(), itertools.count()
        self._lost: Counter[str] = Counter()
        self._failed: BaseException | None = None
        self._closed = False
        self.sampled = 0  # tokens of all turns so far
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def policy_version(self) -> int:
        """The version of the engine's policy."""
        return self._engine.policy_version

    @property
    def constrains(self) -> bool:
        """Whether the engine can hold a turn to a grammar."""
        return bool(getattr(self._engine, "CONSTRAINS", False))

    def ask(self, ask: Ask) -> Future[Answer]:
        """Ask for a turn. A future that is cancelled before it is done is forgotten when its turn ends.

        The future raises InfrastructureError where the engine has failed.
        """
        future: Future[Answer] = Future()
        self._inbox.put(lambda: self._waiting.append((ask, future)))
        return future

    def lost_tokens(self, owner: str) -> int:
        """How many tokens were sampled for requests of `owner` that were cancelled."""
        return self._lost[owner]

    def release(self, owner: str) -> None:
        """Forget the sessions of a program; its open requests are cancelled."""
        self._inbox.put(lambda: self._release(owner))

    def call(self, work: Callable[[Engine], Any]) -> Future[Any]:
        """Do something with the engine between two steps, as giving it new weights."""
        future: Future[Any] = Future()

        def done() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(self._engine))
            except Exception as error:  # the caller's to handle
                future.set_exception(error)

        self._inbox.put(done)
        return future

    def check(self) -> None:
        """Check that the engine still runs.

        Raises:
            InfrastructureError: it has failed; the cause is its own error.
        """
        if self._failed is not None:
            raise InfrastructureError(f"the engine has ended: {self._failed}") from self._failed

    def close(self) -> None:
        """End the thread; requests that are open fail."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._take():
                self._admit()
                if not self._engine.idle:
                    for generation in self._engine.step():
                        self._end(generation)
        except BaseException as error:  # whoever waits must hear of it
            self._failed = error
        why = InfrastructureError(f"the engine has ended: {self._failed or 'closed'}")
        why.__cause__ = self._failed
        self._fail(why)
        while not self._closed:
            work = self._inbox.get()
            self._closed = work is None
            if work:
                work()
                self._fail(why)

    def _take(self) -> bool:
        """Do what was asked for meanwhile; waits where there is nothing else to do. False at the end."""
        wait = self._engine.idle and not self._waiting  # an idle engine's sessions all rest, so that one makes room
        while True:
            try:
                work = self._inbox.get(timeout=IDLE_SECONDS) if wait else self._inbox.get_nowait()
            except Empty:
                return True
            if work is None:
                self._closed = True
                return False
            work()
            wait = False

    def _admit(self) -> None:
        """Begin the turns that there is a session for."""
        left = []
        for ask, future in self._waiting:
            if future.cancelled():
                continue
            session = self._session_for(ask)
            if session is None:
                left.append((ask, future))
                continue
            keep = min(_common(session.ids, ask.ids), len(ask.ids) - 1)
            first = not session.ids
            session.asked, session.used = (ask, keep, future), next(self._clock)
            self._engine.submit(
                Request(
                    session.number,
                    ask.ids[keep:],
                    ask.most,
                    self._seed(ask) if first else 0,
                    ask.temperature,
                    greedy=ask.greedy,
                    keep=keep if keep < len(session.ids) else None,
                    grammar=ask.grammar,
                )
            )
        self._waiting = left

    def _session_for(self, ask: Ask) -> _Session | None:
        """A session for a request, None where it must wait."""
        idle = [session for session in self._sessions.values() if session.asked is None]
        own = [(_common(session.ids, ask.ids), session.used, session) for session in idle if session.kind == ask.kind]
        shared, _, best = max(own, key=lambda found: found[:2], default=(0, 0, None))
        full = self._most is not None and len(self._sessions) >= self._most
        if best is not None and (shared >= LEAST_SHARED * len(best.ids) or full):
            return best
        if full and not idle:
            return None
        if full:
            self._close(min(idle, key=lambda session: session.used))
        session = _Session(next(self._numbers), ask.kind)
        self._sessions[session.number] = session
        return session

    def _seed(self, ask: Ask) -> int:
        """The owner's own seed for its first session, so that a lone conversation is drawn as the built-in loop draws it."""
        number = self._opened.get(ask.owner, 0)
        self._opened[ask.owner] = number + 1
        return ask.seed if not number else int(content_hash([ask.seed, number], 15), 16)

    def _end(self, generation: Generation) -> None:
        session = self._sessions[generation.session]
        assert session.asked is not None
        (ask, cached, future), session.asked = session.asked, None
        session.ids = [*ask.ids, *generation.token_ids]
        self.sampled += len(generation.token_ids)
        if session.released:
            self._close(session)
        if future.set_running_or_notify_cancel():
            future.set_result(Answer(generation, cached))
        else:
            self._lost[ask.owner] += len(generation.token_ids)

    def _release(self, owner: str) -> None:
        self._waiting = [(ask, future) for ask, future in self._waiting if ask.owner != owner or not future.cancel()]
        self._opened.pop(owner, None)
        for session in [session for session in self._sessions.values() if session.kind[0] == owner]:
            if session.asked is None:
                self._close(session)
            else:  # an engine cannot break off a turn
                session.released = True
                session.asked[2].cancel()

    def _close(self, session: _Session) -> None:
        del self._sessions[session.number]
        if self._failed is None:
            self._engine.close(session.number)

    def _fail(self, why: Exception) -> None:
        for future in [*(future for _, future in self._waiting), *(s.asked[2] for s in self._sessions.values() if s.asked)]:
            if future.set_running_or_notify_cancel():
                future.set_exception(why)
        self._waiting = []
        for session in self._sessions.values():
            session.asked = None


def _common(one: list[int], other: list[int]) -> int:
    """How many tokens two rows begin with in common."""
    if one == other[: len(one)]:
        return len(one)
    return next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), min(len(one), len(other))
    )
