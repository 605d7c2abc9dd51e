"""How policies are evaluated and compared, and when the gate promotes one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tracewheel.config.base import Count, Share, Strict
from tracewheel.config.rollout import TokenSamplingConfig
from tracewheel.config.rubric import RubricConfig


class EvaluationConfig(TokenSamplingConfig):
    """Evaluation: one greedy rollout and `samples` sampled rollouts a task.

    With two samples instead of four a comparison costs 0.6 times the episodes, and its standard error is at most a tenth
    larger: with the gate's weights, the greedy rollout is most of a task's variance.

    `rubric` is held back: it scores held-out tasks, and so decides at the gate, but nothing is trained or chosen by it. On
    validation tasks it is computed and shown beside the training rubric, whose judge may climb while this one falls. Without
    it the profile's `rubric` scores everything.
    """

    samples: Count = 2
    pass_at: tuple[int, ...] = (1, 2)
    bootstrap: Count = 2000
    rubric: RubricConfig | None = None


class GateConfig(Strict):
    """When a challenger is promoted; `docs/gate.md` gives the reasons for the defaults.

    A policy's figure is `greedy_weight` times greedy success plus the rest times sampled success. `confidence` is that of
    the two-sided interval of the difference, over all gates of a year together; `gates_per_year` is how many it is divided
    between: 365 for a run each night, 52 for one each week, 1 for a single comparison. `family_margin` is the largest drop
    allowed for a task family, `min_pairs` the minimum number of tasks scored for both policies. A run whose programs were
    trained on with a fidelity below 0.99 is refused (docs/gateway.md).
    `false_accepts` is the share of failures that the graders might accept: a number, or `audit` for what an audit of the run's
    graders finds. A gain that false accepts alone could explain is then refused (docs/audit.md).
    With `approval: required` a run that the gate would promote is registered and waits (`tracewheel champion approve`).
    """

    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95
    gates_per_year: Count = 365
    greedy_weight: Share = 0.5
    family_margin: Share = 0.1
    min_pairs: Count = 20
    false_accepts: Share | Literal["audit"] | None = None
    approval: Literal["none", "required"] = "none"


class ComparisonConfig(Strict):
    """What is trained and evaluated for comparison alone. No decision reads it, so by default nothing is.

    `warm_starts`: `one` trains the warm start that the loop begins with (`warm_start.demonstrations`), none where it begins
    with a champion; `both` trains one on verified and one on all logs. `policies`: `gate` evaluates the two policies that the
    gate compares on the held-out and harder tasks, `all` base, warm starts and champion too. With `aa` the policy to beat is
    evaluated a second time on the held-out split, with another seed: what differs is noise, and the report shows it beside
    the gain. That is a third more of the evaluation at the end of a run. With `harder_curve` each validated policy also plays
    the harder tier, so that the report shows how success there developed.
    """

    warm_starts: Literal["one", "both"] = "one"
    policies: Literal["gate", "all"] = "gate"
    aa: bool = False
    harder_curve: bool = False


class AimsConfig(Strict):
    """Rates that a run is meant to reach. The report says whether it did; nothing is trained or chosen by them.

    `harder` is greedy success on the harder tier.
    """

    harder: Share | None = None
