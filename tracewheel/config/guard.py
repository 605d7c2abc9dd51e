"""The guard in the loop: when it goes back to the best iteration, and when it stops."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tracewheel.config.base import Count, NotNegative, Positive, Share, Strict

Factor = Annotated[float, Field(gt=1.0)]


class GuardConfig(Strict):
    """What the loop does when success, malformed calls, entropy, KL or gradient norm leave their band.

    It goes back to the best candidate with the learning rate times `factor`, at most `attempts` times; then it stops, and
    the best candidate goes on to evaluation and gate. An alarm needs one iteration beyond `certain` standard deviations, two
    in a row beyond `doubtful`, or the last `window` iterations together beyond `persistent`.

    Success and malformed calls are compared task by task with `window` iterations before the alarm, and with as many around
    the best candidate; a significant change counts from a fall of success by the share `success_fall`, or a rise of episodes
    with a malformed or invented call by `malformed_rise` (a share of episodes). Entropy, KL and gradient norm are compared
    with the median of twice as many iterations: their band ends at the factors `entropy`, `kl` and `grad_norm` from it,
    or at four (robust) standard deviations if these are wider; twice the band's logarithm is certain. KL below `kl_least`
    nats a token is never an alarm, from `kl_most` on it always is.
    """

    enabled: bool = True
    attempts: Annotated[int, Field(ge=0)] = 2
    factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.3
    window: Count = 4
    doubtful: Positive = 2.6
    certain: Positive = 4.8
    persistent: Positive = 3.5
    success_fall: Share = 0.25
    malformed_rise: Share = 0.05
    entropy: Factor = 3.0
    kl: Factor = 10.0
    grad_norm: Factor = 10.0
    kl_least: NotNegative = 0.1
    kl_most: Positive = 5.0
