"""An `Engine` over vLLM in this process."""

from __future__ import annotations

import weakref

from tracewheel.config import EngineSections
from tracewheel.engines.base import Generation, Sampling
from tracewheel.engines.vllm_base import VllmEngineBase
from tracewheel.engines.vllm_core import VllmCore, shared_core
from tracewheel.engines.vllm_session import Session
from tracewheel.engines.vllm_settings import VllmSettings
from tracewheel.policy.adapters import PolicyRef


class VllmEngine(VllmEngineBase[VllmCore]):
    """Sessions over the process's core."""

    def step(self) -> list[Generation]:
        """Advance all turns; returns those that ended in this step, perhaps none."""
        if not self._ended:
            self._backend.step()
        with self._backend.lock:
            ended, self._ended = self._ended, []
        return ended

    def close(self, session: int) -> None:
        """Forget a session, even in the middle of a turn."""
        with self._backend.lock:
            super().close(session)

    def _send(self, session: Session) -> None:
        policy = session.policy or self._policy
        # A weak reference: an engine that was dropped is not kept alive by its open requests.
        reference = weakref.ref(self)

        def ended(name: str, token_ids: list[int], logprobs: list[float]) -> None:
            engine = reference()
            if engine is not None:
                engine._end(name, token_ids, logprobs, policy.version)

        turn = session.rest_of_turn(self._sampling, self._stop_ids)
        with self._backend.lock:
            self._running[self._backend.add(turn, self._adapters[policy], ended)] = session

    def _end(self, name: str, token_ids: list[int], logprobs: list[float], version: int) -> None:
        session = self._running.pop(name)
        session.extend(token_ids, logprobs, version)
        self._ended.append(session.generation(self._stop_ids))

    def _cancel(self, names: list[str]) -> None:
        for name in names:
            del self._running[name]
            self._backend.abort(name)

    def _interrupt(self) -> list[Session]:
        interrupted = []
        with self._backend.lock:
            for name, session in list(self._running.items()):
                if session.policy is None:
                    del self._running[name]
                    session.extend(*self._backend.abort(name), self._policy.version)
                    interrupted.append(session)
        return interrupted


def make(config: EngineSections, policy: PolicyRef, stop_ids: frozenset[int], sampling: Sampling, slots: int) -> VllmEngine:
    """The engine that a profile configures; see `engines.making`."""
    settings = VllmSettings.of(config)
    return VllmEngine(lambda base: shared_core(base, settings), policy, stop_ids, sampling)
