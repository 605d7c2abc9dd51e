"""Verified solutions of tasks that the policy has lost, tokenised for the update to imitate.

Imitation of demonstrations beside the policy gradient (DAPG, Rajeswaran et al. 2018, arXiv:1709.10087). A solution is never a
trajectory: it reaches no ratio, KL, mismatch or advantage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import SolutionSections
from tracewheel.core.files import read_table, write_json
from tracewheel.core.types import TRAJECTORIES_FILE, Score, Trajectory
from tracewheel.learner.warm_start.demonstrations import Example, demonstration_examples
from tracewheel.learner.warm_start.selection import TAUGHT, episodes_to_imitate
from tracewheel.policy.limits import write_token_ids
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import SCORES_FILE, read_scores

if TYPE_CHECKING:
    import pandas as pd

SOLUTIONS_FILE = "solutions.parquet"
OWN, TEACHER = "own", "teacher"


def find_solutions(
    config: SolutionSections,
    curated: Path,
    lost: Sequence[str],
    out: Path,
    *,
    own: Sequence[tuple[Path, Path]] = (),
    taught: Sequence[Path] = (),
) -> dict[str, Any]:
    """Look for a solution of each lost task; writes `metrics.json`, and `solutions.parquet` if there is one.

    Of each task the first source that has one counts, in the order of `learner.lost_tasks.sources`, and of it the shortest.

    Args:
        curated: The curation stage's output: logged successes, and those that `warm_start.hindsight` relabels.
        lost: Ids of the tasks.
        own: The folders of rollouts and of their scores in which some of the tasks were solved.
        taught: Folders of `teach` for some of the tasks, after those of `warm_start.extra_demonstrations`.

    Returns:
        `lost`, how many; `sources`, that of each task with a solution.

    Raises:
        DataError: a file is missing or damaged.
        LeakError: a teacher's episode belongs to a task outside the training split.
    """
    wanted, found = set(lost), dict[str, tuple[str, Example]]()
    assert config.learner.kind != "dpo" and config.learner.lost_tasks is not None
    for source in config.learner.lost_tasks.sources:
        made = _own(own, wanted) if source == OWN else _shown(config, curated, wanted, taught if source == TEACHER else None)
        shortest: dict[str, Example] = {}
        for task_id, example in made:
            known = shortest.get(task_id)
            if known is None or len(example["input_ids"]) < len(known["input_ids"]):
                shortest[task_id] = example
        found |= {task_id: (source, example) for task_id, example in shortest.items()}
        wanted -= found.keys()
    rows = [
        {"task_id": task_id, "source": source, "forks": [], **example} for task_id, (source, example) in sorted(found.items())
    ]
    out.mkdir(parents=True, exist_ok=True)
    if rows:
        write_token_ids(rows, out / SOLUTIONS_FILE, config.policy.base)
    figures = {"lost": len(set(lost)), "sources": {row["task_id"]: row["source"] for row in rows}}
    write_json(out / "metrics.json", figures)
    return figures


def _shown(
    config: SolutionSections, curated: Path, wanted: set[str], taught: Sequence[Path] | None
) -> Iterator[tuple[str, Example]]:
    """Solutions from logs, or with `taught` those of teachers."""
    from tracewheel.policy.loading import policy_renderer

    settings = config.warm_start
    folders = () if taught is None else (*settings.extra_demonstrations, *map(str, taught))
    episodes = episodes_to_imitate(settings.model_copy(update={"extra_demonstrations": folders}), curated, "verified")
    episodes = episodes[episodes["task_id"].isin(wanted) & ((episodes["source"] == TAUGHT) == (taught is not None))]
    renderer = policy_renderer(config.policy) if len(episodes) else None
    for task_id, rows in episodes.groupby("task_id"):
        assert renderer is not None
        yield from ((str(task_id), example) for example in demonstration_examples(rows, renderer, ("multi_turn",)))


def _own(played: Sequence[tuple[Path, Path]], wanted: set[str]) -> Iterator[tuple[str, Example]]:
    """Successes of earlier policies of this loop, in the tokens that they sampled."""
    for rollouts, scores in played:
        solved = {
            score.trajectory_id for score in read_scores(scores / SCORES_FILE) if _is_solved(score) and score.task_id in wanted
        }
        if not solved:
            continue
        table: pd.DataFrame = read_table(rollouts / TRAJECTORIES_FILE)
        for row in table[table["id"].isin(solved)].to_dict("records"):
            trajectory = Trajectory.from_record({str(name): value for name, value in row.items()})
            example = {"input_ids": trajectory.token_ids, "assistant_masks": trajectory.action_mask, "forks": trajectory.forks}
            yield trajectory.task_id, example


def _is_solved(score: Score) -> bool:
    return success_of(score) == 1.0
