"""Why the gate refuses: one cause, in words, with the next thing to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tracewheel.config import GateConfig
from tracewheel.evaluation.error_budget import ANOTHER_PLAN
from tracewheel.evaluation.paired_outcomes import Outcomes, Paired
from tracewheel.evaluation.power import POWER, USUAL_SPREAD, tasks_needed

Cause = Literal[
    "no_budget",
    "unscored",
    "nothing_learnt",
    "never_succeeds",
    "harmed",
    "not_better",
    "too_few_tasks",
    "false_accepts",
    "unfaithful",
    "other",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
MEND_EPISODES = "see their stop reasons on the dashboard's episodes page, mend the environment or the verifier, and run again"
LOWEST_SPREAD = 0.05  # of differences between tasks, where those at hand hardly differ


@dataclass(frozen=True)
class Refusal:
    """Why a gate refused.

    Attributes:
        cause: One of `CAUSES`.
        says: The cause as a sentence.
        advice: What to do next.
    """

    cause: Cause
    says: str
    advice: str


@dataclass(frozen=True)
class Found:
    """What the gate found, for its cause.

    Attributes:
        ours: The challenger's outcomes on the common tasks, `theirs` the baseline's.
        level: The gate's level; 0 where the year's error budget is spent.
        gain: Whether a gain is shown.
        gain_unless_missing: Whether one would be, if missing episodes did not count at their worst.
        explained: Whether false accepts of the graders could explain the gain.
        harmed: Families that are judged to fall; "greedy success" where that falls.
        trained: Whether the challenger is another policy than the one that training began with.
    """

    config: GateConfig
    ours: Outcomes
    theirs: Outcomes
    paired: Paired
    offered: int
    level: float
    gain: bool
    gain_unless_missing: bool
    harmed: list[str]
    explained: bool
    baseline: str
    trained: bool


def refusal_of(found: Found) -> Refusal:
    """The cause of a refusal: the first that applies, from "could not be asked" to "not certain enough"."""
    for rule in (_no_budget, _unscored, _never_succeeds, _nothing_learnt, _harmed, _not_better, _too_few_tasks, _false_accepts):
        if refusal := rule(found):
            return refusal
    return Refusal("other", "a condition of the gate does not hold", "the reasons below say which")


def _false_accepts(found: Found) -> Refusal | None:
    if not found.explained:
        return None
    return Refusal(
        "false_accepts",
        "false accepts of the graders could explain the gain",
        "mend the graders that `tracewheel audit` names, or audit them on more tasks",
    )


def _no_budget(found: Found) -> Refusal | None:
    if found.level > 0.0:
        return None
    return Refusal(
        "no_budget",
        f"the year's error budget is spent: it was planned for {found.config.gates_per_year} gate(s)",
        ANOTHER_PLAN,
    )


def _unscored(found: Found) -> Refusal | None:
    pairs, missing = len(found.paired.seen), found.ours.missing + found.theirs.missing
    if found.gain_unless_missing and not found.gain:
        return Refusal(
            "unscored",
            f"a gain is seen, but {missing} episodes could not be played or scored, and count at their worst",
            MEND_EPISODES,
        )
    if pairs >= max(found.config.min_pairs, found.offered / 2):
        return None
    if missing:
        return Refusal(
            "unscored",
            f"too few tasks are scored for both policies: {missing} episodes could not be played or scored",
            MEND_EPISODES,
        )
    return Refusal(
        "too_few_tasks",
        f"{pairs} held-out tasks are fewer than gate.min_pairs, {found.config.min_pairs}",
        "log more tasks, or hold out more of them: curation.held_out_tasks, and where the logs are short curation.shares.test",
    )


def _nothing_learnt(found: Found) -> Refusal | None:
    if found.trained:
        return None
    return Refusal(
        "nothing_learnt",
        "nothing was learnt: no iteration was better on the validation split than the policy that training began with, so "
        "the challenger is that policy",
        "look at the learning curve and at `tracewheel doctor`; then try more iterations (training.iterations), another "
        "learning rate (learner.learning_rate: auto), or more training tasks",
    )


def _never_succeeds(found: Found) -> Refusal | None:
    if _rate(found.ours) != 0.0:
        return None
    other = "; nor does the policy to beat" if _rate(found.theirs) == 0.0 else ""
    return Refusal(
        "never_succeeds",
        f"the challenger succeeds on no held-out task{other}: without a success there is nothing to reinforce",
        "read some episodes (dashboard, or `tracewheel doctor`): are they cut off (rollout.max_tokens), malformed (the base's "
        "tool format), or wrong? Then take a stronger base, easier tasks first, or more successful logs for the warm start",
    )


def _harmed(found: Found) -> Refusal | None:
    if not found.gain or not found.harmed:
        return None
    return Refusal(
        "harmed",
        f"better on average, but worse in {', '.join(found.harmed)}",
        "see which tasks it lost (dashboard, the gate's changes), add training tasks of that kind, or allow a larger fall "
        "(gate.family_margin)",
    )


def _not_better(found: Found) -> Refusal | None:
    mean = float(found.paired.seen.mean())
    if found.gain or mean > 0.0:
        return None
    if not found.paired.seen.any():
        says = f"not better: it solves the same held-out tasks as {found.baseline}"
    else:
        says = f"not better: {100 * mean:+.1f} points against {found.baseline} on the held-out tasks"
    return Refusal(
        "not_better",
        says,
        "compare the learning curve on validation with the training reward: flat means that tasks are too hard or too easy "
        "(difficulty on the dashboard), a rise that held-out tasks do not share means too few training tasks",
    )


def _too_few_tasks(found: Found) -> Refusal | None:
    if found.gain:
        return None
    seen = found.paired.seen
    mean = float(seen.mean())
    spread = max(float(seen.std(ddof=1)), LOWEST_SPREAD) if len(seen) > 1 else USUAL_SPREAD
    needed = tasks_needed(mean, spread, found.level)
    return Refusal(
        "too_few_tasks",
        f"better by {100 * mean:.1f} points, but not certainly with {len(seen)} held-out tasks",
        f"a gain of this size is seen with {POWER:.0%} power on {max(needed, len(seen) + 1)} tasks: hold out more "
        "(curation.held_out_tasks), or train for a larger gain",
    )


def _rate(outcomes: Outcomes) -> float | None:
    """Success over all scored episodes; None without one."""
    greedy = outcomes.greedy[outcomes.greedy == outcomes.greedy]
    episodes = len(greedy) + float(outcomes.attempts.sum())
    return (float(greedy.sum()) + float(outcomes.successes.sum())) / episodes if episodes else None
