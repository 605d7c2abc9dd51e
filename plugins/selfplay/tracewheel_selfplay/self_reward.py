"""Self-reward where no verifier exists: the majority of a group is its reward, and guards stop the loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tracewheel import (
    RetrainConfig,
    SamplerSections,
    load_tasks,
    make_sampler,
    read_scores,
    read_table,
    success_of,
)
from tracewheel_selfplay.guards import Limits, Round, flip_rate, stop_reason
from tracewheel_selfplay.rounds import learn, mark, play, trajectories_of


def self_reward(
    config: RetrainConfig,
    reward: RetrainConfig,
    curated: Path,
    start: Path,
    out: Path,
    *,
    labels: int = 8,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """Train on the policy's own majority until the iterations are over or a guard stops.

    Args:
        config: The profile; its rubric scores the labelled tasks, and nothing else of training.
        reward: The same profile with `majority` as its rubric.
        curated: The output of curate.
        start: The state to begin with.
        out: Where each round has a folder.
        labels: How many training tasks have true labels; they are played in every round.
        limits: Of the guards; None is no guards at all, for a control.

    Returns:
        `rounds`, their figures; `stopped`, why, or ""; `state`, the folder of the last policy; where a guard has stopped the
        loop, of the last one whose round passed.
    """
    sampler, by_id = make_sampler(SamplerSections.of(config), curated), {each.id: each for each in load_tasks(curated, "train")}
    labelled = sorted(by_id)[:labels]  # ids are digests, so these are any
    state, passed, rounds, stopped = start, start, list[Round](), ""
    for iteration in range(1, config.training.iterations + 1):
        chosen = sampler.select(config.training.tasks_per_iteration, iteration)
        tasks = [by_id[name] for name in dict.fromkeys([*labelled, *chosen])]
        folder = out / f"{iteration:03d}"
        played = play(config, state, curated, tasks, folder / "rollout", iteration)
        own = mark(reward, tasks, played, folder / "own")
        true = mark(config, tasks, of_tasks(played, labelled, folder / "labelled.parquet"), folder / "labels")
        figures = learn(reward, played, own, state, start, folder / "update", iteration)
        found = round_of(played, own, true, figures.get("entropy"))
        rounds.append(replace(found, flips=flip_rate(rounds[-1].majorities, found.majorities) if rounds else None))
        if limits and (stopped := stop_reason(rounds, limits)):
            state = passed  # the policy that played this round is the one objected to
            break
        passed, state = state, folder / "update"
    return {"rounds": [each.to_record() for each in rounds], "stopped": stopped, "state": str(state)}


def round_of(played: Path, own: Path, true: Path, entropy: float | None) -> Round:
    """The figures of a round from its files."""
    trajectories = {each.id: each for each in trajectories_of(played)}
    mine, right = by_trajectory(own), by_trajectory(true)
    chosen = {score.task_id: score for score in read_scores(own) if mine[score.trajectory_id]}
    shares = [score.breakdown["majority.share"] for score in chosen.values()]
    truths = {name: truth for name, truth in right.items() if truth is not None}
    both = [name for name in truths if mine[name] is not None]
    return Round(
        majorities={task: score.answer for task, score in chosen.items()},
        share=fmean(shares) if shares else 0.0,
        agree=sum(mine[name] == right[name] for name in both),
        labelled=len(both),
        length=fmean(sum(each.action_mask) for each in trajectories.values()),
        entropy=entropy,
        true_success=fmean(truths.values()) if truths else None,
    )


def of_tasks(played: Path, tasks: Sequence[str], out: Path) -> Path:
    """The trajectories of some tasks alone, so that no other is ever looked at by the labels' rubric."""
    table = read_table(played)
    table[table["task_id"].isin(list(tasks))].to_parquet(out, index=False)
    return out


def by_trajectory(scores: Path) -> Mapping[str, bool | None]:
    """Of each trajectory whether it is a success; None where it has no score."""
    return {each.trajectory_id: None if each.total is None else bool(success_of(each)) for each in read_scores(scores)}
