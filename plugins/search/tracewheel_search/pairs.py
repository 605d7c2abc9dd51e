"""Preference pairs between turns that follow the same tokens, in the files that the learner `dpo` reads.

A pair is two siblings of a tree whose values differ by a margin (step-level preferences, as in Putta et al. 2024, "Agent Q",
arXiv:2408.07199). Each pair is a group of its own with two rows, which end with the turns compared: the learner cuts them
where their tokens part, so the loss is on these two turns alone. `total` is the preference, 1 and 0; the values stand in the
breakdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tracewheel import Count, Positive, Score, Strict, Trajectory, content_hash, write_json, write_records
from tracewheel_search.tree import Node, Tree

TRAJECTORIES, SCORES, VARIANTS = "trajectories.parquet", "scores.parquet", "variants.parquet"


class PairSettings(Strict):
    """Which siblings make a pair: values that differ by `margin`, from `visits` simulations each or more; one pair a node."""

    margin: Positive = 0.25
    visits: Count = 2
    per_task: Count = 8


@dataclass(frozen=True)
class NodePair:
    """Two children of one node; `chosen` is worth `margin` more."""

    chosen: Node
    rejected: Node

    @property
    def margin(self) -> float:
        return self.chosen.value - self.rejected.value


def node_pairs(tree: Tree, settings: PairSettings) -> list[NodePair]:
    """The pairs of a tree, one a node at most, the widest margins first."""
    found = []
    for node in tree.nodes():
        tried = [child for child in node.children.values() if child.visits >= settings.visits]
        if len(tried) < 2:
            continue
        pair = NodePair(max(tried, key=lambda child: child.value), min(tried, key=lambda child: child.value))
        if pair.margin >= settings.margin and _parts_in_a_turn(pair):
            found.append(pair)
    return sorted(found, key=lambda pair: -pair.margin)[: settings.per_task]


def _parts_in_a_turn(pair: NodePair) -> bool:
    """Whether neither turn is the beginning of the other, as one that a limit cut off may be: then nothing is compared."""
    (one, other) = (_ids(node) for node in (pair.chosen, pair.rejected))
    length = min(len(one), len(other))
    return one[:length] != other[:length]


def _ids(node: Node) -> tuple[int, ...]:
    assert node.parent is not None
    return next(ids for ids, child in node.parent.children.items() if child is node)


def write_pairs(
    out: Path, trees: Mapping[str, Tree], trajectories: Mapping[str, Trajectory], settings: PairSettings
) -> dict[str, Any]:
    """Write `trajectories.parquet`, `scores.parquet` and `metrics.json` for `learner.kind: dpo`.

    Args:
        out: The folder.
        trees: By task.
        trajectories: Those of the trees, by id.
        settings: Which pairs.

    Returns:
        The figures: pairs, tasks with a pair, and the means of margin and depth.
    """
    rows: list[Trajectory] = []
    scores: list[Score] = []
    pairs = [(name, pair) for name, tree in trees.items() for pair in node_pairs(tree, settings)]
    for name, pair in pairs:
        sides = [(cut(trajectories[node.source], node.depth), node) for node in (pair.chosen, pair.rejected)]
        group = content_hash([name, *(trajectory.id for trajectory, _ in sides)])
        for total, (trajectory, node) in zip((1.0, 0.0), sides, strict=True):
            row = replace(trajectory, id=content_hash([group, trajectory.id]), group=group)
            rows.append(row)
            parts = {"value": node.value, "visits": float(node.visits)}
            scores.append(Score(row.id, name, group, "scored", total, parts))
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / TRAJECTORIES, rows, Trajectory)
    write_records(out / SCORES, scores, Score)
    figures = {
        "pairs": len(pairs),
        "tasks_with_pairs": len({name for name, _ in pairs}),
        "margin": _mean([pair.margin for _, pair in pairs]),
        "turn": _mean([float(pair.chosen.depth) for _, pair in pairs]),
    }
    write_json(out / "metrics.json", figures)
    return figures


def cut(trajectory: Trajectory, turns: int) -> Trajectory:
    """A trajectory that ends with one of its turns, before anything answers it; its final state is that of the whole."""
    kept = trajectory.turns[:turns]
    end = kept[-1]["end"]
    said = [place for place, message in enumerate(trajectory.messages) if message["role"] == "assistant"]
    last = said[len(said) - len(trajectory.turns) + turns - 1]
    return replace(
        trajectory,
        token_ids=trajectory.token_ids[:end],
        action_mask=trajectory.action_mask[:end],
        logprobs=trajectory.logprobs[:end],
        turns=kept,
        messages=trajectory.messages[: last + 1],
        forks=[fork for fork in trajectory.forks if fork[0] < end],
        detail=f"the first {turns} of {len(trajectory.turns)} turns",
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
