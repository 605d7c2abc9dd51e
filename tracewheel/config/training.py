"""Smaller sections of a profile: sampling of tasks, trials of rates, mismatch of sampler and trainer, memory."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from tracewheel.config.base import Positive, Share, Strict


class SamplerConfig(Strict):
    """Sampling of tasks by each task's Beta posterior of success.

    `difficulty` favours tasks solved less often than `target`; `learnability` weights by p(1-p); `uniform` ignores the
    posterior; `self_evolving` weights as `difficulty` does and adds variants of tasks that keep failing. `pooling` is the
    number of attempts that the success of a task's family and tier counts for each of their tasks, 0 for none: with it a
    few rollouts of a family say which of its untried tasks to prefer.
    """

    kind: Literal["difficulty", "learnability", "uniform", "self_evolving"] = "difficulty"
    target: Share = 0.6
    pooling: Annotated[float, Field(ge=0.0)] = 0.0


class RateTrialsConfig(Strict):
    """Trials of learning rates on the training tasks, before the first iteration.

    Each of `rates` makes one update from the starting policy on half of those of the first iteration's tasks that give a
    signal; KL from the starting policy is measured on the other tasks. The largest rate is used up to which KL stays
    below 0.01 nats a token, the lowest where none does.
    """

    rates: Annotated[tuple[Positive, ...], Field(min_length=2)] = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)

    @field_validator("rates")
    @classmethod
    def _sorted(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(rates)))


class MismatchConfig(Strict):
    """What to do when trainer and sampler give a policy's tokens different log-probabilities.

    `correct` makes every update around the trainer's own log-probabilities and weights each token by trainer over sampler,
    as `off_policy` says: by default per token, at most 2 (truncated importance sampling, Yao et al. 2025). `warn` changes
    no update. `auto` corrects for every engine but the transformers engine, whose log-probabilities are the trainer's to
    rounding; imitation and DPO weigh no token by a ratio, so there it warns. `stop` ends the run above `threshold`.

    Only tokens of the policy being updated are compared: earlier versions are expected to differ. `threshold` is the mean
    absolute difference, in nats a token, that is warned about. Above 1 nat a token the sampler serves another model, and
    the run ends, whatever `action` says except `warn`. Both ends are decided by the mean without the largest 1% of the
    differences, so that no outlier ends a run. `correct` and `stop` cost one more forward pass over an update's tokens.
    """

    threshold: Positive = 0.02
    action: Literal["auto", "warn", "correct", "stop"] = "auto"


class ResourcesConfig(Strict):
    """The memory that a run may take, and whether it is foreseen. Nothing here changes a result.

    `memory_gib` bounds main memory, `gpu_memory_gib` that of `policy.device`; without them the limit is what the machine and
    a cgroup have left. A run whose foreseen peak is above the limit is refused.

    `measure`: a short pass of the base in a process of its own, kept for the next time (`auto`: not for a base of a few
    megabytes), or `never`, and then nothing is foreseen.
    """

    memory_gib: Positive | None = None
    gpu_memory_gib: Positive | None = None
    measure: Literal["auto", "always", "never"] = "auto"
