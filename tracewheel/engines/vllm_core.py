"""vLLM in this process: one loaded base, its resident adapters, and the requests of several engines.

Starting vLLM takes many seconds, so a process keeps its core from stage to stage and shares it between all engines
with the same base and settings. Adapters come and go by version. Each gets a number in vLLM that is never reused,
so neither weights nor cached keys and values can be mistaken for another's.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import random
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tracewheel.config import EngineSections
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.engines.base import Generation, Sampling
from tracewheel.engines.draws import Draws
from tracewheel.engines.vllm_base import AdapterFiles, Session, TurnRequest, VllmEngineBase
from tracewheel.engines.vllm_settings import MAX_LORAS, VllmSettings, environment
from tracewheel.policy.adapters import PolicyRef, base_folder, base_hash
from tracewheel.policy.probe import PROBE, check_probe

Ended = Callable[[str, list[int], list[float]], None]
_core: VllmCore | None = None
_making = threading.Lock()


def shared_core(base: str, settings: VllmSettings) -> VllmCore:
    """The process's core for a base: the existing one, or a new one in its place.

    Raises:
        InfrastructureError: vLLM is not installed, or does not start.
        AdapterMismatchError: vLLM does not give the log-probabilities of the base's trainer.
    """
    global _core
    with _making:
        key = (base_hash(base), settings)
        if _core is None or _core.key != key:
            if _core is not None:
                _core.shut_down()
            _core = None
            _core = VllmCore(base, settings)
        _core.wake()
        return _core


def sleep_core() -> None:
    """Put the process's core to sleep, if there is one that can; `shared_core` wakes it."""
    with _making:
        if _core is not None:
            _core.sleep()


@dataclass
class _Running:
    vllm_name: str
    adapter: AdapterFiles | None
    ended: Ended
    scores: bool


class VllmCore:
    """Requests with token ids in, tokens with log-probabilities out.

    Several engines and threads may use it. A finished request's `ended` is called under `lock`, in the step of
    any of them.

    Args:
        base: The base model.
        settings: vLLM's settings.
    """

    def __init__(self, base: str, settings: VllmSettings) -> None:
        self.key = (base_hash(base), settings)
        self._settings = settings
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._running: dict[str, _Running] = {}
        self._resident: OrderedDict[AdapterFiles, Any] = OrderedDict()  # least recently used first
        self._asleep = False
        self._engine: Any = _start(base, settings)
        if (base_folder(base) / PROBE).is_file():  # a policy all of whose weights were trained
            check_probe(base_folder(base), self._scorer(None), settings.dtype)

    @property
    def resident(self) -> list[AdapterFiles]:
        """The adapters that vLLM holds now."""
        return list(self._resident)

    def load(self, policy: PolicyRef) -> AdapterFiles | None:
        """Load a policy's adapter and check that it is served. Returns None for a policy without one.

        Raises:
            AdapterMismatchError: it belongs to another base, or vLLM does not serve it as trained.
            ConfigError: more than `MAX_LORAS` adapters are in use, or its rank is too large.
        """
        if policy.adapter is None:
            return None
        adapter = AdapterFiles.of(policy)
        with self.lock:
            resident = adapter in self._resident
            self._ensure_resident(adapter)
            if resident:  # a new one was checked when it was loaded
                self._check_served(adapter)
        return adapter

    @property
    def draws(self) -> str:
        """Who samples: `rollout.engine.draws`."""
        return self._settings.draws

    def add(self, turn: TurnRequest, adapter: AdapterFiles | None, ended: Ended, scores: bool = False) -> str:
        """Request a turn and return the request's name; `ended` is called with it, the tokens and their log-probabilities.

        With `scores` these are the log-probabilities of the prompt's tokens after the first.
        """
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        more = {"prompt_logprobs": 0} if scores else {}
        parameters = SamplingParams(
            **turn.parameters(self.draws) | more,
            flat_logprobs=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )
        with self.lock:
            name = str(next(self._numbers))
            lora = self._ensure_resident(adapter) if adapter else None
            vllm_name = self._engine.add_request(name, {"prompt_token_ids": turn.ids}, parameters, lora_request=lora)
            self._running[name] = _Running(vllm_name, adapter, ended, scores)
        return name

    def step(self) -> None:
        """Advance all requests."""
        with self.lock:
            if not self._running:
                return
            with self._compilation():
                outputs = self._engine.step()
            for output in outputs:
                running = self._running.pop(output.request_id, None)
                if running is not None:
                    completion = output.outputs[0]
                    logprobs = output.prompt_logprobs if running.scores else completion.logprobs
                    running.ended(output.request_id, list(completion.token_ids), _flat(logprobs))

    def abort(self, name: str) -> tuple[list[int], list[float]]:
        """Stop a request; returns the tokens that it has generated and their log-probabilities."""
        with self.lock:
            running = self._running.pop(name)
            state = self._engine.output_processor.request_states[running.vllm_name]
            token_ids, logprobs = list(state.detokenizer.output_token_ids), _flat(state.logprobs_processor.logprobs)
            self._engine.abort_request([running.vllm_name], internal=True)
        return token_ids, logprobs

    def sleep(self) -> None:
        """Move the weights to main memory and forget the cached keys and values, where `placement.share` says so."""
        with self.lock:
            if self._settings.sleeps and not self._asleep:
                self._engine.sleep(level=1)
                self._asleep = True

    def wake(self) -> None:
        """Undo `sleep`."""
        with self.lock:
            if self._asleep:
                self._engine.wake_up()
                self._asleep = False

    def shut_down(self) -> None:
        """Free what vLLM holds. The core cannot be used afterwards."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        with self.lock:
            self._running.clear()
            self._resident.clear()
            self._engine.engine_core.shutdown()
            self._engine = None
            cleanup_dist_env_and_memory()
            gc.collect()

    def _compilation(self) -> AbstractContextManager[Any]:
        """No compilation on the CPU: vLLM compiles no model with adapters there, but would compile token ranks for a minute."""
        import torch

        return torch.compiler.set_stance("force_eager") if self._settings.device == "cpu" else nullcontext()

    def _ensure_resident(self, adapter: AdapterFiles) -> Any:
        """The adapter as vLLM knows it, loaded if it is not resident."""
        if adapter in self._resident:
            self._resident.move_to_end(adapter)
            return self._resident[adapter]
        from vllm.lora.request import LoRARequest

        adapter.check(self._settings.max_rank)
        self._drop_unused(keep=MAX_LORAS)
        number = next(self._numbers)
        request = LoRARequest(f"{adapter.digest}-{number}", number, adapter.folder)
        self._engine.add_lora(request)
        self._resident[adapter] = request
        try:
            self._check_served(adapter)
        except BaseException:
            self._remove(adapter)
            raise
        self._drop_unused(keep=MAX_LORAS, never=adapter)
        return request

    def _check_served(self, adapter: AdapterFiles) -> None:
        check_probe(adapter.folder, self._scorer(adapter), self._settings.dtype, self._scorer(None))

    def _drop_unused(self, keep: int, never: AdapterFiles | None = None) -> None:
        used = {running.adapter for running in self._running.values()} | {never}
        for adapter in [each for each in self._resident if each not in used]:
            if len(self._resident) <= keep:
                break
            self._remove(adapter)
        if len(self._resident) > keep + (never is not None):
            raise ConfigError(f"more than {MAX_LORAS} adapters are in use")

    def _remove(self, adapter: AdapterFiles) -> None:
        self._engine.remove_lora(self._resident.pop(adapter).lora_int_id)

    def _scorer(self, adapter: AdapterFiles | None) -> Callable[[list[int]], list[float]]:
        def score(ids: list[int]) -> list[float]:
            found: list[float] = []
            ours = self.draws == "ours"  # token by token, as in any turn; vLLM's sampler cannot be told its tokens
            turn = TurnRequest(ids[:1], Draws(forced=tuple(ids[1:])), len(ids) - 1) if ours else TurnRequest(ids, Draws(), 1)
            name = self.add(turn, adapter, lambda _, __, logprobs: found.extend(logprobs), scores=not ours)
            while name in self._running:
                self.step()
            return found

        return score


def _flat(logprobs: Any) -> list[float]:
    places = zip(logprobs.start_indices, logprobs.end_indices, strict=True)
    return [logprobs.logprobs[start] for start, end in places if end > start]  # a prompt's first token has none


def _start(base: str, settings: VllmSettings) -> Any:
    os.environ.update(environment(settings, in_process=True))
    logging.getLogger("vllm").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from vllm.engine.arg_utils import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine
    except ImportError as error:
        raise InfrastructureError(f"vLLM cannot be imported ({error}): `make setup-vllm` installs it") from error
    with _own_state_kept():
        try:
            return LLMEngine.from_engine_args(EngineArgs(**settings.arguments(base)))
        except (RuntimeError, ValueError, OSError, MemoryError) as error:
            raise InfrastructureError(f"vLLM does not start with {base}: {type(error).__name__}: {error}") from error


@contextmanager
def _own_state_kept() -> Iterator[None]:
    """Restore what vLLM changes at its start: the process's random generators and number of threads."""
    import numpy as np
    import torch

    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(threads)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


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
