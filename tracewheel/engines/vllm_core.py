"""vLLM in this process: one loaded base, the adapters that are resident on it, and requests of many engines.

Starting vLLM takes many seconds, so a process keeps its core from stage to stage and gives it to every engine
that asks for the same base and settings. Adapters come and go by version; each has a number of its own in
vLLM, which is never given twice, so that neither weights nor cached keys and values can be mistaken.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import random
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.engines.adapter_files import AdapterFiles
from tracewheel.engines.draws import Draws
from tracewheel.engines.vllm_settings import VllmSettings, environment
from tracewheel.policy.adapters import PolicyRef, base_folder, base_hash
from tracewheel.policy.probe import PROBE, check_probe

Ended = Callable[[str, list[int], list[float]], None]
_core: VllmCore | None = None
_making = threading.Lock()


def shared_core(base: str, settings: VllmSettings) -> VllmCore:
    """The process's core for a base: the one that there is, or a new one in its place.

    Raises:
        InfrastructureError: vLLM is not installed, or does not start.
        AdapterMismatchError: vLLM computes something else than the base's trainer.
    """
    global _core
    with _making:
        key = (base_hash(base), settings)
        if _core is None or _core.key != key:
            if _core is not None:
                _core.shut_down()
            _core = None
            _core = VllmCore(base, settings)
        return _core


@dataclass
class _Running:
    inside: str  # vLLM's own name of the request
    adapter: AdapterFiles | None
    ended: Ended


class VllmCore:
    """Requests with token ids in, tokens with log-probabilities out.

    Several engines, and several threads, may use it: what a request said is handed over within the step of
    whoever stepped, under `lock`.

    Args:
        base: The base model.
        settings: What vLLM is started with.
    """

    def __init__(self, base: str, settings: VllmSettings) -> None:
        self.key = (base_hash(base), settings)
        self._settings = settings
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._running: dict[str, _Running] = {}
        self._resident: OrderedDict[AdapterFiles, Any] = OrderedDict()  # the longest unused first
        self._engine: Any = _start(base, settings)
        if (base_folder(base) / PROBE).is_file():  # a policy all of whose weights were trained
            check_probe(base_folder(base), self._score_with(None), settings.dtype)

    @property
    def resident(self) -> list[AdapterFiles]:
        """The adapters that vLLM holds now."""
        return list(self._resident)

    def load(self, policy: PolicyRef) -> AdapterFiles | None:
        """Bring a policy's adapter in, and check that it is served. Returns None for a policy without.

        Raises:
            AdapterMismatchError: it belongs to another base, or is not what vLLM then serves.
            ConfigError: there are more adapters in use than `max_loras`, or its rank is too large.
        """
        if policy.adapter is None:
            return None
        adapter = AdapterFiles.of(policy)
        with self.lock:
            self._ensure(adapter)
        return adapter

    def add(
        self, ids: list[int], draws: Draws, max_tokens: int, stop_id: int | None, adapter: AdapterFiles | None, ended: Ended
    ) -> str:
        """Ask for up to `max_tokens` after `ids`; `ended` is called with the name returned, tokens and log-probabilities."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            logprobs=0,
            flat_logprobs=True,
            stop_token_ids=None if stop_id is None else [stop_id],
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args=draws.extra_args(),
            skip_clone=True,
        )
        with self.lock:
            name = str(next(self._numbers))
            lora = self._ensure(adapter) if adapter else None
            inside = self._engine.add_request(name, {"prompt_token_ids": list(ids)}, parameters, lora_request=lora)
            self._running[name] = _Running(inside, adapter, ended)
        return name

    def step(self) -> None:
        """Move all requests on."""
        with self.lock:
            if not self._running:
                return
            with self._compiled():
                outputs = self._engine.step()
            for output in outputs:
                running = self._running.pop(output.request_id, None)
                if running is not None:
                    said = output.outputs[0]
                    running.ended(output.request_id, list(said.token_ids), _flat(said.logprobs))

    def take_back(self, name: str) -> tuple[list[int], list[float]]:
        """Stop a request; returns what it has said so far."""
        with self.lock:
            running = self._running.pop(name)
            state = self._engine.output_processor.request_states[running.inside]
            said, logprobs = list(state.detokenizer.output_token_ids), _flat(state.logprobs_processor.logprobs)
            self._engine.abort_request([running.inside], internal=True)
        return said, logprobs

    def shut_down(self) -> None:
        """Free what vLLM holds. The core is of no use afterwards."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        with self.lock:
            self._running.clear()
            self._resident.clear()
            self._engine.engine_core.shutdown()
            self._engine = None
            cleanup_dist_env_and_memory()
            gc.collect()

    def _compiled(self) -> AbstractContextManager[Any]:
        """On the CPU vLLM compiles nothing of a model with adapters, but would, for a minute, what ranks tokens."""
        import torch

        return torch.compiler.set_stance("force_eager") if self._settings.device == "cpu" else nullcontext()

    def _ensure(self, adapter: AdapterFiles) -> Any:
        """The adapter in vLLM, loaded if it is not."""
        if adapter in self._resident:
            self._resident.move_to_end(adapter)
            return self._resident[adapter]
        from vllm.lora.request import LoRARequest

        adapter.check(self._settings.max_rank)
        self._drop_unused(keep=self._settings.max_loras)
        number = next(self._numbers)
        request = LoRARequest(f"{adapter.digest}-{number}", number, adapter.folder)
        self._engine.add_lora(request)
        self._resident[adapter] = request
        try:
            check_probe(adapter.folder, self._score_with(adapter), self._settings.dtype)
        except BaseException:
            self._remove(adapter)
            raise
        self._drop_unused(keep=self._settings.max_loras, never=adapter)
        return request

    def _drop_unused(self, keep: int, never: AdapterFiles | None = None) -> None:
        used = {running.adapter for running in self._running.values()} | {never}
        for adapter in [each for each in self._resident if each not in used]:
            if len(self._resident) <= keep:
                break
            self._remove(adapter)
        if len(self._resident) > keep + (never is not None):
            raise ConfigError(f"more than {self._settings.max_loras} adapters speak at once: raise rollout.engine.max_loras")

    def _remove(self, adapter: AdapterFiles) -> None:
        self._engine.remove_lora(self._resident.pop(adapter).lora_int_id)

    def _score_with(self, adapter: AdapterFiles | None) -> Callable[[list[int]], list[float]]:
        def score(ids: list[int]) -> list[float]:
            found: list[float] = []
            draws = Draws(forced=tuple(ids[1:]))
            name = self.add(ids[:1], draws, len(ids) - 1, None, adapter, lambda _, __, logprobs: found.extend(logprobs))
            while name in self._running:
                self.step()
            return found

        return score


def _flat(logprobs: Any) -> list[float]:
    return [logprobs.logprobs[start] for start in logprobs.start_indices]


def _start(base: str, settings: VllmSettings) -> Any:
    os.environ.update(environment(in_process=True))
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
    """Keep what vLLM changes at its start: the state of every generator of the process, and the choice of threads."""
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
