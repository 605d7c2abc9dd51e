"""The fields of each episode that the checks need, in one row small enough to keep for a whole run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tracewheel.core.types import canonical_json, content_hash, first_turn
from tracewheel.environments.recorded.environment import unrecorded_tools
from tracewheel.scoring.objectives import PREFIX
from tracewheel.scoring.rubric import success_of

if TYPE_CHECKING:
    import pandas as pd

GRADER = "grader "
# Stop reasons after which the last token is the end-of-turn token.
ENDED_BY_ITSELF = ("finished", "no_tool_call", "max_turns")
PHRASE = 4
LEAST_PHRASES = 24
LONGEST_CYCLE = 3
NOT_GRADERS = ("success", "malformed_penalty")
LEAST_STEP = 1e-9


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
        A table with `iteration`, `id`, `task_id`, `group`, `stop_reason`, the columns of `_marks`, `_tokens` and `_steps`,
        and for a recorded environment `unrecorded`: the tools of the calls that no log answers.
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
                **_marks(by_id.get(row["id"])),
                **_tokens(row, turns, end_of_turn),
                **_steps(json.loads(row["messages"]), turns, tools),
                **({"unrecorded": unrecorded_tools(json.loads(row["final_state"]))} if recorded else {}),
            }
        )
    return pd.DataFrame(rows)


def _marks(score: Mapping[str, Any] | None) -> dict[str, Any]:
    """Columns of the score.

    `total`, `success`: NaN where unscored; `negative_rewards`: how many turns lost reward; `grader <kind>`: each
    verifier's mark.
    """
    if score is None or score["status"] != "scored":
        return {"total": float("nan"), "success": float("nan"), "negative_rewards": 0}
    breakdown = json.loads(score["breakdown"])
    graders = {name: value for name, value in breakdown.items() if name not in NOT_GRADERS and not name.startswith(PREFIX)}
    whole = {name: value for name, value in graders.items() if not _is_part(name, graders)}
    rewards = score.get("turn_rewards")
    # The last turn also gets parts known only at the end, such as the cost; these are no step back.
    earlier = [] if rewards is None else list(rewards)[:-1]
    return {
        "total": float(score["total"]),
        "success": float(success_of(breakdown)),
        "negative_rewards": sum(reward < -LEAST_STEP for reward in earlier),
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


def _steps(
    messages: Sequence[Mapping[str, Any]], turns: Sequence[Mapping[str, int]], tools: Collection[str] | None
) -> dict[str, Any]:
    """Columns of the calls and the replies. A conversation that the episode continues from does not count.

    `named_calls`: well-formed calls; `unknown_tools`: tools that were called but not offered; `errors`: replies that begin
    with "error", as those of the built-in environment and to malformed calls do; `loop`: see `longest_loop`.
    """
    steps = list(_calls_and_replies(messages[first_turn(messages, turns) :]))
    names = [name for name, _, _ in steps if name is not None]
    return {
        "turns": len(turns),
        "calls": sum(turn["calls"] for turn in turns),
        "malformed": sum(turn["malformed"] for turn in turns),
        "named_calls": len(names),
        "unknown_tools": [name for name in names if tools is not None and name not in tools],
        "errors": sum(reply.lstrip().lower().startswith("error") for _, _, reply in steps),
        "loop": longest_loop([canonical_json(step) for step in steps]),
    }


def _calls_and_replies(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str | None, str, str]]:
    """(tool, arguments, reply) of each call in order; a turn without a readable call has tool None."""
    replies: dict[str, list[str]] = {}
    for message in messages:
        if message["role"] == "tool":
            replies.setdefault(message.get("tool_call_id", ""), []).append(message["content"])
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        for call in message.get("tool_calls") or []:
            reply = replies.get(call["id"], [""])[0]
            yield call["function"]["name"], call["function"]["arguments"], reply
        if not message.get("tool_calls"):
            after = messages[index + 1] if index + 1 < len(messages) else {"role": "", "content": ""}
            yield None, message.get("content") or "", after["content"] if after["role"] == "tool" else ""


def longest_loop(steps: Sequence[str]) -> int:
    """How often in a row the same step, or cycle of two or three steps, occurs; 1 without a repetition, 0 without steps."""
    longest = min(1, len(steps))
    for period in range(1, LONGEST_CYCLE + 1):
        alike = 0
        for index in range(period, len(steps)):
            alike = alike + 1 if steps[index] == steps[index - period] else 0
            longest = max(longest, alike // period + 1)
    return longest
