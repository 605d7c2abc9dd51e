"""How trajectories are scored, how policies are evaluated and compared, and when the gate promotes one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tracewheel.config.base import Count, GivenKind, NotNegative, Positive, Share, Strict
from tracewheel.config.rollout import TokenSamplingConfig
from tracewheel.core.types import canonical_json

JUDGES = ("judge", "relative_judge")


class RubricTerm(GivenKind):
    """A weighted verifier: a built-in name, `module:Class`, or `task` for the verifier that each task names; its arguments.

    `progress` is the progress that the verifier of `task` measures: partial credit. `cap`: the term's total counts up to
    here. `only`: the environment kinds or task families that the term is for; without it, all. `role` matters with `mode:
    outcome_first`.
    """

    kind: str = "task"
    weight: Positive = 1.0
    role: Literal["outcome", "shaping"] = "outcome"
    cap: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    only: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_task(self) -> RubricTerm:
        if self.kind in ("task", "progress") and self.args:
            raise ValueError(f"verifier '{self.kind}' takes no args: each task names its verifier, with the arguments")
        return self


class NamedObjective(Strict):
    """An objective by the `name` of its figures. With `weight` 0 it is reported but not rewarded."""

    name: str
    weight: NotNegative = 1.0


class PartObjective(NamedObjective):
    """An objective read from the breakdown: `success`, a verifier's kind, or `kind.part`, as in `workspace.untouched`."""

    kind: Literal["part"] = "part"
    part: str

    def is_of(self, kinds: Iterable[str]) -> bool:
        """Whether verifiers of these kinds may give the part."""
        part = self.part.removeprefix("capped.")
        return part == "success" or any(part == kind or part.startswith(f"{kind}.") for kind in kinds)


class CostObjective(NamedObjective):
    """Low cost: from 1 for an episode that costs nothing down to 0 at `budget` or more, by `measure`.

    A failed episode gets 0, because giving up at once is also cheap.
    """

    kind: Literal["cost"] = "cost"
    measure: Literal["turns", "calls", "generated_tokens", "trajectory_tokens"] = "generated_tokens"
    budget: Count


ObjectiveConfig = Annotated[PartObjective | CostObjective, Field(discriminator="kind")]


class OverlongConfig(Strict):
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv:2503.14476, equation 13), in tokens that the episode generated.

    Nothing up to `max_tokens` - `cache`, then rising linearly to 0.5 at `max_tokens` and above. `max_tokens` is the
    paper's L_max, `cache` its L_cache. The paper's 1 for rewards of -1 and 1 is 0.5 of ours, 0 and 1.
    """

    max_tokens: Count
    cache: Count

    @model_validator(mode="after")
    def _check_cache(self) -> OverlongConfig:
        if self.cache > self.max_tokens:
            raise ValueError(
                f"cache ({self.cache}) is larger than max_tokens ({self.max_tokens}): the punishment would begin below 0"
            )
        return self


class RubricConfig(Strict):
    """How a trajectory is scored: a weighted mean of verifiers, less a penalty for malformed calls.

    With `mode: weighted` the first verifier alone decides success; the others shape the reward. With `outcome_first` success is
    that every term of role `outcome` is 1; those are at least half of the weights, and shaping terms, penalties and process
    rewards cannot lift a failure to a success's reward (`tracewheel.scoring.adjustments`). With `objectives` (success,
    safety, cost; each in [0, 1], higher is better) the reward is their weighted mean instead, and each is stored in the
    breakdown. `turn_rewards` replays each trajectory and rewards every turn with the progress it made.

    `malformed_penalty` is subtracted for each malformed call, up to 1 in all. It also takes a failed episode below 0:
    otherwise a policy that still fails every time would have no reason to write well-formed calls.

    What an environment returns as `Observation.reward` is added. `overlong` punishes long episodes. `flawed_penalty` is
    subtracted from a success with a flaw (see `tracewheel.scoring.flaws`); 0, because what counts as a flaw is a rule of
    thumb, and the doctor says first how many successes it concerns.

    A judge never overrides a verifier that decides by facts: beside one it is not the first term, weighs no more than the
    first, and with `outcome_first` shapes only.

    A trajectory that takes longer to score than `verifier_seconds` is unscored, and the others are scored; null is no limit.
    """

    mode: Literal["weighted", "outcome_first"] = "weighted"
    verifiers: Annotated[tuple[RubricTerm, ...], Field(min_length=1)] = (RubricTerm(),)
    objectives: tuple[ObjectiveConfig, ...] = ()
    turn_rewards: bool = False
    malformed_penalty: Share = 0.0
    overlong: OverlongConfig | None = None
    flawed_penalty: Share = 0.0
    verifier_seconds: Positive | None = 300.0

    @model_validator(mode="after")
    def _check_objectives(self) -> RubricConfig:
        names = [objective.name for objective in self.objectives]
        if len(set(names)) < len(names):
            raise ValueError(f"objectives need distinct names, not {', '.join(names)}")
        if names and not any(objective.weight for objective in self.objectives):
            raise ValueError("no objective has a weight, so nothing would be rewarded")
        kinds = [term.kind for term in self.verifiers]
        for number, objective in enumerate(self.objectives):
            # Which verifiers tasks name is known with the tasks: `check`, `curate` and `audit` look then.
            if isinstance(objective, PartObjective) and "task" not in kinds and not objective.is_of(kinds):
                raise ValueError(
                    f"objectives.{number}.part: no verifier of the rubric gives '{objective.part}': it is success, or begins "
                    f"with {' or '.join(kinds)}"
                )
        return self

    @model_validator(mode="after")
    def _check_mode(self) -> RubricConfig:
        if self.mode == "weighted":
            for number, term in enumerate(self.verifiers):
                if term.role == "shaping":
                    raise ValueError(f"verifiers.{number}.role: 'shaping' has no meaning here: set mode to 'outcome_first'")
            return self
        if self.objectives:
            raise ValueError("objectives: they replace the reward of the verifiers: leave them out, or set mode to 'weighted'")
        for number, term in enumerate(self.verifiers):
            if term.role == "outcome" and term.cap is not None:
                raise ValueError(f"verifiers.{number}.cap: an outcome counts in full: leave it out, or set role to 'shaping'")
        for name, applying in self._by_place():
            outcome = sum(term.weight for term in applying if term.role == "outcome")
            shaping = sum(term.weight for term in applying if term.role == "shaping")
            if outcome < shaping:
                where = f"for {name!r} " if name else ""
                raise ValueError(
                    f"verifiers.weight: {where}the outcome terms weigh {outcome:g} and the shaping terms {shaping:g}; with "
                    "mode 'outcome_first' the outcome is at least half"
                )
        return self

    @model_validator(mode="after")
    def _check_judges(self) -> RubricConfig:
        """What a judge may decide where facts do, too."""
        for name, applying in self._by_place():
            judges = [term for term in applying if term.kind in JUDGES]
            if not judges or len(judges) == len(applying):
                continue
            where = f"for {name!r} " if name else ""
            if self.mode == "weighted":
                if applying[0].kind in JUDGES:
                    raise ValueError(
                        f"verifiers: {where}a judge comes first and would decide success: put {applying[1].kind!r} first"
                    )
                weight, most = sum(term.weight for term in judges), applying[0].weight
                if weight > most:
                    raise ValueError(
                        f"verifiers.weight: {where}judges weigh {weight:g}, and {applying[0].kind!r}, which decides success, "
                        f"{most:g}: a failure that they like would be worth more than a success that they do not"
                    )
            elif any(term.role == "outcome" for term in judges) and any(
                term.kind not in JUDGES and (term.role == "outcome" or term.kind == "task") for term in applying
            ):
                raise ValueError(
                    f"verifiers.role: {where}a judge is an outcome beside a verifier of facts: set its role to 'shaping'"
                )
        return self

    def _by_place(self) -> list[tuple[str, list[RubricTerm]]]:
        """The terms that apply, by each environment or family that one is only for; "" for all others."""
        names = [*sorted({name for term in self.verifiers for name in term.only}), ""]
        return [(name, [term for term in self.verifiers if not term.only or name in term.only]) for name in names]


def judges_of(rubric: RubricConfig) -> set[tuple[str, str]]:
    """The model and the questions of each judge in a rubric. Endpoint, key and speed make no other judge."""
    found = set()
    for term in rubric.verifiers:
        if term.kind in JUDGES:
            asked = canonical_json([term.args.get(name) for name in ("criteria", "standard")])
            found |= {(str(model.get("model")), asked) for model in term.args.get("models", []) if isinstance(model, dict)}
    return found


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
    rubric: RubricConfig | None = None


class GateConfig(Strict):
    """When a challenger is promoted; `docs/gate.md` gives the reasons for the defaults.

    A policy's figure is `greedy_weight` times greedy success plus the rest times sampled success. `confidence` is that of
    the two-sided interval of the difference, over all gates of a year together; `gates_per_year` is how many it is divided
    between: 365 for a run each night, 52 for one each week, 1 for a single comparison. `promise` is what that error is: of a
    year (`yearly`, with candidates that keep their evidence), of a night (`nightly`), or `expected_loss`, which promotes what
    is expected to gain ten times what it may lose. `family_margin` is the largest drop
    allowed for a task family, `min_pairs` the minimum number of tasks scored for both policies. A run whose programs were
    trained on with a fidelity below 0.99 is refused (docs/gateway.md).
    `false_accepts` is the share of failures that the graders might accept: a number, or `audit` for what an audit of the run's
    graders finds. A gain that false accepts alone could explain is then refused (plugins/graders/docs/audit.md).
    With `approval: required` a run that the gate would promote is registered and waits (`tracewheel champion approve`).
    """

    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95
    gates_per_year: Count = 365
    promise: Literal["yearly", "nightly", "expected_loss"] = "yearly"
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
    the gain. That is a third more of the evaluation at the end of a run.
    """

    warm_starts: Literal["one", "both"] = "one"
    policies: Literal["gate", "all"] = "gate"
    aa: bool = False


class AimsConfig(Strict):
    """Rates that a run is meant to reach. The report says whether it did; nothing is trained or chosen by them.

    `harder` is greedy success on the harder tier.
    """

    harder: Share | None = None
