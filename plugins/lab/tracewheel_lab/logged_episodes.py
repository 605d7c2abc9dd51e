"""What a policy would score on logged traffic: stored trajectories with their scores, or ingested traces with tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracewheel import DataError, InputError, PolicyRef, RetrainConfig, read_table, rescored
from tracewheel_lab.off_policy import Estimate, Limits, LoggedEpisodes, preview

if TYPE_CHECKING:
    import pandas as pd

TRACES_FOLDER = "traces.parquet"  # in the output of ingest
UNSCORED, NO_TOKENS, NOT_FINITE = "unscored", "no sampled tokens with log-probabilities", "log-probabilities are not finite"
# Episodes that are of the policy's traffic, and may be of another kind than those that can be used.
UNKNOWN = (UNSCORED, NO_TOKENS, NOT_FINITE)
NEEDED = ("id", "token_ids", "logprobs", "action_mask", "turns", "stop_reason", "temperature", "task_id")


@dataclass(frozen=True)
class PreviewPlan:
    """What to preview, and how.

    Attributes:
        policy: The challenger.
        temperature: At which it will be sampled; None: as the episodes were.
        limits: When to refuse.
    """

    policy: PolicyRef
    temperature: float | None
    limits: Limits


def preview_policy(config: RetrainConfig, episodes: pd.DataFrame, plan: PreviewPlan) -> dict[str, Any]:
    """Estimate a challenger's mean reward on traffic like the episodes'.

    Args:
        config: How policies are loaded, and how the episodes were sampled.
        episodes: Rows of `read_scored_trajectories` or `episodes_of_traces`.
        plan: The challenger and the limits.

    Returns:
        The figures of `off_policy.Preview`, with `episodes` and `tasks` that were used and those `left_out` by reason.

    Raises:
        AdapterMismatchError: the adapter belongs to another base.
        DataError: no episode can be used.
        InputError: episodes were sampled with top-p, whose log-probabilities are not stored.
    """
    if config.rollout.top_p < 1.0:
        raise InputError(
            f"rollout.top_p is {config.rollout.top_p:g}: log-probabilities are stored before top-p, so no weight can be "
            "made of them; estimate from episodes that were sampled with top_p 1, and preview them with a profile that says so"
        )
    if missing := [name for name in NEEDED if name not in episodes]:
        raise DataError(f"the episodes have no column {missing[0]}; give trajectories of `tracewheel stage rollout`")
    usable = usable_episodes(episodes)
    if not len(usable.frame):
        reasons = ", ".join(f"{count} {reason}" for reason, count in usable.left_out.items()) or "there are none"
        raise DataError(f"no episode can be used: {reasons}")
    scored = rescored(config.policy, plan.policy, usable.frame, temperature=plan.temperature)
    unknown = sum(usable.left_out.get(reason, 0) for reason in UNKNOWN)
    found = preview(logged_episodes(usable.frame, scored, missing=unknown), plan.limits)
    return {
        "logged": found.logged,
        "estimates": {name: _as_json(estimate) for name, estimate in found.estimates.items()},
        "episodes": len(usable.frame),
        "tasks": int(usable.frame["task_id"].nunique()),
        "left_out": usable.left_out,
        "effective": found.effective,
        "effective_tasks": found.effective_tasks,
        "largest_share": found.largest_share,
        "mean_weight": found.mean_weight if math.isfinite(found.mean_weight) else None,
        "missing": found.missing,
        "unseen": found.unseen,
        "refusal": found.refusal,
    }


@dataclass(frozen=True)
class Usable:
    """The episodes that an estimate can use, and how many of the others there are, by reason."""

    frame: pd.DataFrame
    left_out: dict[str, int]


def usable_episodes(trajectories: pd.DataFrame) -> Usable:
    """Leave out what no importance weight fits.

    Args:
        trajectories: Rows of `Trajectory.to_record`, with `total`.
    """
    turns = trajectories["turns"].map(_turns)
    reasons = {
        "the infrastructure failed": trajectories["stop_reason"].eq("infrastructure_failed").to_numpy(),
        UNSCORED: np.isnan(_rewards(trajectories)),
        NO_TOKENS: ~trajectories["action_mask"].map(any).to_numpy(bool),
        "tokens chosen by exploration": turns.map(lambda own: any(turn.get("forced") for turn in own)).to_numpy(bool),
        NOT_FINITE: ~_acted_finitely(trajectories),
    }
    left = np.ones(len(trajectories), dtype=bool)
    counts = {}
    for reason, found in reasons.items():
        counts[reason] = int((found & left).sum())
        left &= ~found
    return Usable(trajectories[left].reset_index(drop=True), {reason: count for reason, count in counts.items() if count})


def logged_episodes(
    trajectories: pd.DataFrame, logprobs: Sequence[np.ndarray], *, with_turn_rewards: bool = True, missing: int = 0
) -> LoggedEpisodes:
    """The input of `off_policy.preview`.

    Args:
        trajectories: Of `usable_episodes`.
        logprobs: The challenger's log-probabilities [T_i] of each row's tokens, of `rescored`.
        with_turn_rewards: Whether rewards of turns are used, where every row has them.
        missing: Further episodes of the log that are not usable.
    """
    turns = [_turns(row) for row in trajectories["turns"]]
    ratios = []
    for own, fresh, stored, mask in zip(turns, logprobs, trajectories["logprobs"], trajectories["action_mask"], strict=True):
        acted = np.asarray(mask, dtype=bool)
        difference = np.where(acted, fresh - np.asarray(stored, dtype=np.float64), 0.0)
        ratios.append(np.array([difference[turn["start"] : turn["end"]].sum() for turn in own]))
    rewards = _rewards(trajectories)
    return LoggedEpisodes(
        ratios,
        rewards,
        trajectories["task_id"].to_numpy(str),
        trajectories["family"].fillna("").to_numpy(str) if "family" in trajectories else np.full(len(rewards), ""),
        _turn_rewards(trajectories, turns, rewards) if with_turn_rewards else None,
        _users(trajectories),
        missing,
    )


def episodes_of_traces(paths: Sequence[Path]) -> pd.DataFrame:
    """Ingested traces with tokens, as rows of trajectories with the logged outcome as `total`.

    A turn is a stretch of sampled tokens. The task is the log's name of it, or the trace itself. A trace without tokens or
    log-probabilities is a row without tokens, so that it is counted; redaction drops the tokens of what it changes.

    Raises:
        DataError: a file is no table of traces, or none of them has tokens.
    """
    import pandas as pd

    rows = [_row(path, record) for path in paths for record in read_table(path).to_dict("records")]
    if not any(row["token_ids"] for row in rows):
        raise DataError(
            f"{', '.join(map(str, paths))}: no trace has tokens with log-probabilities; `tracewheel serve` logs them, and "
            "`tracewheel ingest` keeps them where redaction changes nothing"
        )
    return pd.DataFrame(rows)


def _users(trajectories: pd.DataFrame) -> np.ndarray | None:
    """[N]: the user of each episode, or its task where the log names none; None where it never does."""
    if "user" not in trajectories or not trajectories["user"].notna().any():
        return None
    return (
        ("user " + trajectories["user"].astype(str)).where(trajectories["user"].notna(), trajectories["task_id"]).to_numpy(str)
    )


def _turn_rewards(
    trajectories: pd.DataFrame, turns: list[list[dict[str, Any]]], rewards: np.ndarray
) -> list[np.ndarray] | None:
    """The rewards of each episode's turns; what they lack of its reward (penalties) falls to the last. None unless all have."""
    if "turn_rewards" not in trajectories:
        return None
    given = []
    for own, found, reward in zip(turns, trajectories["turn_rewards"], rewards, strict=True):
        if found is None or not hasattr(found, "__len__") or len(found) != len(own):
            return None
        values = np.asarray(found, dtype=np.float64).copy()
        values[-1] += reward - values.sum()
        given.append(values)
    return given


def _turns(stored: Any) -> list[dict[str, Any]]:
    return list(json.loads(stored)) if isinstance(stored, str) else list(stored)


def _row(path: Path, record: Mapping[Any, Any]) -> dict[str, Any]:
    try:
        tokens, info = json.loads(record["tokens"]), json.loads(record["info"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a table of traces ({error}); give the output of `tracewheel ingest`") from error
    if not tokens or tokens.get("logprobs") is None or tokens.get("action_mask") is None:
        tokens = {"token_ids": [], "action_mask": [], "logprobs": []}
    outcome = record.get("outcome")
    return {
        "id": record["id"],
        "token_ids": tokens["token_ids"],
        "action_mask": tokens["action_mask"],
        "logprobs": tokens["logprobs"],
        "forks": json.dumps(info.get("forks") or []),
        "grammars": json.dumps(info.get("grammars") or {}),
        "turns": json.dumps(info["turns"]) if info.get("grammars") else _stretches(tokens["action_mask"]),
        "stop_reason": info.get("stop_reason", "finished"),
        "temperature": float(info.get("temperature", 1.0)),
        "task_id": record.get("task") if isinstance(record.get("task"), str) else record["id"],
        "family": "",
        "user": record.get("user"),
        "total": math.nan if outcome is None else float(outcome),
    }


def _stretches(mask: list[int]) -> list[dict[str, int]]:
    """Start and end of each stretch of sampled tokens."""
    edges = np.flatnonzero(np.diff([0, *mask, 0]))
    return [{"start": int(start), "end": int(end)} for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _as_json(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": estimate.value,
        "interval": _finite(estimate.interval),
        "gain": estimate.gain,
        "gain_interval": _finite(estimate.gain_interval),
    }


def _finite(interval: tuple[float, float]) -> list[float | None]:
    return [end if math.isfinite(end) else None for end in interval]


def _rewards(trajectories: pd.DataFrame) -> np.ndarray:
    """[N]; NaN where the trajectory is unscored or its total is infinite."""
    totals = trajectories["total"].to_numpy(dtype="float64", na_value=np.nan)
    return np.where(np.isfinite(totals), totals, np.nan)


def _acted_finitely(trajectories: pd.DataFrame) -> np.ndarray:
    """[N] bool: whether each token that was sampled has a finite log-probability."""
    columns = zip(trajectories["logprobs"], trajectories["action_mask"], strict=True)
    return np.array([all(math.isfinite(lp) for lp, own in zip(*row, strict=True) if own) for row in columns], dtype=bool)
