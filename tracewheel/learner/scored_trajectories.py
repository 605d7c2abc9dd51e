"""Trajectories joined with their scores: the input of an update, and its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table
from tracewheel.core.types import INFRASTRUCTURE_FAILED, canonical_json
from tracewheel.scoring.adjustments import CERTAINTY, PROCESS
from tracewheel.scoring.rubric import success_of

if TYPE_CHECKING:
    import pandas as pd


LIMITS = ("max_tokens", "max_turns")
REQUIRED, OPTIONAL = ("trajectory_id", "total"), ("family", "environment", "turn_rewards", "baseline")


def read_scored_trajectories(trajectories: Sequence[Path], scores: Sequence[Path]) -> pd.DataFrame:
    """Trajectories with the columns of their scores: `total`, and `family`, `environment`, `turn_rewards` and `baseline` where
    the files have them.

    From the breakdowns come `success` (NaN where there is none) and `outcome`: the total without process rewards. Where the
    reward of an episode is not for all of its turns, its row holds those that it is for (`learner/branch_credit.py`).

    Raises:
        DataError: a trajectory has no score or two, or a file lacks a column.
    """
    import pandas as pd

    rollouts = pd.concat([read_table(path) for path in trajectories], ignore_index=True)
    scored = pd.concat([_scores(path) for path in scores], ignore_index=True)
    doubled = scored[scored["trajectory_id"].duplicated()]
    if len(doubled):
        files = ", ".join(map(str, scores))
        raise DataError(f"{files}: trajectory {doubled.iloc[0]['trajectory_id']} has more than one score")
    lost = rollouts[~rollouts["id"].isin(scored["trajectory_id"])]
    if len(lost):
        raise DataError(f"{len(lost)} trajectories have no score, the first is {lost.iloc[0]['id']}; score them again")
    joined = rollouts.merge(scored, left_on="id", right_on="trajectory_id", how="left")
    return with_credit(joined).drop(columns=["trajectory_id", "agent_rewards"])


def rewards_of(trajectories: pd.DataFrame) -> np.ndarray:
    """The rewards [N]; NaN (never 0) where the trajectory is unscored or its total is infinite."""
    rewards = trajectories["total"].to_numpy(dtype="float64", na_value=np.nan)
    return np.where(np.isfinite(rewards), rewards, np.nan)


def without_failed(trajectories: pd.DataFrame) -> pd.DataFrame:
    """The trajectories of episodes that the infrastructure did not fail; all of them where it failed every one."""
    whole = trajectories[trajectories["stop_reason"] != INFRASTRUCTURE_FAILED]
    return whole.reset_index(drop=True) if len(whole) else trajectories


def with_finite_logprobs(trajectories: pd.DataFrame) -> np.ndarray:
    """[N] bool: whether every token that the policy sampled has a finite behaviour log-probability."""
    columns = zip(trajectories["logprobs"], trajectories["action_mask"], strict=True)
    finite = [bool(np.isfinite(np.asarray(logprobs, dtype=float)[np.asarray(mask) == 1]).all()) for logprobs, mask in columns]
    return np.array(finite, dtype=bool)


def with_certainty(trajectories: pd.DataFrame) -> pd.DataFrame:
    """The rows with their `advantages` times the certainty of their rewards: 1 unless judges that disagree are all there is."""
    if "certainty" not in trajectories or trajectories["certainty"].fillna(1.0).eq(1.0).all():
        return trajectories
    import pandas as pd

    shares = trajectories["certainty"].fillna(1.0)
    scaled = [[value * share for value in row] for row, share in zip(trajectories["advantages"], shares, strict=True)]
    return trajectories.assign(advantages=pd.Series(scaled, index=trajectories.index))


def succeeded(trajectories: pd.DataFrame) -> np.ndarray:
    """Which trajectories [N] are successes: by their breakdown, or without one by an outcome of 1."""
    totals = trajectories["total"].to_numpy(dtype="float64", na_value=np.nan)
    reached = trajectories["outcome"].to_numpy(dtype="float64") if "outcome" in trajectories else totals
    success = trajectories["success"].to_numpy(dtype="float64") if "success" in trajectories else np.full(len(totals), np.nan)
    return np.where(np.isnan(success), reached >= 1.0, success >= 1.0)


def truncated(trajectories: pd.DataFrame) -> np.ndarray:
    """[N] bool: whether the episode ended because it reached a limit of tokens or turns."""
    ended: np.ndarray = trajectories["stop_reason"].isin(LIMITS).to_numpy()
    return ended


def describe(trajectories: pd.DataFrame) -> dict[str, float]:
    """Figures of trajectories before the learner leaves any out.

    The shares of unscored and masked ones are of all; lengths and `truncated_share` of those that the infrastructure did
    not fail, because a failed episode ends where the machine broke; `reward` of the scored ones.
    """
    totals = trajectories["total"].to_numpy(dtype="float64", na_value=np.nan)
    whole = without_failed(trajectories)
    figures = {
        "unscored_share": float(np.isnan(totals).mean()),
        "masked_share": float((~np.isfinite(totals)).mean()),
        "generated_tokens": float(whole["action_mask"].map(sum).mean()),
        "trajectory_tokens": float(whole["token_ids"].map(len).mean()),
        "truncated_share": float(truncated(whole).mean()),
    }
    if np.isfinite(totals).any():
        figures["reward"] = float(totals[np.isfinite(totals)].mean())
    return figures


def _scores(path: Path) -> pd.DataFrame:
    import pandas as pd

    table = read_table(path)
    missing = [name for name in REQUIRED if name not in table]
    if missing:
        raise DataError(f"{path}: has no column {missing[0]}; expected the output of `tracewheel stage score`")
    kept = table[[name for name in REQUIRED + OPTIONAL if name in table]]
    breakdowns = [json.loads(text) for text in table["breakdown"]] if "breakdown" in table else [{}] * len(table)
    if any(CERTAINTY in parts for parts in breakdowns):
        kept = kept.assign(certainty=[float(parts.get(CERTAINTY, 1.0)) for parts in breakdowns])
    process = np.array([parts.get(PROCESS, 0.0) for parts in breakdowns], dtype="float64")
    return kept.assign(
        agent_rewards=pd.Series([agent_rewards(parts) for parts in breakdowns], index=table.index, dtype=object),
        success=[success_of(parts) for parts in breakdowns],
        outcome=table["total"].to_numpy(dtype="float64", na_value=np.nan) - process,
    )


AGENT_PART = "agent."


def agent_rewards(breakdown: Mapping[str, float]) -> dict[str, float]:
    """The rewards that a verifier gave to single agents, as parts `agent.<name>`."""
    found = {name: name.rpartition(f".{AGENT_PART}")[2] for name in breakdown if f".{AGENT_PART}" in name}
    return {agent: breakdown[name] for name, agent in found.items()}


def with_credit(trajectories: pd.DataFrame) -> pd.DataFrame:
    """The rows that are trained on: as they are where no turn says whom its reward is for.

    Args:
        trajectories: Rows of `Trajectory.to_record` with `total`, and perhaps `turn_rewards` and `agent_rewards`.
    """
    import pandas as pd

    if not trajectories["turns"].map(lambda turns: '"credit"' in turns).any():
        return trajectories
    rows = [
        row for given in trajectories.to_dict("records") for row in _rows({str(name): value for name, value in given.items()})
    ]
    return pd.DataFrame(rows, columns=trajectories.columns).astype(trajectories.dtypes.to_dict())


def _rows(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    turns = json.loads(row["turns"])
    credits = [turn.get("credit") for turn in turns]
    agents = sorted({credit for credit in credits if credit != ""}, key=str)
    if agents in ([], [None]) and "" not in credits:
        yield row
        return
    for agent in agents or [None]:
        own = [number for number, credit in enumerate(credits) if credit == agent]
        given = row.get("agent_rewards") or {}
        yield {
            **row,
            **_masked(row, [turns[number] for number in own]),
            "group": row["group"] if agent is None else canonical_json([row["group"], agent]),
            "total": given.get(agent, row["total"]),
            **_turn_rewards(row, own),
        }


def _masked(row: Mapping[str, Any], turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The row with these turns alone as the policy's."""
    kept = np.zeros(len(row["token_ids"]), dtype=bool)
    for turn in turns:
        kept[turn["start"] : turn["end"]] = True
    mask = np.where(kept, np.asarray(row["action_mask"]), 0)
    logprobs = np.where(mask == 1, np.asarray(row["logprobs"], dtype=float), 0.0)
    return {"turns": canonical_json(turns), "action_mask": mask.tolist(), "logprobs": logprobs.tolist()}


def _turn_rewards(row: Mapping[str, Any], own: list[int]) -> dict[str, Any]:
    given = row.get("turn_rewards")
    if given is None or isinstance(given, float):
        return {}
    return {"turn_rewards": [given[number] for number in own]}
