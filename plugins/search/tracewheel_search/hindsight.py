"""Hindsight for reinforcement learning: a failed episode becomes one of the task that it did solve.

Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495) for policy gradients (Rauber et al. 2019, "Hindsight
policy gradients", arXiv:1711.06006). The other task's prompt stands before the turns as they were sampled, ids and
log-probabilities, and the world carries the calls out again. The behaviour policy of these tokens is the policy under the
prompt that it was given, so the learner has to weigh them: `off_policy: {proximal: recompute, correction: truncate}` weighs
each token by the policy under the new prompt over that one, at most `cap`. Where a failure leads depends on the policy, so a
truncated weight leaves a bias; a longer route to an easier task is imitated as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tracewheel import (
    ConfigError,
    GoalFinder,
    Score,
    ScoreSections,
    Task,
    Trajectory,
    load_tasks,
    make_verifier,
    open_environment,
    read_records,
    read_scores,
    score,
    success_of,
    write_records,
)
from tracewheel_search.continuing import Branch, Player
from tracewheel_search.pairs import SCORES, TRAJECTORIES, VARIANTS

OUTSIDE = ("validation", "held_out", "harder", "reserve")  # splits whose tasks are never trained on


def never_trained_on(curated: Path) -> set[str]:
    """The fingerprints of a curated folder's tasks outside the training split."""
    return {task.fingerprint for split in OUTSIDE for task in load_tasks(curated, split)}


def check_finder(environments: Collection[str]) -> None:
    """Check that one of these environments, as tasks name them, can say which task a final state solves.

    Raises:
        ConfigError: none can.
    """
    for kind in environments:
        with open_environment(kind) as environment:
            if isinstance(environment, GoalFinder):
                return
    raise ConfigError(f"environment {', '.join(environments)}: tells no task that a final state solves (task_reached)")


def task_solved(trajectory: Trajectory, task: Task, taken: Collection[str]) -> Task | None:
    """The other task that an episode ended with, which doing nothing does not solve; None without one.

    Args:
        trajectory: A failed episode.
        task: What was asked.
        taken: Fingerprints of tasks that must not be trained on.
    """
    if trajectory.fault or trajectory.forks or trajectory.branches or not trajectory.turns:
        return None
    with open_environment(task.environment) as environment:
        if not isinstance(environment, GoalFinder):
            return None
        reached = environment.task_reached(task, trajectory.final_state)
        if reached is None or reached.fingerprint == task.fingerprint or reached.fingerprint in taken:
            return None
        environment.reset(reached)
        untouched, _ = make_verifier(reached.verifier).verify(reached, environment.snapshot())
    return reached if untouched < 1.0 else None


def relabelled(
    player: Player,
    config: ScoreSections,
    trajectories: Sequence[Trajectory],
    scores: Sequence[Score],
    tasks: Mapping[str, Task],
    taken: Collection[str],
    out: Path,
) -> dict[str, int]:
    """Write the files of an update: the episodes with their scores, and after them the successes of other tasks.

    An episode counts as one of another task only if it ends there as before and that task's verifier calls it a success. The
    policy version of its tokens is -1: none of the loop's policies sampled them under this prompt.

    Args:
        player: Carries the calls out again.
        config: The rubric.
        trajectories, scores: Of one rollout, in the same order.
        tasks: Those that were played, by id.
        taken: Fingerprints of tasks that must not be trained on.
        out: Folder for `trajectories.parquet`, `scores.parquet` and, as curation did not make all, their `variants.parquet`.

    Returns:
        `failed`, `reached` (another task) and `relabelled`, how many episodes.
    """
    failed = [each for each, judged in zip(trajectories, scores, strict=True) if success_of(judged) == 0.0]
    found = [(each, task_solved(each, tasks[each.task_id], taken)) for each in failed]
    reached = [(each, task) for each, task in found if task is not None]
    played = player.play_again([Branch(task, each.sample, each.seed, each, len(each.turns)) for each, task in reached])
    new = [each for each, (before, _) in zip(played, reached, strict=True) if each.final_state == before.final_state]
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / TRAJECTORIES, new, Trajectory)
    others = {task.id: task for _, task in reached}
    score(config, list(others.values()), out / TRAJECTORIES, out)
    judged = {each.trajectory_id: each for each in read_scores(out / SCORES)}
    kept = [each for each in read_records(out / TRAJECTORIES, Trajectory) if success_of(judged[each.id]) == 1.0]
    write_records(out / TRAJECTORIES, [*trajectories, *kept], Trajectory)
    write_records(out / SCORES, [*scores, *(judged[each.id] for each in kept)], Score)
    write_records(out / VARIANTS, list((others | {each.task_id: tasks[each.task_id] for each in trajectories}).values()), Task)
    return {"failed": len(failed), "reached": len(reached), "relabelled": len(kept)}
