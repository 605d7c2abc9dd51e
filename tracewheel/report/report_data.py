"""The contents of a report, as frozen values independent of files and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tracewheel.report.doctor.finding import Finding

Change = Literal["gained", "lost", "solved", "failed", "unscored"]


@dataclass(frozen=True)
class Estimate:
    """A rate, or a difference of rates, with its interval over `n` scored tasks."""

    value: float
    low: float
    high: float
    n: int
    unscored: int = 0


@dataclass(frozen=True)
class PolicyResult:
    """One row of the before-and-after table.

    Attributes:
        key: `deployed`, `base`, `warm_start`, `warm_start_verified`, `rl`, `champion` or another.
        label: Its name on the page.
        short: Its name where there is little room.
        greedy: Held-out success with greedy decoding; for the deployed agent, of its logged episodes.
        sampled: Held-out success of sampled rollouts, interval over tasks.
        pass_at: Held-out pass@k by k, of the sampled rollouts.
        harder: As `greedy`, on the harder tier.
        gain: Paired difference of the policy after RL minus this one, held-out, greedy.
        gain_harder: The same on the harder tier.
    """

    key: str
    label: str
    short: str
    greedy: Estimate | None = None
    sampled: Estimate | None = None
    pass_at: Mapping[int, float] = field(default_factory=dict)
    harder: Estimate | None = None
    gain: Estimate | None = None
    gain_harder: Estimate | None = None


@dataclass(frozen=True)
class BothRubrics:
    """What a policy gets by both rubrics, `training` and `held_back`, on the same episodes, by rubric."""

    key: str
    reward: Mapping[str, Estimate]
    success: Mapping[str, Estimate]


@dataclass(frozen=True)
class Group:
    """A tier or a family, with each policy's greedy success in it, by policy key."""

    name: str
    n: int
    rates: Mapping[str, Estimate]


@dataclass(frozen=True)
class Curve:
    """A chart over iterations. `series` maps a label to (iteration, value) points; None is a gap.

    `bounds` fixes the vertical axis; `marked` is an iteration to highlight, such as the chosen one. `bands` maps labels of
    `series` to (iteration, low, high). `axis` names what is counted along the horizontal axis, and `links` are addresses that
    its points lead to.
    """

    title: str
    series: Mapping[str, Sequence[tuple[int, float | None]]]
    note: str = ""
    bounds: tuple[float, float] | None = None
    marked: int | None = None
    bands: Mapping[str, Sequence[tuple[int, float, float]]] = field(default_factory=dict)
    axis: str = "iteration"
    links: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Aim:
    """A rate that the run was meant to reach."""

    name: str
    target: float
    reached: Estimate | None

    @property
    def met(self) -> bool:
        return self.reached is not None and self.reached.value >= self.target


@dataclass(frozen=True)
class Cost:
    """The cost of a stage. That of a cached stage was measured when it first ran."""

    stage: str
    seconds: float | None = None
    tokens: int | None = None
    cached: bool = False


@dataclass(frozen=True)
class Episode:
    """A greedy episode of one policy: OpenAI messages, stop reason and score."""

    messages: Sequence[Mapping[str, Any]]
    stop_reason: str
    status: str
    total: float | None
    breakdown: Mapping[str, float]
    final_state: Mapping[str, Any]
    detail: str = ""


@dataclass(frozen=True)
class Comparison:
    """One task with each policy's episode, by policy key."""

    task_id: str
    split: str
    family: str
    tier: int
    prompt: str
    initial_state: Mapping[str, Any]
    outcome: Change
    episodes: Mapping[str, Episode]


@dataclass(frozen=True)
class Changed:
    """A held-out task that the policy after RL gained or lost against the gate's baseline.

    Attributes:
        row: As `evaluation.changes.changed_tasks` gives it.
        prompt: The task.
        viewed: Whether the viewer shows it.
        store: The store, from the folder of the page; empty where it is unknown.
    """

    row: Mapping[str, Any]
    prompt: str
    viewed: bool
    store: str = ""


@dataclass(frozen=True)
class ReportData:
    """Everything on the page.

    Attributes:
        run_id: Identity of the run.
        name: Name of the profile.
        gate: The record of a `Verdict`. Empty where no gate ran.
        policies: Rows of the table, in the order the policies were made.
        groups: Bars by heading, such as "By tier".
        curves: Charts over iterations.
        aims: Rates that the run was meant to reach.
        costs: Seconds and tokens by stage.
        worth: What a point gained has cost, in a sentence.
        comparisons: Tasks for the viewer.
        before: Policy key shown on the left of the viewer at first.
        after: Policy key shown on the right at first; the table shows its gains.
        n_held_out: Size of the held-out split.
        n_harder: Size of the harder tier.
        pareto: Records of `ParetoPoint`, one per candidate.
        links: Locations of the run's other results, by label.
        lineage: Heading to name to value.
        config: The resolved profile.
        findings: The doctor's findings; empty where it did not run.
        noise: What `evaluation.changes.noise_floor` gives of the A/A run; empty where none ran.
        floor: What `evaluation.constant_policy` gives; empty where the run is older.
        changes: The tasks gained and lost, the lost ones first.
        splits: What this run's curation did to the splits, in words; empty where it is unknown.
        intake: What the run left out of its logs, in sentences: held batches, and the quarantine.
        leaks: What is on two sides of the splits, where the profile allows it; else empty.
        audit: What the audit of its graders found; empty without one.
        rubrics: What each policy gets by both rubrics on held-out tasks; empty without a rubric that is held back.
    """

    run_id: str
    name: str
    gate: Mapping[str, Any]
    policies: Sequence[PolicyResult]
    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    curves: Sequence[Curve] = ()
    aims: Sequence[Aim] = ()
    costs: Sequence[Cost] = ()
    worth: str = ""
    comparisons: Sequence[Comparison] = ()
    before: str = "warm_start"
    after: str = "rl"
    n_held_out: int = 0
    n_harder: int = 0
    pareto: Sequence[Mapping[str, Any]] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    lineage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    leaks: str = ""
    noise: Mapping[str, Any] = field(default_factory=dict)
    floor: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[Changed] = ()
    splits: str = ""
    intake: Sequence[str] = ()
    audit: Mapping[str, Any] = field(default_factory=dict)
    rubrics: Sequence[BothRubrics] = ()

    def policy(self, key: str) -> PolicyResult | None:
        """The row of a policy; None where it was not measured."""
        return next((row for row in self.policies if row.key == key), None)
