"""Options and steps that the commands of this wheel have in common."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel import profile_of, profile_options, profile_words

if TYPE_CHECKING:
    from tracewheel import PolicyRef, RetrainConfig, Score, Task, Trajectory


def count(text: str) -> int:
    """An option's whole number from 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"{text} is no whole number from 1")
    return int(text)


def positive(text: str) -> float:
    """An option's number above 0."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.0 < found < float("inf"):
        raise ArgumentTypeError(f"{text} is no number above 0")
    return found


def add_profile(parser: ArgumentParser) -> None:
    """The profile and the policy."""
    profile_options(parser)
    parser.add_argument("--state", required=True, metavar="DIR", help="the policy: output of warm-start or an update")


def add_curated(parser: ArgumentParser) -> None:
    """The curated tasks."""
    parser.add_argument("--curated", required=True, metavar="DIR", help="output of curate")


def add_budget(parser: ArgumentParser) -> None:
    """The budget of sampled tokens."""
    parser.add_argument("--budget", type=count, required=True, metavar="N", help="the most tokens that the policy may sample")


def add_episodes(parser: ArgumentParser) -> None:
    """Scored episodes of curated tasks."""
    add_curated(parser)
    parser.add_argument("--trajectories", required=True, metavar="FILE", help="trajectories.parquet of a rollout")
    parser.add_argument("--scores", required=True, metavar="FILE", help="its scores.parquet")


def add_schedule(parser: ArgumentParser, name: str, meaning: str) -> None:
    """A value that goes in a line from its first iteration's to its last one's."""
    parser.add_argument(f"--{name}", type=float, required=True, metavar="X", help=f"{meaning}; of the first iteration")
    parser.add_argument(
        f"--{name}-end", type=float, default=0.0, metavar="X", help="of iteration --over and all later ones (default: 0)"
    )
    parser.add_argument("--over", type=count, default=20, metavar="N", help="see above (default: 20)")
    parser.add_argument("--iteration", type=count, default=1, metavar="N", help="number of this iteration (default: 1)")


def update_on(options: Namespace, trajectories: str, scores: str, settings: str = "") -> str:
    """The command that updates the policy on some episodes."""
    files = f"--curated {options.curated} --trajectories {trajectories} --scores {scores}{settings}"
    return f"tracewheel stage update {profile_words(options)} {files} --state {options.state} --reference DIR --out DIR"


def profile_and_policy(options: Namespace) -> tuple[RetrainConfig, PolicyRef]:
    """The profile with its changes, and the policy; the libraries are quiet from now on.

    Raises:
        ConfigError: the profile is invalid.
        DataError: the folder holds no policy.
    """
    config = profile_of(options, "policy.base")
    from tracewheel import folder_of, policy_of

    return config, policy_of(folder_of(options.state, "--state"), config.policy.base)


def training_tasks(options: Namespace) -> list[Task]:
    """The tasks of training; validation and held-out tasks are never searched."""
    from tracewheel import curated_folder, load_tasks

    return load_tasks(curated_folder(options), "train")


def as_played(tasks: list[Task], trajectories: Path) -> dict[str, Task]:
    """Tasks by id, as the rollout played them that wrote a file: in training an environment may have other arguments."""
    return {task.id: task for task in [*tasks, *variants_of(trajectories)]}


def variants_of(trajectories: Path) -> list[Task]:
    """The tasks beside a file of trajectories, which curation did not make."""
    from tracewheel import Task, read_records
    from tracewheel_search.pairs import VARIANTS

    variants = trajectories.with_name(VARIANTS)
    return read_records(variants, Task) if variants.is_file() else []


def episodes(options: Namespace) -> tuple[list[Trajectory], list[Score]]:
    """The trajectories that were named with their scores; see `episodes_of`."""
    from tracewheel import curated_folder

    return episodes_of(curated_folder(options), Path(options.trajectories), Path(options.scores))


def episodes_of(curated: Path, trajectories: Path, scores: Path) -> tuple[list[Trajectory], list[Score]]:
    """Trajectories with their scores, in the trajectories' order.

    Raises:
        DataError: a file cannot be read, or they do not belong together.
        LeakError: an episode is of no training task.
    """
    from tracewheel import DataError, Trajectory, check_training, read_records, read_scores

    check_training(curated, trajectories)
    found = read_records(trajectories, Trajectory)
    by_id = {item.trajectory_id: item for item in read_scores(scores)}
    lost = [each.id for each in found if each.id not in by_id]
    if lost:
        raise DataError(f"{scores}: has no score of {len(lost)} trajectories, the first is {lost[0]}")
    return found, [by_id[each.id] for each in found]
