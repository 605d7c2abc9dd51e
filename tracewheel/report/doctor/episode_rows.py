"""The fields of each episode that the checks need, in one row small enough to keep for a whole run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tracewheel.core.types import content_hash
from tracewheel.environments.recorded.environment import unrecorded_tools
from tracewheel.scoring.adjustments import PROCESS, verifier_marks
from tracewheel.scoring.flaws import LEAST_STEP, steps_of
from tracewheel.scoring.rubric import success_of

if TYPE_CHECKING:
    import pandas as pd

GRADER = "grader "
FLAGGED = ".flagged"
SUSPECTED = "Suspected"  # the error of a judge, in the detail of an episode that only a person can judge
# Stop reasons after which the last token is the end-of-turn token.
ENDED_BY_ITSELF = ("finished", "no_tool_call", "max_turns")
PHRASE = 4
LEAST_PHRASES = 24


def episode_rows(
    trajectories: pd.DataFrame, scores: pd.DataFrame, tools: Collection[str] | None, iteration: int, *, recorded: bool = False
) -> pd.DataFrame:
    """One row per episode of an iteration.

    Args:
        trajectories: Rows of `Trajectory.to_record`.
        scores: Rows of `Score.to_record`; an episode without a score counts as unscored.
        tools: Names of the offered tools; None where they are unknown.
        iteration: Number of the iteration.
        recorded: Whether the environment is a recorded one.

    Returns:
        A table with `iteration`, `id`, `task_id`, `group`, `stop_reason`, the columns of `_marks`, `_tokens` and `steps_of`,
        for a recorded environment `unrecorded`: the tools of the calls that no log answers, and where the episode ran code
        `findings`: the names of what the sandbox found, apart by spaces.
    """
    import pandas as pd

    by_id: dict[str, Any] = {row["trajectory_id"]: row for row in scores.to_dict("records")}
    end_of_turn = _end_of_turn(trajectories)
    rows = []
    for row in cast("list[dict[str, Any]]", trajectories.to_dict("records")):
        turns = json.loads(row["turns"])
        rows.append(
            {
                "iteration": iteration,
                "id": row["id"],
                "task_id": row["task_id"],
                "group": row["group"],
                "stop_reason": row["stop_reason"],
                **({"broken": row["detail"]} if row.get("fault") == "harness" else {}),
                **_marks(by_id.get(row["id"])),
                **_tokens(row, turns, end_of_turn),
                **steps_of(json.loads(row["messages"]), turns, tools),
                **_findings(row.get("final_state") or ""),
                **({"unrecorded": unrecorded_tools(json.loads(row["final_state"]))} if recorded else {}),
            }
        )
    return pd.DataFrame(rows)


def _findings(final_state: str) -> dict[str, str]:
    """The column of an episode whose final state lists what the sandbox found of its code."""
    if '"findings"' not in final_state:
        return {}
    found = json.loads(final_state)
    names = found.get("findings") if isinstance(found, dict) else None
    return {"findings": " ".join(str(name) for name in names)} if isinstance(names, list) else {}


def _marks(score: Mapping[str, Any] | None) -> dict[str, Any]:
    """Columns of the score.

    `total`, `success`: NaN where unscored; `negative_rewards`: how many turns lost reward; `flagged`: whether a verifier
    says so in its part of this name, or leaves the episode to a person; `grader <kind>`: each verifier's mark.
    """
    if score is None or score["status"] != "scored":
        suspected = score is not None and SUSPECTED in (score.get("detail") or "")
        return {"total": float("nan"), "success": float("nan"), "negative_rewards": 0, "flagged": suspected}
    breakdown = json.loads(score["breakdown"])
    graders = verifier_marks(breakdown)
    whole = {name: value for name, value in graders.items() if not _is_part(name, graders)}
    rewards = score.get("turn_rewards")
    # The last turn also gets parts known only at the end, such as the cost; these are no step back. Nor are the costs
    # that an environment charges for every step.
    earlier = [] if rewards is None or PROCESS in breakdown else list(rewards)[:-1]
    return {
        "total": float(score["total"]),
        "success": float(success_of(breakdown)),
        "negative_rewards": sum(reward < -LEAST_STEP for reward in earlier),
        "flagged": any(value > 0 and name.endswith(FLAGGED) for name, value in graders.items()),
        **{f"{GRADER}{name}": float(value) for name, value in whole.items()},
    }


def _is_part(name: str, graders: Collection[str]) -> bool:
    """Whether a mark is a part of another one: the rubric stores parts as `verifier.part`."""
    return any(name.startswith(f"{other}.") for other in graders if other != name)


def _end_of_turn(trajectories: pd.DataFrame) -> int | None:
    """The end-of-turn token: the most frequent last token of episodes that ended with one; None where there is none."""
    ended = trajectories[trajectories["stop_reason"].isin(ENDED_BY_ITSELF)]
    last = Counter(
        int(ids[turns[-1]["end"] - 1])
        for ids, turns in zip(ended["token_ids"], ended["turns"].map(json.loads), strict=True)
        if turns
    )
    return last.most_common(1)[0][0] if last else None


def _tokens(row: Mapping[str, Any], turns: Sequence[Mapping[str, int]], end_of_turn: int | None) -> dict[str, Any]:
    """Columns of the token ids.

    `outside_turns`: action tokens that belong to no turn; `past_the_end`: action tokens after an end-of-turn token
    without an observation between; `repetition`: the largest `repeated_share` of a turn; `negative_logprob`: minus the
    sum of the sampled tokens' log-probabilities, in nats; `sampled_hash`: a hash of all sampled tokens.
    """
    ids, mask = np.asarray(row["token_ids"]), np.asarray(row["action_mask"]) != 0
    sampled = np.zeros(len(ids), dtype=bool)
    for turn in turns:
        sampled[turn["start"] : turn["end"]] = True
    versions = [turn["policy_version"] for turn in turns] or [row["policy_version"]]
    stretches = [ids[turn["start"] : turn["end"]] for turn in turns]
    return {
        "tokens": len(ids),
        "action_tokens": int(mask.sum()),
        "turn_tokens": int((mask & sampled).sum()),
        "outside_turns": int((mask & ~sampled).sum()),
        "past_the_end": _past_the_end(ids, mask, end_of_turn),
        "repetition": max((repeated_share(stretch) for stretch in stretches), default=0.0),
        "negative_logprob": -float(np.asarray(row["logprobs"])[mask].sum()),
        "oldest_version": min(versions),
        "newest_version": max(versions),
        "sampled_hash": content_hash([stretch.tolist() for stretch in stretches]),
    }


def _past_the_end(ids: npt.NDArray[Any], mask: npt.NDArray[np.bool_], end_of_turn: int | None) -> int:
    """Action tokens right after an end-of-turn token, where sampling would have stopped."""
    if end_of_turn is None:
        return 0
    follows = mask[1:] & mask[:-1] & (ids[:-1] == end_of_turn)
    return int(follows.sum())


def repeated_share(ids: npt.NDArray[Any]) -> float:
    """The share of four-token phrases in `ids` [T] that occurred before; 0 for short texts."""
    count = len(ids) - PHRASE + 1
    if count < LEAST_PHRASES:
        return 0.0
    phrases = np.lib.stride_tricks.sliding_window_view(ids, PHRASE)
    return 1.0 - len(np.unique(phrases, axis=0)) / count
