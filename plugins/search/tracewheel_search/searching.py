"""Tree search over the turns of many tasks, within a budget of sampled tokens.

The search goes in waves. A wave is one simulation of each task whose tree is still open, played together. Each wave is a folder
of its own, written as a whole: a search that was killed goes on with the first missing wave, and ends with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracewheel import (
    Count,
    DataError,
    Positive,
    RetrainConfig,
    RolloutSections,
    Score,
    ScoreSections,
    Strict,
    Task,
    Trajectory,
    content_hash,
    produce_whole,
    read_json,
    read_records,
    read_scores,
    score,
    success_of,
    write_json,
    write_records,
)
from tracewheel_search.continuing import Branch, Player, branch_seed, check_scored, new_tokens, sampled_turns, within
from tracewheel_search.tree import Node, Tree

WAVES, ABOUT_FILE = "waves", "search.json"
TRAJECTORIES, SCORES = "trajectories.parquet", "scores.parquet"
Critic = Callable[[Sequence[Trajectory]], list[float]]


class SearchSettings(Strict):
    """How a search spends its tokens.

    `budget` is the most that the policy may sample, over all tasks. `width` turns are sampled at a node before one of its
    children is chosen by UCB1 with the weight `exploration`. `simulations` bounds those of a task. `critic` is the digest of
    the process model that values turns, "" without one.
    """

    budget: Count
    width: Count = 4
    exploration: Positive = 1.0
    simulations: Count = 1000
    seed: int = 0
    critic: str = ""


class Search:
    """The trees of some tasks.

    Args:
        config: The profile.
        player: Plays with the policy that searches.
        tasks: The tasks.
        settings: How.
        out: A folder, perhaps of a search that was killed.
        critic: Values states at the end of a turn, from 0 to 1; each simulation then samples one turn. None: verified success
            at the end of each episode.

    Raises:
        DataError: the folder holds another search.
    """

    def __init__(
        self,
        config: RetrainConfig,
        player: Player,
        tasks: Sequence[Task],
        settings: SearchSettings,
        out: Path,
        critic: Critic | None = None,
    ) -> None:
        self._config, self._player, self._settings, self._out, self._critic = config, player, settings, out, critic
        self._tasks = {task.id: task for task in tasks}
        self.trees = {task.id: Tree(settings.width, settings.exploration) for task in tasks}
        self.trajectories: dict[str, Trajectory] = {}
        self.tokens = 0
        self.simulations = dict.fromkeys(self._tasks, 0)
        self._waves, self._unscored = 0, list[str]()
        self._claim(out)

    def _claim(self, out: Path) -> None:
        sections = [kind.of(self._config).model_dump(mode="json") for kind in (RolloutSections, ScoreSections)]
        tasks = sorted((task.to_record() for task in self._tasks.values()), key=lambda record: record["id"])
        about = {"settings": self._settings.model_dump(mode="json"), "tasks": content_hash(tasks)}
        about |= {"profile": content_hash(sections), "policy": self._player.policy}
        file = out / ABOUT_FILE
        if file.is_file():
            if read_json(file) != about:
                raise DataError(
                    f"{file}: is of a search with another profile, other settings, tasks or policy; give another folder"
                )
            return
        (out / WAVES).mkdir(parents=True, exist_ok=True)
        write_json(file, about)

    def run(self, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Search until the budget is spent or every tree is sampled out; returns the figures.

        `progress` is told the tokens sampled and the budget after each wave.

        Raises:
            DataError: most simulations have no score, or the world answered otherwise than before.
        """
        while planned := self._plan():
            self._wave(planned)
            if progress:
                progress(self.tokens, self._settings.budget)
        check_scored(self._unscored, sum(self.simulations.values()))
        return self.figures()

    def _plan(self) -> list[tuple[Node, Branch]]:
        planned = []
        for name, task in self._tasks.items():
            number = self.simulations[name]
            if number < self._settings.simulations and (node := self.trees[name].select()) is not None:
                parent = self.trajectories[node.source] if node.source else None
                seed = branch_seed(self._settings.seed, task, number)
                planned.append((node, Branch(task, number, seed, parent, node.depth)))
        most = [self._player.most_tokens(branch, self._turns) for _, branch in planned]
        return planned[: within(self._settings.budget - self.tokens, most)]

    @property
    def _turns(self) -> int | None:
        return None if self._critic is None else 1

    def _wave(self, planned: list[tuple[Node, Branch]]) -> None:
        self._waves += 1
        folder = self._out / WAVES / f"{self._waves:05d}"
        branches = [branch for _, branch in planned]
        if not folder.is_dir():
            produce_whole(folder, lambda out: self._play(branches, out))
        played = read_records(folder / TRAJECTORIES, Trajectory)
        scores = read_scores(folder / SCORES)
        if [(each.task_id, each.seed) for each in played] != [(branch.task.id, branch.seed) for branch in branches]:
            raise DataError(f"{folder}: holds other episodes than this search would play next; give another folder")
        values = self._values(played, scores)
        for (node, branch), trajectory, value in zip(planned, played, values, strict=True):
            self.trajectories[trajectory.id] = trajectory
            self.tokens += new_tokens(branch, trajectory)
            self.simulations[branch.task.id] += 1
            turns = [turn.token_ids for turn in sampled_turns(trajectory)[branch.kept :]]
            self.trees[branch.task.id].add(node, turns, value, trajectory.id, ended=not self._is_left(trajectory))

    def _play(self, branches: list[Branch], out: Path) -> None:
        played = self._player.play(branches, self._turns)
        write_records(out / TRAJECTORIES, played, Trajectory)
        score(ScoreSections.of(self._config), list(self._tasks.values()), out / TRAJECTORIES, out)

    def _is_left(self, trajectory: Trajectory) -> bool:
        return self._critic is not None and self._player.was_left(trajectory)

    def _values(self, played: list[Trajectory], scores: list[Score]) -> list[float | None]:
        """Verified success of those that ended, the critic's value of those that were left; None where there is no score."""
        found: list[float | None] = [success_of(item) if item.total is not None else None for item in scores]
        if self._critic is not None:
            left = [number for number, trajectory in enumerate(played) if self._is_left(trajectory)]
            for number, value in zip(left, self._critic([played[number] for number in left]), strict=True):
                found[number] = value
        self._unscored += [item.detail for item, value in zip(scores, found, strict=True) if value is None]
        return found

    def figures(self) -> dict[str, Any]:
        """What was sampled and found."""
        roots = [tree.root for tree in self.trees.values() if tree.root.visits]
        return {
            "tasks": len(self._tasks),
            "simulations": sum(self.simulations.values()),
            "sampled_tokens": self.tokens,
            "budget": self._settings.budget,
            "waves": self._waves,
            "unscored": len(self._unscored),
            "nodes": sum(1 for tree in self.trees.values() for _ in tree.nodes()),
            "mean_value": sum(root.value for root in roots) / len(roots) if roots else None,
            "solved": sum(_is_solved(root) for root in roots),
        }


def _is_solved(root: Node) -> bool:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.ended and node.value >= 1.0:
            return True
        waiting += node.children.values()
    return False


def tree_of_group(trajectories: Sequence[Trajectory], values: Sequence[float | None]) -> Tree:
    """The tree of a group's trajectories, which an earlier rollout sampled, each with what it is worth."""
    tree = Tree(1, 1.0)
    for trajectory, value in zip(trajectories, values, strict=True):
        tree.add(tree.root, [turn.token_ids for turn in sampled_turns(trajectory)], value, trajectory.id)
    return tree
