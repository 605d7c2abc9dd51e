"""Why the gate refuses: one cause, in words, with the next thing to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tracewheel.config import GateConfig
from tracewheel.evaluation.error_budget import ANOTHER_PLAN
from tracewheel.evaluation.paired_outcomes import Outcomes, Paired
from tracewheel.evaluation.power import POWER, USUAL_SPREAD, tasks_needed
from tracewheel.evaluation.wording import measured, policy_words, tasks

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
MEND_EPISODES = "read their stop reasons (dashboard, Episodes), mend the environment or the verifier, and run again"
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
    for rule in (_nothing_learnt, _no_budget, _unscored, _never_succeeds, _harmed, _not_better, _too_few_tasks, _false_accepts):
        if refusal := rule(found):
            return refusal
    return Refusal(
        "other", "a condition of the gate does not hold", "read which in `reasons` of gate.json, or on the run's page"
    )


def _false_accepts(found: Found) -> Refusal | None:
    if not found.explained:
        return None
    return Refusal(
        "false_accepts",
        f"{_measured(found)}, but graders that let failures pass could explain it",
        "mend the graders that `tracewheel audit` names, or audit them on more tasks",
    )


def _no_budget(found: Found) -> Refusal | None:
    if found.level > 0.0:
        return None
    return Refusal(
        "no_budget",
        f"this year's error budget is spent, so nothing is promoted: it was planned for {found.config.gates_per_year:,} gates",
        ANOTHER_PLAN,
    )


def _unscored(found: Found) -> Refusal | None:
    pairs, missing = len(found.paired.seen), found.ours.missing + found.theirs.missing
    if found.gain_unless_missing and not found.gain:
        return Refusal(
            "unscored",
            f"{_measured(found)}, but not certainly: {missing:,} episodes could not be played or scored",
            MEND_EPISODES,
        )
    if pairs >= max(found.config.min_pairs, found.offered / 2):
        return None
    if missing:
        return Refusal(
            "unscored",
            f"only {pairs:,} of {tasks(found.offered)} could be compared: {missing:,} episodes could not be played or scored",
            MEND_EPISODES,
        )
    return Refusal(
        "too_few_tasks",
        f"only {tasks(pairs)} could be compared, and the gate asks for {found.config.min_pairs:,} (gate.min_pairs)",
        "log more tasks, or hold out more of them: curation.held_out_tasks, and where the logs are short curation.shares.test",
    )


def _nothing_learnt(found: Found) -> Refusal | None:
    if found.trained:
        return None
    return Refusal(
        "nothing_learnt",
        "RL improved on no validation iteration; the challenger is the starting policy",
        "run `tracewheel doctor`: it says whether iterations, learning rate or training tasks are short",
    )


def _never_succeeds(found: Found) -> Refusal | None:
    if _rate(found.ours) != 0.0:
        return None
    other = f", nor does {policy_words(found.baseline)}" if _rate(found.theirs) == 0.0 else ""
    return Refusal(
        "never_succeeds",
        f"it solves none of {tasks(len(found.ours.greedy))}{other}",
        "read some episodes (dashboard, Episodes): cut off (rollout.max_tokens), malformed (the base's tool format) or wrong? "
        "Without a success there is nothing to reinforce",
    )


def _harmed(found: Found) -> Refusal | None:
    if not found.gain or not found.harmed:
        return None
    return Refusal(
        "harmed",
        f"{_measured(found)}, but worse in {', '.join(found.harmed)}",
        "read the tasks it lost (dashboard, Gate), and add training tasks of that kind",
    )


def _not_better(found: Found) -> Refusal | None:
    mean = float(found.paired.seen.mean())
    if found.gain or mean > 0.0:
        return None
    return Refusal(
        "not_better",
        _measured(found) if found.paired.seen.any() else f"it solves the same tasks as {policy_words(found.baseline)}",
        "look at the learning curve (dashboard): where the training reward rose and validation did not, train on more tasks; "
        "where both are flat, on easier or harder ones",
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
        f"{_measured(found)}, which may be chance",
        f"hold out {max(needed, len(seen) + 1):,} tasks (curation.held_out_tasks), on which a gain of this size is promoted in "
        f"{POWER:.0%} of the runs, or train for a larger one",
    )


def _measured(found: Found) -> str:
    return measured(float(found.paired.seen.mean()), len(found.paired.seen), found.baseline)


def _rate(outcomes: Outcomes) -> float | None:
    """Success over all scored episodes; None without one."""
    greedy = outcomes.greedy[outcomes.greedy == outcomes.greedy]
    episodes = len(greedy) + float(outcomes.attempts.sum())
    return (float(greedy.sum()) + float(outcomes.successes.sum())) / episodes if episodes else None
