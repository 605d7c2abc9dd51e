"""A short pass of a base on this machine: how long tokens take, and how much memory they do.

`python -m tracewheel.rollout.measured_pass` reads a `PassRequest` as JSON from its standard input and prints a `PassFigures`.
It is a process of its own, so that its peaks are those of the pass alone, and one that is killed for its memory ends no run.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tracewheel.config import RetrainConfig, WarmStartSections
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.machine import peak_resident, reset_peak, resident
from tracewheel.core.processes import end_with_parent

if TYPE_CHECKING:
    from tracewheel.learner.backends.backend import Backend

# Tokens of the two training passes, at most; the second shows what a token adds to the first.
TRAINING_TOKENS = (384, 1152)
# What a session reads and samples in the measured chunk of a rollout.
PROMPT_TOKENS, SAMPLED_TOKENS = 24, 6
KILLED = 9
SEED = 0
NO_TOKEN = -1  # ends no turn


@dataclass(frozen=True)
class PassRequest:
    """What to measure: a profile (as JSON types), the usual length of its conversations, and the sessions of a chunk."""

    profile: dict[str, Any]
    row_tokens: int
    sessions: int


@dataclass(frozen=True)
class Extra:
    """What a pass over `tokens` tokens took: seconds, and bytes of main and of GPU memory at its peak, beside the base."""

    tokens: int
    seconds: float
    bytes: int
    gpu_bytes: int = 0


@dataclass(frozen=True)
class PassFigures:
    """What was measured.

    Attributes:
        imports: Bytes of the process before the base was loaded.
        base: What the base adds, in the profile's type.
        gpu_base: The same on the GPU.
        load: Loading it; `bytes` beside what it then keeps.
        training: Two micro-batches, forward and backward, smaller one first.
        forward: A pass without gradient.
        reading: Prompts read by `sessions` sessions; None for an engine of vLLM, which is not measured.
        sampling: `tokens` sampled after it.
        position: Bytes of keys and values that a position of a conversation takes.
        gpu_total: Bytes of the GPU; 0 on the CPU.
    """

    imports: int
    base: int
    gpu_base: int
    load: Extra
    training: tuple[Extra, Extra]
    forward: Extra
    reading: Extra | None
    sampling: Extra | None
    position: int
    gpu_total: int = 0

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> PassFigures:
        """The figures as `asdict` has written them."""

        def extra(value: dict[str, Any] | None) -> Extra | None:
            return None if value is None else Extra(**value)

        one, other = record["training"]
        named = {name: extra(record[name]) for name in ("load", "forward", "reading", "sampling")}
        return cls(**{**record, **named, "training": (Extra(**one), Extra(**other))})


def measure_apart(request: PassRequest) -> PassFigures:
    """Measure in a process of its own.

    Raises:
        ConfigError: it was killed, most likely for its memory.
        InfrastructureError: it failed otherwise.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tracewheel.rollout.measured_pass", str(os.getpid())],
        input=json.dumps(asdict(request)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (-KILLED, 128 + KILLED):
        raise ConfigError(
            "the measured pass of the base was killed, most likely because memory ran out: set policy.dtype to bfloat16, a "
            "smaller micro_batch_tokens or fewer rollout.engine.slots, or use a smaller base"
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise InfrastructureError(f"the measured pass of the base failed: {last[0]}")
    return PassFigures.from_record(json.loads(done.stdout.splitlines()[-1]))


def measure(request: PassRequest) -> PassFigures:
    """Measure in this process, which should have done nothing else."""
    import torch

    from tracewheel.learner.warm_start.fine_tuning import fresh_model

    config = RetrainConfig.model_validate(request.profile)
    torch.set_num_threads(config.threads)
    meter = _Meter(config.policy.device)
    imports = resident()
    load, model = meter.measure(functools.partial(fresh_model, WarmStartSections.of(config)), 0)
    base, gpu_base = resident() - imports, meter.gpu()
    load = Extra(0, load.seconds, max(0, load.bytes - base), max(0, load.gpu_bytes - gpu_base))
    meter.beside(imports + base, gpu_base)
    position, vocabulary = _bytes_of_a_position(model), model.get_input_embeddings().weight.shape[0]
    training, forward = _training(config, request.row_tokens, model, meter)
    del model
    gc.collect()
    reading, sampling = _sampling(config, request.sessions, vocabulary, meter)
    return PassFigures(imports, base, gpu_base, load, training, forward, reading, sampling, position, meter.gpu_total())


class _Meter:
    """Seconds, and the peak of memory above what there was at first, or what it is told.

    Freed memory does not always go back to the system, so the memory before a pass would be too much to subtract.
    """

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._device = device
        self.beside(resident(), 0)

    def beside(self, first: int, gpu_first: int) -> None:
        """Count from here."""
        self._first, self._gpu_first = first, gpu_first

    def gpu(self) -> int:
        import torch

        return int(torch.cuda.memory_allocated(self._device)) if self._cuda else 0

    def gpu_total(self) -> int:
        import torch

        return int(torch.cuda.get_device_properties(self._device).total_memory) if self._cuda else 0

    def measure(self, work: Callable[[], Any], tokens: int) -> tuple[Extra, Any]:
        import torch

        gc.collect()
        if self._cuda:
            torch.cuda.synchronize(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        reset_peak()
        started = time.perf_counter()
        result = work()
        if self._cuda:
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - started
        gpu = int(torch.cuda.max_memory_allocated(self._device)) - self._gpu_first if self._cuda else 0
        return Extra(tokens, seconds, max(0, peak_resident() - self._first), max(0, gpu)), result


def _training(config: RetrainConfig, row_tokens: int, model: Any, meter: _Meter) -> tuple[tuple[Extra, Extra], Extra]:
    """Forward and backward passes with the warm start's settings, on random ids; half of a row's tokens are in the loss."""
    import torch

    from tracewheel.learner.backends.select import make_backend
    from tracewheel.learner.kernels.language_model import checkpoint_activations

    settings = config.warm_start
    if settings.gradient_checkpointing:
        checkpoint_activations(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    backend = make_backend(settings, config.policy.device, model, parameters)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    _pass(backend, config, _rows(1, min(row_tokens, 64), vocabulary))  # the first pass prepares weights and kernels
    backend.step(0.0)
    found = []
    for most in TRAINING_TOKENS:
        length = min(row_tokens, most)
        rows = _rows(max(1, min(most, settings.micro_batch_tokens) // length), length, vocabulary)
        tokens = sum(map(len, rows))
        found.append(meter.measure(functools.partial(_pass, backend, config, rows), tokens)[0])
    backend.step(0.0)
    with torch.no_grad():
        forward, _ = meter.measure(lambda: _pass(backend, config, rows, train=False), tokens)
    return (found[0], found[1]), forward


def _pass(backend: Backend, config: RetrainConfig, rows: list[list[int]], train: bool = True) -> None:
    import pandas as pd

    from tracewheel.learner.batch import text_batches
    from tracewheel.learner.kernels.token_logprobs import action_logprobs
    from tracewheel.learner.per_token import add_cross_entropy

    settings = config.warm_start
    masks = [[0] * (len(row) - len(row) // 2) + [1] * (len(row) // 2) for row in rows]
    text = pd.DataFrame({"input_ids": rows, "assistant_masks": masks})
    most = max(settings.micro_batch_tokens, sum(map(len, rows)))
    batches = [batch.to(config.policy.device) for batch in text_batches(text, most, settings.layout)]
    if train:
        add_cross_entropy(backend, batches, settings.layout)
    else:
        for batch in batches:
            action_logprobs(backend.model, batch, layout=settings.layout)


def _sampling(config: RetrainConfig, sessions: int, vocabulary: int, meter: _Meter) -> tuple[Extra | None, Extra | None]:
    """A chunk of a rollout on the transformers engine: prompts read, then a few tokens sampled."""
    if not config.own_sampler:
        return None, None
    from tracewheel.engines.base import Request, Sampling
    from tracewheel.engines.transformers import TransformersEngine
    from tracewheel.policy.adapters import PolicyRef
    from tracewheel.policy.loading import PolicyWeights

    load, policy = PolicyWeights(config.policy).load, PolicyRef(config.policy.base)
    engine = TransformersEngine(load, policy, NO_TOKEN, Sampling(), sessions, longest=config.rollout.max_tokens)
    prompts = _rows(sessions, PROMPT_TOKENS, vocabulary)

    def chunk(first: int, tokens: int) -> None:
        for number, prompt in enumerate(prompts, start=first):
            engine.submit(Request(number, prompt, tokens, seed=number))
        while not engine.idle:
            for turn in engine.step():
                engine.close(turn.session)

    chunk(0, 1)
    reading, _ = meter.measure(lambda: chunk(sessions, 1), sessions * PROMPT_TOKENS)
    whole, _ = meter.measure(lambda: chunk(2 * sessions, 1 + SAMPLED_TOKENS), 0)
    seconds = max(1e-6, whole.seconds - reading.seconds)
    return reading, Extra(sessions * SAMPLED_TOKENS, seconds, whole.bytes, whole.gpu_bytes)


def _rows(number: int, length: int, vocabulary: int) -> list[list[int]]:
    rng = random.Random(SEED)
    return [[rng.randrange(vocabulary) for _ in range(length)] for _ in range(number)]


def _bytes_of_a_position(model: Any) -> int:
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * model.get_input_embeddings().weight.element_size())


def main() -> None:
    """Read a request, print what was measured. The argument is the process id of the parent, with which this one ends."""
    end_with_parent(int(sys.argv[1]))
    print(json.dumps(asdict(measure(PassRequest(**json.load(sys.stdin))))))


if __name__ == "__main__":
    main()
