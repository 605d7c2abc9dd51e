"""Whom an episode's reward is for, where its program's histories parted (`rollout.harness.credit`).

Turns without credit are context: they are not trained on. Turns that have the credit of an agent are a row of their own, in a
group of their own: an agent is compared with itself in the other episodes of the task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tracewheel.core.types import canonical_json

if TYPE_CHECKING:
    import pandas as pd

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
