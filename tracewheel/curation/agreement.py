"""How far a replay agrees with its log: episodes whose tools replied and whose score came out as logged.

An environment that replies otherwise than the log is not the world of the log: its episodes stay unscored, and the tasks left
over are not those that the agent had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

OTHER_REPLIES = "the tools replied otherwise than in the log"
OTHER_REWARD = "the score differs from the logged reward"
# Characters of a reply that are shown, and how many of them come before the first one that differs.
SHOWN, BEFORE = 240, 60
# Under the first the difference is shown; under the second a run is not trained unless `curation.allow_drift`.
GOOD_AGREEMENT, LEAST_AGREEMENT = 0.95, 0.5


@dataclass(frozen=True)
class Difference:
    """The first reply of an episode that is not as logged.

    Attributes:
        task: The task's id.
        trace: The trace's id.
        turn: The agent's turn in the episode, from 1.
        call: The name of the tool.
        arguments: Its arguments as logged.
        logged: The reply in the log, cut to `SHOWN` characters around the first that differs.
        replayed: The replayed reply, cut at the same place; None where the log has a reply to no call.
    """

    task: str
    trace: str
    turn: int
    call: str
    arguments: str
    logged: str
    replayed: str | None


@dataclass(frozen=True)
class Agreement:
    """The agreement of a replay with its log, as `report.json` has it under `agreement`.

    Attributes:
        episodes: Episodes that were replayed.
        agreeing: Those with all replies as logged and, where the log has a reward, with this score.
        reasons: Why the others do not agree, and how many.
        first_difference: The first reply that differs, in the order of the log; None where all are as logged.
    """

    episodes: int
    agreeing: int
    reasons: dict[str, int]
    first_difference: Difference | None = None

    @property
    def share(self) -> float | None:
        """Agreeing episodes among all; None without any."""
        return self.agreeing / self.episodes if self.episodes else None

    @classmethod
    def of(cls, usable: pandas.DataFrame, first: Difference | None) -> Agreement:
        """Count it.

        Args:
            usable: Replayed rows with `observation_drift` and `reward_drift`.
            first: The first reply that differs.
        """
        replies, reward = usable["observation_drift"].astype(bool), usable["reward_drift"].astype(bool)
        reasons = {OTHER_REPLIES: int(replies.sum()), OTHER_REWARD: int((reward & ~replies).sum())}
        agreeing = int((~replies & ~reward).sum())
        return cls(len(usable), agreeing, {reason: count for reason, count in reasons.items() if count}, first)

    def drifts(self, least: float = LEAST_AGREEMENT) -> str:
        """A sentence where less than this share of the episodes agrees, with the first reply that differs. Otherwise ""."""
        if self.share is None or self.share >= least:
            return ""
        text = (
            f"only {self.agreeing} of {self.episodes} episodes ({self.share:.1%}) agree with their log when they are replayed"
        )
        if first := self.first_difference:
            text += (
                f"; in {first.trace} {first.call}({first.arguments}) replied {first.replayed!r}, in the log {first.logged!r}"
            )
        return text

    def to_record(self) -> dict[str, Any]:
        """The record in `report.json`, with `share`."""
        return {**asdict(self), "share": self.share}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Agreement:
        """The inverse of `to_record`."""
        first = record["first_difference"]
        return cls(
            record["episodes"], record["agreeing"], dict(record["reasons"]), Difference(**first) if first is not None else None
        )


@dataclass(frozen=True)
class OtherReply:
    """A reply of an environment that is not as logged, by its place among the messages of an episode.

    Attributes:
        message: The position of the logged reply.
        replayed: The environment's reply; None where no call of the episode has this reply.
    """

    message: int
    replayed: str | None

    def described(self, task_id: str, trace_id: str, messages: Sequence[Mapping[str, Any]]) -> Difference:
        """The difference in words, from the messages of the episode."""
        reply = messages[self.message]
        before = [message for message in messages[: self.message] if message["role"] == "assistant"]
        calls = {call["id"]: call["function"] for message in before for call in message.get("tool_calls") or ()}
        function = calls.get(reply["tool_call_id"], {"name": "", "arguments": ""})
        arguments = function["arguments"] if isinstance(function["arguments"], str) else json.dumps(function["arguments"])
        logged, replayed = excerpts(str(reply["content"] or ""), self.replayed)
        return Difference(task_id, trace_id, len(before), function["name"], arguments[:SHOWN], logged, replayed)


def excerpts(logged: str, replayed: str | None) -> tuple[str, str | None]:
    """Both replies from shortly before the first character that differs, cut to `SHOWN` characters."""
    if replayed is None:
        return _cut(logged, 0), None
    equal = next((place for place, (one, other) in enumerate(zip(logged, replayed, strict=False)) if one != other), None)
    place = min(len(logged), len(replayed)) if equal is None else equal
    start = max(0, place - BEFORE) if max(len(logged), len(replayed)) > SHOWN else 0
    return _cut(logged, start), _cut(replayed, start)


def _cut(text: str, start: int) -> str:
    end = start + SHOWN
    return f"{'…' if start else ''}{text[start:end]}{'…' if len(text) > end else ''}"
