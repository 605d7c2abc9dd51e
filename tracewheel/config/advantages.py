"""How rewards become advantages, and the critic of those that need one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tracewheel.config.base import Count, Positive, Share, Strict


class GroupAdvantageConfig(Strict):
    """Reward minus the group's mean, divided by the group's standard deviation if `scale`."""

    kind: Literal["group"] = "group"
    scale: bool = True


class LeaveOneOutAdvantageConfig(Strict):
    """Reward minus the mean of the group's other samples."""

    kind: Literal["leave_one_out"] = "leave_one_out"


class BatchAdvantageConfig(Strict):
    """Reward minus the mean of the group or of the whole batch, divided by the batch's standard deviation."""

    kind: Literal["batch"] = "batch"
    center: Literal["group", "batch"] = "group"


class DomainAdvantageConfig(Strict):
    """Reward minus the group's mean, divided by the standard deviation of its domain: for training on several worlds at once.

    A domain is an environment kind or a task family (`by`). With `weight: equal` every domain of a batch weighs the same in
    the loss, however many episodes or tokens it has; an advantage is multiplied by 4 at most for that.
    """

    kind: Literal["domain"] = "domain"
    by: Literal["environment", "family"] = "environment"
    weight: Literal["rows", "equal"] = "rows"


class GreedyBaselineAdvantageConfig(Strict):
    """Reward minus that of the same policy's greedy episode of the task (ReMax, Li et al. 2023).

    Each task is played once more for it. That episode counts in `training.episodes`, and nothing is trained on it.
    """

    kind: Literal["greedy_baseline"] = "greedy_baseline"


class SuccessAdvantageConfig(Strict):
    """1 for a reward of at least `threshold`, process rewards not counted; other samples are dropped."""

    kind: Literal["success"] = "success"
    threshold: Share = 1.0


class TeacherAdvantageConfig(Strict):
    """Per token: the teacher's log-probability minus the policy's.

    The teacher is a local adapter, a local model or both, with the policy's tokenizer.
    """

    kind: Literal["teacher"] = "teacher"
    base: str | None = None
    adapter: str | None = None


class CriticConfig(Strict):
    """The value function. `trunk`: a LoRA adapter of its own and a linear head on the policy's base.

    `light`: a two-layer network on the frozen base's hidden states. The first `warmup_iterations` train the critic alone,
    on the starting policy's episodes, for `warmup_epochs` epochs each (default: `epochs`). `clip` bounds how far a value
    may move from the one that its advantages were computed with.
    """

    kind: Literal["trunk", "light"] = "trunk"
    learning_rate: Positive = 1e-3
    epochs: Count = 2
    warmup_iterations: Annotated[int, Field(ge=0)] = 1
    warmup_epochs: Count | None = None
    clip: Positive | None = 0.2


class GaeAdvantageConfig(Strict):
    """Generalised advantage estimation over the actions of a trajectory; observations are skipped.

    `token`: each token is an action; `gamma` and `lam` apply from token to token, `turn_gamma` and `turn_lam` from the
    last token of a turn to the first of the next. `turn`: each turn is one action.

    VAPO (Yue et al. 2025): `lam_critic` is the lambda of the critic's returns, everywhere (default: that of the advantages);
    with `length_alpha` that of the advantages is 1 - 1 / (`length_alpha` l) everywhere, at least 0, where l counts the
    actions of the trajectory, not its observations.
    """

    kind: Literal["gae"] = "gae"
    granularity: Literal["token", "turn"] = "token"
    gamma: Share = 1.0
    lam: Share = 1.0
    turn_gamma: Share = 1.0
    turn_lam: Share = 0.95
    lam_critic: Share | None = None
    length_alpha: Positive | None = None
    critic: CriticConfig = CriticConfig()


AdvantageConfig = Annotated[
    GroupAdvantageConfig
    | LeaveOneOutAdvantageConfig
    | BatchAdvantageConfig
    | DomainAdvantageConfig
    | GreedyBaselineAdvantageConfig
    | SuccessAdvantageConfig
    | TeacherAdvantageConfig
    | GaeAdvantageConfig,
    Field(discriminator="kind"),
]
