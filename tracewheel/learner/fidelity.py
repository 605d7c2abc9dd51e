"""How faithfully an iteration trains on what programs were told: its certificate.

`fidelity` is the smaller of two shares: of the tokens sampled for programs, those that are trained on; and of the rows (one for
each path from the first token to the last turn of a branch), those whose log-probabilities the trainer computes again as the
sampler had them. An episode that failed through another's fault than the policy's counts in neither. Turns without credit are
left out by the profile's wish, and count in neither.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tracewheel.core.forks import forks_of, rows
from tracewheel.core.types import POLICY_FAULTS, BranchReason
from tracewheel.learner.scored_trajectories import rewards_of, with_finite_logprobs, without_failed

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from tracewheel.learner.trajectory_table import TrajectoryTable

COUNTED = ("dropped.", "refused.")  # of requests: what of them was left out, and what they were refused for
MOST_COUNTED = 24  # the names are the programs', and a metric for each is kept
FIDELITY, TOKENS, ROWS = "fidelity", "fidelity_tokens", "fidelity_rows"


def token_figures(trajectories: pd.DataFrame) -> dict[str, float]:
    """The share of sampled tokens that are trained on, and what programs did with their histories.

    Args:
        trajectories: Rows of `read_scored_trajectories`, before any is left out.
    """
    whole = without_failed(trajectories)
    if "fault" in whole:
        whole = whole[whole["fault"].fillna("").isin(POLICY_FAULTS)]
    counts = np.array([sum(mask) for mask in whole["action_mask"]])
    kept = np.isfinite(rewards_of(whole)) & with_finite_logprobs(whole)
    episodes = trajectories.drop_duplicates("id")
    asked = _requests(episodes)
    sampled = int(counts.sum()) + asked["lost_tokens"]
    reasons = Counter(branch["reason"] for branches in _column(episodes, "branches") for branch in branches or [])
    return {
        TOKENS: float(counts[kept].sum()) / sampled if sampled else 1.0,
        "requests": float(asked["asked"]),
        "requests_refused": float(asked["refused"]),
        "requests_unmatched": float(asked["unmatched"]),
        "lost_tokens": float(asked["lost_tokens"]),
        **_counted(asked),
        **{f"branches_{reason}": float(reasons[reason]) for reason in get_args(BranchReason) if reason and reasons[reason]},
    }


def row_figures(table: TrajectoryTable, tolerance: float) -> dict[str, float]:
    """The share of rows whose log-probabilities the trainer computes as the sampler had them; none without a comparable row.

    Args:
        table: With `proximal`, the trainer's log-probabilities, and `current`, the tokens of the policy that is updated.
        tolerance: The most that they may differ in a row, in nats a token on average.
    """
    columns = zip(
        table.frame["logprobs"],
        table.frame["action_mask"],
        table.per_token["proximal"],
        table.per_token["current"],
        forks_of(table.frame),
        strict=True,
    )
    found = [agrees for row in columns for agrees in _rows_agree(*row, tolerance)]
    return {ROWS: sum(found) / len(found)} if found else {}


def with_fidelity(figures: dict[str, float]) -> dict[str, float]:
    """The figures with the smaller of their shares."""
    shares = [figures[name] for name in (TOKENS, ROWS) if name in figures]
    return figures | {FIDELITY: min(shares)}


def _rows_agree(logprobs: Any, mask: Any, proximal: Tensor, current: Tensor, forks: Any, tolerance: float) -> list[bool]:
    if not len(proximal):  # no action: in no pass
        return []
    stored = np.asarray(logprobs, dtype=float)
    acted = (np.asarray(mask) == 1) & (current[: len(stored)].numpy() == 1)
    gaps = np.abs(proximal[: len(stored)].double().numpy() - stored)
    found = []
    for path in rows(forks, len(stored)):
        own = gaps[path][acted[path]]
        if len(own):
            found.append(bool(own.mean() <= tolerance))  # NaN does not agree
    return found


def _counted(asked: Counter[str]) -> dict[str, float]:
    """The requests by what of them was left out or refused, under names that are a metric's, without places in lists."""
    found: Counter[str] = Counter()
    for name, count in asked.items():
        if name.startswith(COUNTED):
            found[re.sub(r"[^\w./ -]", "_", re.sub(r"\[\d*\]", "", name), flags=re.ASCII)] += count
    return {name: float(count) for name, count in sorted(found.most_common(MOST_COUNTED))}


def _requests(episodes: pd.DataFrame) -> Counter[str]:
    total: Counter[str] = Counter()
    for given in _column(episodes, "requests"):
        total.update(given or {})
    return total


def _column(episodes: pd.DataFrame, name: str) -> list[Any]:
    """An optional column that holds JSON text, None where a row has none."""
    if name not in episodes:
        return []
    return [json.loads(text) if isinstance(text, str) else None for text in episodes[name]]
