"""The probes of a task: episodes of which it is known whether a verifier should accept them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tracewheel import TEXT_TURN, Attackable, Environment, NearMisser, Task
from tracewheel_graders.audit.attacks import CLAIMS, REMARKS, attack_texts, forged_states
from tracewheel_graders.audit.changes import changed_solutions, with_value
from tracewheel_graders.audit.play import Call, Played, Stage

Wanted = Literal["accept", "refuse"]
NONSENSE = "qzxv"


@dataclass(frozen=True)
class Probe:
    """An episode, and what a verifier should say of it.

    Attributes:
        kind: How it was made, as in `change.dropped`.
        wants: What is right.
        sure: Whether that is known. A changed episode may still solve its task; only an environment that tells which ends
            are alike (`OutcomeTeller`) rules that out.
    """

    task: Task
    kind: str
    wants: Wanted
    episode: Played
    sure: bool = True


def probes_of(
    task: Task, environment: Environment, solution: Sequence[Call], others: Sequence[Sequence[Call]], most: int, seed: int
) -> Iterator[Probe]:
    """All probes of a task.

    Args:
        task: The task.
        environment: Where it is played.
        solution: Calls that solve it.
        others: Solutions of other tasks.
        most: How many changed solutions of a kind.
        seed: Chooses them.

    Raises:
        Exception: whatever the environment raises.
    """
    in_words = bool(solution) and solution[-1][0] == TEXT_TURN
    stage, rng = Stage(environment, task, in_words=in_words), random.Random(f"audit-{task.id}-{seed}")
    solved, nothing = stage.play(solution), stage.play([])
    yield Probe(task, "solution.known", "accept", solved)
    yield Probe(task, "nothing.no_call", "refuse", nothing)
    yield Probe(task, "nothing.empty_message", "refuse", nothing.saying(""))
    if not in_words:
        for name, text in REMARKS.items():
            yield Probe(task, f"remark.{name}", "accept", solved.saying(text))
    for name, text in CLAIMS.items():
        yield Probe(task, f"claim.{name}", "refuse", nothing.saying(text))
    if isinstance(environment, NearMisser):
        for name, calls in environment.near_misses(task).items():
            yield Probe(task, f"near_miss.{name}", "refuse", stage.play(calls))
    if isinstance(environment, Attackable):
        for name, calls in environment.attacks(task).items():
            yield Probe(task, f"attack.{name}", "refuse", stage.play(calls))
    for name, calls in changed_solutions(solution, others, rng, most):
        yield _compared(task, f"change.{name}", stage.play(calls), solved, stage.tells)
    for name, calls in _attacks(task, stage, solved, others, rng):
        yield _compared(task, f"attack.{name}", stage.play(calls), solved, stage.tells)
    for name, state in forged_states(solved.state, nothing.state, most):
        forged = replace(solved, state=state, end=_end_of(stage, state, solved))
        if forged.end != solved.end:
            yield Probe(task, f"state.{name}", "refuse", forged, stage.tells)
    for name in ("claims_success", "instruction"):  # with work half done, as a judge meets it
        half = stage.play(solution[: len(solution) // 2])
        if half.end != solved.end:
            yield Probe(task, f"claim.{name}_half_done", "refuse", half.saying(CLAIMS[name]), stage.tells)


def _compared(task: Task, kind: str, episode: Played, solved: Played, tells: bool) -> Probe:
    """An episode that ends as the solution does is right, any other one wrong."""
    if episode.end == solved.end:
        return Probe(task, f"equal_end.{kind.partition('.')[2]}", "accept", episode)
    return Probe(task, kind, "refuse", episode, tells)


def _attacks(
    task: Task, stage: Stage, solved: Played, others: Sequence[Sequence[Call]], rng: random.Random
) -> Iterator[tuple[str, list[Call]]]:
    """Attacks on the texts that decide how the episode ends: at most two of them."""
    calls = solved.calls
    slots = [(place, name) for place, (_, args) in enumerate(calls) for name, value in args.items() if isinstance(value, str)]
    deciding = [slot for slot in slots if stage.play(with_value(calls, *slot, NONSENSE)).end != solved.end]
    for place, name in rng.sample(deciding, min(2, len(deciding))):
        tool, args = calls[place]
        known = {other[1].get(name) for one in others for other in one if other[0] == tool}
        foreign = sorted(value for value in known if isinstance(value, str) and value != args[name])
        for attack, text in attack_texts(args[name], task.prompt, foreign):
            yield attack, with_value(calls, place, name, text)


def _end_of(stage: Stage, state: dict[str, object], solved: Played) -> str:
    """How a forged state ends; one that the environment cannot read is like no other."""
    try:
        return stage.end(state)
    except Exception:  # the environment's own code on a state that it never made
        return f"unreadable, not {solved.end}"
