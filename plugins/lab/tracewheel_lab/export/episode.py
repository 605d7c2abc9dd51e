"""An episode as its conversations and its sampled turns, which is what all formats are written from.

An episode of our own loop is one conversation. A program that rewrote its history has one for each branch, and each turn
belongs to the conversation in which it was sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tracewheel import DataError, Score, Trajectory, read_before

Message = dict[str, Any]


@dataclass(frozen=True)
class Episode:
    """An episode with what is known around it.

    Attributes:
        trajectory: The episode.
        score: None where it is not scored yet.
        tools: The schemas that the policy was offered, in OpenAI format; None where they are not known.
        model: Name of the base model; "" where it is not known.
        source: Where it was played, as in "rollout 3".
    """

    trajectory: Trajectory
    score: Score | None = None
    tools: list[dict[str, Any]] | None = None
    model: str = ""
    source: str = ""

    @property
    def reward(self) -> float | None:
        """The total of the score; None without one: unscored is not 0."""
        return self.score.total if self.score is not None and self.score.status == "scored" else None


@dataclass(frozen=True)
class SampledTurn:
    """A turn as the policy read and sampled it.

    Attributes:
        number: Its place among the turns of the trajectory, from 0.
        message: Position of its message in the conversation.
        prompt_ids: All ids that the policy had read: the row up to the first sampled token. What exploration forced is among
            them, for the policy did not sample it.
        sampled_ids: What it sampled.
        logprobs: Of each sampled id, with the temperature applied.
        mask: 1 for each sampled id that counts in the loss.
        record: The stored turn.
    """

    number: int
    message: int
    prompt_ids: list[int]
    sampled_ids: list[int]
    logprobs: list[float]
    mask: list[int]
    record: dict[str, Any]

    @property
    def version_changes(self) -> list[list[int]]:
        """Where the weights changed within the turn: (place among the sampled ids, new version)."""
        return [[at - self.record["start"], version] for at, version in self.record.get("changes") or []]


@dataclass(frozen=True)
class Conversation:
    """One history of an episode.

    Attributes:
        number: Its place among the branches, from 0.
        reason: Why it parted from what was said before; "" for the first.
        agent: The name that the program gave this agent; "" without one.
        turns: The turns that were sampled in it.
    """

    number: int
    messages: list[Message]
    turns: list[SampledTurn] = field(default_factory=list)
    reason: str = ""
    agent: str = ""

    @property
    def copied(self) -> int:
        """How many messages are copied context: those up to the last assistant message before the first turn, with replies."""
        first = self.turns[0].message if self.turns else len(self.messages)
        said = [position for position in range(first) if self.messages[position]["role"] == "assistant"]
        if not said:
            return 0
        end = said[-1] + 1
        while end < first and self.messages[end]["role"] == "tool":
            end += 1
        return end


def conversations(trajectory: Trajectory) -> list[Conversation]:
    """The conversations of an episode, in the order in which they began.

    Raises:
        DataError: its turns do not fit its tokens or its messages.
    """
    where = f"trajectory {trajectory.id}"
    length = len(trajectory.token_ids)
    if {len(trajectory.action_mask), len(trajectory.logprobs)} != {length}:
        raise DataError(f"{where}: token_ids, action_mask and logprobs differ in length; it is damaged")
    branches = trajectory.branches or [
        {"messages": trajectory.messages, "turns": list(range(len(trajectory.turns))), "reason": "", "agent": ""}
    ]
    found = []
    for number, branch in enumerate(branches):
        messages, own = branch["messages"], branch["turns"]
        said = [position for position, message in enumerate(messages) if message["role"] == "assistant"]
        if len(said) < len(own):
            raise DataError(f"{where}: branch {number} has {len(own)} turns and {len(said)} assistant messages; it is damaged")
        turns = list(_turns(trajectory, zip(own, said[len(said) - len(own) :], strict=True)))
        found.append(Conversation(number, messages, turns, branch.get("reason") or "", branch.get("agent") or ""))
    return found


def _turns(trajectory: Trajectory, places: Iterator[tuple[int, int]]) -> Iterator[SampledTurn]:
    length = len(trajectory.token_ids)
    for number, message in places:
        if not 0 <= number < len(trajectory.turns):
            raise DataError(
                f"trajectory {trajectory.id}: a branch names turn {number} of {len(trajectory.turns)}; it is damaged"
            )
        turn = trajectory.turns[number]
        start, end = turn["start"], turn["end"]
        if not 0 <= start < end <= length:
            raise DataError(f"trajectory {trajectory.id}: turn {number} is [{start}, {end}) of {length} tokens; it is damaged")
        yield SampledTurn(
            number=number,
            message=message,
            prompt_ids=read_before(trajectory, start),
            sampled_ids=trajectory.token_ids[start:end],
            logprobs=trajectory.logprobs[start:end],
            mask=trajectory.action_mask[start:end],
            record=turn,
        )
