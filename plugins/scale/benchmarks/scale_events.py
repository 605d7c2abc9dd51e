"""Discrete events of generation: a clock, servers with a queue, and a replica of an engine that batches.

Virtual time does the work: a batch moves on by one token a step for all its sequences, so a sequence of n tokens ends
n steps after it joined, however the batch changes meanwhile. A heap per replica then costs O(log b) a turn.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

Then = Callable[[], None]


class Clock:
    """Runs scheduled calls in the order of their times; equal times run in the order of scheduling."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def at(self, time: float, do: Callable[..., None], *arguments: Any) -> None:
        """Schedule `do` for a time; a past time means now."""
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), do, arguments))

    def run(self) -> None:
        """Run until nothing is scheduled."""
        while self._events:
            self.now, _, do, arguments = heapq.heappop(self._events)
            do(*arguments)


class Servers:
    """`count` equal servers with one queue, first come, first served; None: unlimited."""

    def __init__(self, clock: Clock, count: int | None) -> None:
        self._clock = clock
        self._free = count
        self._waiting: deque[tuple[float, Then]] = deque()
        self.busy_s = 0.0

    def serve(self, seconds: float, then: Then) -> None:
        """Hold a server for so many seconds, then call `then`."""
        if self._free is None or self._free > 0:
            if self._free is not None:
                self._free -= 1
            self.busy_s += seconds
            self._clock.at(self._clock.now + seconds, self._end, then)
        else:
            self._waiting.append((seconds, then))

    def _end(self, then: Then) -> None:
        if self._free is not None:
            self._free += 1
            if self._waiting:
                self.serve(*self._waiting.popleft())
        then()


class Replica:
    """An engine on one GPU, or on the GPUs of one tensor-parallel group.

    A decoding step of b sequences takes `first_s + each_s * b`. Reading new tokens stops the batch for `prefill_s` a
    token, and each turn for `turn_s` more: prefills go first, as they do in vLLM.
    """

    def __init__(
        self, clock: Clock, *, first_s: float, each_s: float, prefill_s: float, turn_s: float = 0.0, batch: int = 256
    ) -> None:
        self._clock = clock
        self._first_s, self._each_s = first_s, each_s
        self._prefill_s, self._turn_s = prefill_s, turn_s
        self._batch = batch
        self._generating: list[tuple[float, int, Then]] = []  # heap of (last step, number, what to call then)
        self._waiting: deque[tuple[int, int, Then]] = deque()
        self._numbers = itertools.count()
        self._steps, self._since, self._stalled_until = 0.0, 0.0, 0.0
        self._plan = 0
        self.sampled = 0
        self.read = 0

    @property
    def load(self) -> int:
        return len(self._generating) + len(self._waiting)

    def generate(self, new: int, tokens: int, then: Then) -> None:
        """Read `new` tokens and sample `tokens`."""
        if len(self._generating) >= self._batch:
            self._waiting.append((new, tokens, then))
            return
        self._move_on()
        self._begin(new, tokens, then)
        self._plan_next()

    def stall(self, seconds: float) -> None:
        """Do nothing for a while, such as when weights are exchanged."""
        self._move_on()
        self._stalled_until = max(self._stalled_until, self._clock.now) + seconds
        self._plan_next()

    def _begin(self, new: int, tokens: int, then: Then) -> None:
        self._stalled_until = max(self._stalled_until, self._clock.now) + new * self._prefill_s + self._turn_s
        heapq.heappush(self._generating, (self._steps + tokens, next(self._numbers), then))
        self.read += new
        self.sampled += tokens

    def _step_s(self) -> float:
        return self._first_s + self._each_s * len(self._generating)

    def _move_on(self) -> None:
        """Count the steps since the last event."""
        begin = max(self._since, self._stalled_until)
        if self._generating and self._clock.now > begin:
            self._steps += (self._clock.now - begin) / self._step_s()
        self._since = self._clock.now

    def _plan_next(self) -> None:
        """Schedule the end of the next sequence; earlier plans become void."""
        self._plan += 1
        if self._generating:
            left = max(0.0, self._generating[0][0] - self._steps)
            start = max(self._clock.now, self._stalled_until)
            self._clock.at(start + left * self._step_s(), self._reach, self._plan)

    def _reach(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._move_on()
        end, _, then = heapq.heappop(self._generating)
        self._steps = max(self._steps, end)
        if self._waiting:
            self._begin(*self._waiting.popleft())
        self._plan_next()
        then()
