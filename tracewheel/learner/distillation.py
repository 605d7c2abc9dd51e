"""On-policy distillation (Agarwal et al. 2024, arXiv:2306.13649): a teacher scores the policy's own tokens.

The teacher reads exactly the token ids of the trajectory, so it never sees the task's goal or solution.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.config import TeacherAdvantageConfig, UpdateSections
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import load_for_generation, policy_renderer

if TYPE_CHECKING:
    from torch import Tensor

    from tracewheel.learner.batch import Batch


def teacher_logprobs(config: UpdateSections, advantage: TeacherAdvantageConfig) -> Callable[[Batch], Tensor]:
    """Load the teacher; returns a function from a batch to its log-probability [B, T] of each action token.

    Each row is scored at the temperature it was sampled at, like the policy's own log-probabilities, so that a
    policy equal to its teacher has advantage 0. Values are 0 off the action mask; no weight has a gradient.

    Raises:
        DataError: there is no such teacher.
        AdapterMismatchError: its adapter was trained for another base.
        ConfigError: its tokenizer is not the policy's.
    """
    base = advantage.base or config.policy.base
    _check_same_tokens(config, base)
    if advantage.adapter is not None and not Path(advantage.adapter).is_dir():
        raise DataError(f"learner.advantage.adapter: {advantage.adapter}: no such folder")
    model = load_for_generation(config.policy, PolicyRef(base, advantage.adapter)).requires_grad_(False)
    return lambda batch: action_logprobs(model, batch, layout=config.learner.layout)[0]


def _check_same_tokens(config: UpdateSections, base: str) -> None:
    """Check that a teacher's base has the tokenizer of the policy's.

    Raises:
        ConfigError: it does not; the message names a token that differs.
    """
    if base == config.policy.base:
        return
    own, theirs = (policy_renderer(config.policy, name).tokenizer for name in (config.policy.base, base))
    differ = set(own.get_vocab().items()) ^ set(theirs.get_vocab().items())
    if differ:
        token, number = min(differ, key=lambda pair: (pair[1], pair[0]))
        raise ConfigError(
            f"learner.advantage.base: the tokenizer of '{base}' is not that of policy.base '{config.policy.base}': "
            f"{len(differ)} entries differ, the first is {token!r} with id {number}. On-policy distillation compares "
            "token by token: choose a teacher of the same model family, or let it play the tasks with `tracewheel teach`"
        )
