"""The memory and the time of a run, foreseen from a measured pass and from the lengths of logged conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracewheel.config import PassesConfig, RetrainConfig, TransformersEngineConfig
from tracewheel.core.errors import ConfigError
from tracewheel.rollout.measured_pass import PassFigures

GIB = 1 << 30
# Prefect, MLflow and pandas beside torch and transformers.
OTHER_LIBRARIES = 350 << 20
# Rows of the cache beyond the slots, for sessions that wait for their tools, and the copy while a buffer grows.
ROWS_PER_SLOT = 1.25
# Of an iteration's trajectories, those whose group carries a gradient.
WITH_SIGNAL = 0.7
SMALLEST_ROOM = 256  # as in engines/ragged_cache.py, which would load torch


@dataclass(frozen=True)
class Lengths:
    """Conversations as logged, in tokens of the base: of the prompt, sampled, of all, and the longest; and demonstrations."""

    prompt: float
    sampled: float
    whole: float
    longest: int
    demonstrations: int

    def of_a_group(self, size: int) -> float:
        """Tokens of an episode where the prompt counts once in a group of `size`."""
        return self.whole - self.prompt * (1 - 1 / size)

    @property
    def read(self) -> float:
        """Observations between the turns."""
        return max(0.0, self.whole - self.prompt - self.sampled)


@dataclass(frozen=True)
class Need:
    """A part of the peak in bytes, and the settings that make it smaller, the best first."""

    part: str
    bytes: int
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Foreseen:
    """What a run needs at its peak, by part: main memory, and on a GPU that of `policy.device`."""

    needs: tuple[Need, ...]
    device: str

    @property
    def peak(self) -> int:
        return sum(need.bytes for need in self.needs)

    def says(self) -> str:
        """One line."""
        parts = ", ".join(f"{need.part} {need.bytes / GIB:.1f}" for need in self.needs if need.bytes >= GIB / 20)
        return f"about {self.peak / GIB:.1f} GiB of {self.device} at its peak ({parts})"

    def check(self, limit: int | None, key: str) -> None:
        """Check that it fits.

        Args:
            limit: Bytes; None if unknown.
            key: Setting that bounds it, for the error.

        Raises:
            ConfigError: it does not; the message names the settings to change.
        """
        if limit is None or self.peak <= limit:
            return
        advice = [setting for need in sorted(self.needs, key=lambda need: -need.bytes) for setting in need.settings]
        raise ConfigError(
            f"this run needs {self.says()}, and {limit / GIB:.1f} GiB are available ({key}): "
            + ("; or ".join(dict.fromkeys(advice)) or "use a smaller base")
        )


def foresee(config: RetrainConfig, figures: PassFigures, lengths: Lengths) -> list[Foreseen]:
    """What a run needs: main memory, and GPU memory where `policy.device` is a GPU."""
    main = [Need("libraries", figures.imports + OTHER_LIBRARIES)]
    if not config.policy.device.startswith("cuda"):
        return [Foreseen((*main, *_model_needs(config, figures, lengths, gpu=False)), "main memory")]
    main.append(Need("loading the base", figures.load.bytes))
    return [
        Foreseen(tuple(main), "main memory"),
        Foreseen(tuple(_model_needs(config, figures, lengths, gpu=True)), "GPU memory"),
    ]


def _model_needs(config: RetrainConfig, figures: PassFigures, lengths: Lengths, gpu: bool) -> list[Need]:
    base = figures.gpu_base if gpu else figures.base
    smaller = ("set policy.dtype to bfloat16",) if config.policy.dtype == "float32" else ()
    needs = [Need("base", base, smaller)]
    if config.learner.weights == "full":
        needs.append(Need("reference", base, ("set learner.weights to lora",)))
    examples = min(config.warm_start.batch_size, max(1, lengths.demonstrations))
    batch = config.episodes_per_iteration / config.learner.minibatches * lengths.of_a_group(config.rollout.group_size)
    parts = [
        _training_need(config.warm_start, "warm_start", examples * lengths.whole, figures, lengths),
        _training_need(config.learner, "learner", batch, figures, lengths),
    ]
    training = max(parts, key=lambda need: need.bytes)
    sampling = _sampling_needs(config, figures, lengths, base)
    if not config.own_sampler and config.placement.share != "sleep":
        return [*needs, training, *sampling]  # vLLM stays while the update runs
    larger = sum(need.bytes for need in sampling) > training.bytes
    return [*needs, *(sampling if larger else [training])]


def _training_need(settings: PassesConfig, section: str, batch: float, figures: PassFigures, lengths: Lengths) -> Need:
    """A micro-batch's need: that of the measured passes, and what more tokens add. `batch` is the tokens of a step."""
    gpu = figures.gpu_base > 0
    small, large = (extra.gpu_bytes if gpu else extra.bytes for extra in figures.training)
    few, many = (extra.tokens for extra in figures.training)
    each = max(0.0, (large - small) / max(1, many - few))
    tokens = int(max(lengths.longest, min(settings.micro_batch_tokens, batch)))
    needed = int(max(small, large + each * (tokens - many)))
    advice = [] if settings.gradient_checkpointing else [f"set {section}.gradient_checkpointing to true"]
    if tokens > lengths.longest:
        advice.append(f"set {section}.micro_batch_tokens to at most {max(lengths.longest, tokens // 2)}")
    else:
        advice.append("set rollout.max_tokens lower, and leave out the longest logs")
    return Need(f"a micro-batch of {section} ({tokens} tokens)", needed, tuple(advice))


def _sampling_needs(config: RetrainConfig, figures: PassFigures, lengths: Lengths, base: int) -> list[Need]:
    """What the engine takes while it samples: a base of its own beside a kept learner, keys and values."""
    engine = config.rollout.engine
    if not isinstance(engine, TransformersEngineConfig):
        if figures.gpu_total:
            share = int(engine.gpu_memory_utilization * figures.gpu_total)
            return [Need("vLLM's share", share, ("set rollout.engine.gpu_memory_utilization lower",))]
        cache = Need("vLLM's cache", int((engine.kv_cache_gib or 1.0) * GIB), ("set rollout.engine.kv_cache_gib lower",))
        return [Need("vLLM's base", base), cache]
    rows = min(engine.slots, most_sessions(config)) * ROWS_PER_SLOT
    room = SMALLEST_ROOM
    while room < lengths.longest:
        room *= 2
    room = min(room, config.rollout.max_tokens)
    advice = (f"set rollout.engine.slots to at most {max(1, engine.slots // 2)}", "set rollout.max_tokens lower")
    cache = Need(f"keys and values of {rows:.0f} conversations", int(rows * room * figures.position), advice)
    if not config.keeps_learner:
        return [cache]
    return [Need("the engine's base", base, ("set placement.keep_learner to false",)), cache]


def most_sessions(config: RetrainConfig) -> int:
    """The most episodes that a stage plays."""
    tasks = max(config.curation.held_out_tasks, config.curation.validation_tasks, config.curation.harder_tasks)
    return max(config.episodes_per_iteration, tasks * config.evaluation.samples)


def seconds_of_stages(config: RetrainConfig, figures: PassFigures, lengths: Lengths) -> dict[str, float | None]:
    """Seconds of a unit of work of the stages that compute with the model; None where the pass did not measure it."""
    few, many = figures.training
    each = max(1e-9, (many.seconds - few.seconds) / max(1, many.tokens - few.tokens), 0.5 * many.seconds / many.tokens)
    forward = figures.forward.seconds / figures.forward.tokens
    shared = lengths.of_a_group(config.rollout.group_size)
    train = config.warm_start.epochs * lengths.demonstrations * lengths.whole * each
    iteration = config.episodes_per_iteration * shared * (WITH_SIGNAL * config.learner.epochs * each + forward)
    found: dict[str, float | None] = {"warm_start": train + figures.load.seconds, "update": iteration}
    episode = alone = None
    if figures.reading and figures.sampling:
        sample = lengths.sampled * figures.sampling.seconds / figures.sampling.tokens
        read = figures.reading.seconds / figures.reading.tokens
        episode = sample + (lengths.read + lengths.prompt / config.rollout.group_size) * read
        alone = sample + (lengths.read + lengths.prompt * 2 / (1 + config.evaluation.samples)) * read
    return {**found, "rollout": episode, "collect": episode, "evaluate": alone}


def to_record(foreseen: list[Foreseen], limits: dict[str, int | None]) -> list[dict[str, Any]]:
    """As `retrain --dry-run --json` prints it."""
    return [
        {
            "device": item.device,
            "peak_bytes": item.peak,
            "available_bytes": limits.get(item.device),
            "parts": {need.part: need.bytes for need in item.needs},
            "says": item.says(),
        }
        for item in foreseen
    ]
