"""Advantages of whole trajectories: one number for all action tokens of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tracewheel.config import AdvantageConfig
from tracewheel.core.plugins import import_class
from tracewheel.learner.advantages.group_statistics import Groups

# The function of each kind of advantage. Those in `COMPARING` take rewards, groups and the settings of their kind.
ADVANTAGES = {
    "batch": "tracewheel.learner.advantages.batch:batch_advantages",
    "domain": "tracewheel.learner.advantages.domain:domain_advantages",
    "gae": "tracewheel.learner.advantages.gae:gae",
    "greedy_baseline": "tracewheel.learner.advantages.greedy_baseline:greedy_baseline_advantages",
    "group": "tracewheel.learner.advantages.group:group_advantages",
    "kl_to_go": "tracewheel.learner.advantages.kl_to_go:kl_to_go_advantages",  # with `kl.credit: to_go`
    "leave_one_out": "tracewheel.learner.advantages.leave_one_out:leave_one_out_advantages",
    "teacher": "tracewheel.learner.distillation:teacher_logprobs",
    "vtrace": "tracewheel.learner.advantages.vtrace:vtrace",  # `gae` with `vtrace`
}
COMPARING = ("batch", "group", "leave_one_out")


def advantage_function(kind: str) -> Callable[..., Any]:
    """The function of a kind of advantage."""
    found: Callable[..., Any] = import_class(ADVANTAGES[kind], "advantage")
    return found


def trajectory_advantages(config: AdvantageConfig, rewards: Tensor, groups: Groups) -> Tensor:
    """The advantages [N] of trajectories with `rewards` [N] (NaN or infinite: unscored) in `groups` [N].

    Unscored trajectories are left out of every mean and deviation and get 0.

    Raises:
        TypeError: the kind of advantage compares no rewards (`success`) or is one of tokens (`gae`, `teacher`).
        ValueError: the lengths differ.
    """
    if config.kind not in COMPARING:
        raise TypeError(f"advantage '{config.kind}' does not compare the rewards of trajectories")
    found: Tensor = advantage_function(config.kind)(rewards, groups, **config.model_dump(exclude={"kind"}))
    return found
