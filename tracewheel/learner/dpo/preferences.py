"""Preference pairs from scored trajectories: two continuations of the same tokens, the better one preferred.

A pair is cut where its token ids diverge: the common part is the prompt, the rest is compared. Ids stay as sampled;
nothing is decoded and tokenised again.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracewheel.core.errors import DataError
from tracewheel.core.forks import check_forks, forks_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Continuation:
    """One continuation of a pair's prompt, of T tokens: ids [T], and mask [T], 1 where the policy sampled the token.

    `row` is the trajectory's position in the table it came from. `forks` are the trajectory's, in its flat order: the
    prompt's tokens come first (`core/forks.py`).
    """

    token_ids: list[int]
    action_mask: list[int]
    row: int
    forks: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class Pair:
    """Two continuations of the same prompt; `chosen` earned `margin` more.

    Invariant: the policy sampled the first token of both, and these tokens differ.
    """

    group: str
    prompt_ids: list[int]
    chosen: Continuation
    rejected: Continuation
    margin: float


@dataclass(frozen=True)
class _Scored:
    row: int
    token_ids: tuple[int, ...]
    action_mask: tuple[int, ...]
    forks: list[list[int]]
    reward: float


def preference_pairs(trajectories: pd.DataFrame, *, per_group: int, margin: float, rng: random.Random) -> list[Pair]:
    """Pair better with worse trajectories of each group.

    Trajectories without a finite reward are left out, and of equal token sequences only one counts: a repeated
    pair adds weight but no information. Within a group, pairs of the least used trajectories come first, then
    wider margins, then chance decides. Two trajectories make no pair if one is a prefix of the other, or if they
    diverge at a token that the policy did not sample, or at a fork of one of them: then the environment or the chat template
    made the difference.

    Args:
        trajectories: Rows (token_ids, action_mask, group, and forks where there are any) with their reward in `total`.
        per_group: The most pairs of a group.
        margin: The least difference of the two rewards, above 0.
        rng: Breaks ties; the same state gives the same pairs.

    Raises:
        DataError: a trajectory's columns differ in length, or its forks are no tree.
    """
    pairs = []
    scored = _scored(trajectories)
    for group in sorted(scored):
        candidates = [
            pair
            for better, worse in itertools.permutations(scored[group], 2)
            if better.reward - worse.reward >= margin and (pair := _pair(group, better, worse))
        ]
        pairs += _choose(candidates, per_group, rng)
    return pairs


def _scored(trajectories: pd.DataFrame) -> dict[str, list[_Scored]]:
    """The scored trajectories of each group, one for each distinct token sequence."""
    groups: dict[str, dict[tuple[tuple[int, ...], str], _Scored]] = {}
    named = (trajectories[name] for name in ("group", "token_ids", "action_mask", "total"))
    for row, (group, ids, mask, total, forks) in enumerate(zip(*named, forks_of(trajectories), strict=True)):
        if len(ids) != len(mask):
            raise DataError(f"trajectory in row {row}: token_ids and action_mask have {len(ids)} and {len(mask)} entries")
        if total is None or not math.isfinite(total):
            continue
        tokens = tuple(map(int, ids))
        check_forks(forks, len(tokens))
        scored = _Scored(row, tokens, tuple(map(int, mask)), forks, float(total))
        groups.setdefault(str(group), {}).setdefault((tokens, str(forks)), scored)
    return {group: list(by_tokens.values()) for group, by_tokens in groups.items()}


def _pair(group: str, better: _Scored, worse: _Scored) -> Pair | None:
    cut = divergence(better.token_ids, worse.token_ids)
    if cut == min(len(better.token_ids), len(worse.token_ids)) or not (better.action_mask[cut] and worse.action_mask[cut]):
        return None
    if [fork for fork in better.forks if fork[0] <= cut] != [fork for fork in worse.forks if fork[0] <= cut]:
        return None
    chosen, rejected = (
        Continuation(list(side.token_ids[cut:]), list(side.action_mask[cut:]), side.row, side.forks) for side in (better, worse)
    )
    return Pair(group, list(better.token_ids[:cut]), chosen, rejected, better.reward - worse.reward)


def divergence(one: Sequence[int], other: Sequence[int]) -> int:
    """The first position at which two sequences differ, or the length of the shorter one."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _choose(candidates: list[Pair], limit: int, rng: random.Random) -> list[Pair]:
    rng.shuffle(candidates)
    used: Counter[int] = Counter()
    chosen: list[Pair] = []
    while candidates and len(chosen) < limit:
        best = min(candidates, key=lambda pair: (used[pair.chosen.row] + used[pair.rejected.row], -pair.margin))
        candidates.remove(best)
        used.update((best.chosen.row, best.rejected.row))
        chosen.append(best)
    return chosen
