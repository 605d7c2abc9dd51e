"""What a verifier may see of an episode besides its final state, and what it says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracewheel.chat.formats import WELL_FORMED
from tracewheel.core.strict_json import fresh_copy
from tracewheel.core.types import Fault, Trajectory, first_turn
from tracewheel.environments.recorded.calls import is_error, parsed_arguments

Message = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """A verifier's result.

    Attributes:
        total: In [0, 1]; 1 is success.
        parts: One number for each check, by its name.
        answer: What the verifier took for the agent's answer, for people who read the score.
        explanation: Why it scored as it did.
        weight: What the verifier's share of the reward is multiplied with, in [0, 1]: less than 1 where it is not sure.
    """

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    answer: str = ""
    explanation: str = ""
    weight: float = 1.0


@dataclass(frozen=True)
class EpisodeCall:
    """A tool call of an episode.

    Attributes:
        name: The tool's name; "" for a malformed call whose name is not known.
        arguments: The arguments; {} for a malformed call.
        result: What the tool replied; None where the episode ended in the call's turn.
        error: Whether the call failed: the environment said so, or the reply begins as an error does.
        malformed: Whether the call was not carried out, because it could not be read.
        turn: The number of its turn, from 0.
    """

    name: str
    arguments: dict[str, Any]
    result: str | None
    error: bool
    malformed: bool
    turn: int


@dataclass(frozen=True)
class Episode:
    """An episode as its verifier sees it. It follows from what is stored, so that scoring again gives the same.

    Attributes:
        messages: The whole conversation in OpenAI chat format.
        start: Position of the agent's first own message; those before are context.
        calls: The agent's calls in their order, with what came of them.
        final_text: What the agent said in its last turn beside calls and thinking; "" where it said nothing.
        final_state: The environment's final state.
        stop_reason: Why the episode ended (see `Trajectory`), as in `finished`, `no_tool_call` or `max_turns`; "" in a log that
            just ends.
        detail: More about that.
        fault: Who is to blame for an episode that went wrong; "" where nobody is.
        turns: How many turns the agent took.
        malformed: How many of its calls were malformed.
        tokens: How many tokens it generated; None where that is not known.
        token_ids: All tokens of the episode as they were sampled and read; () where they are not known.
        branches: For an agent whose histories part: each of them (see `Trajectory.branches`).
    """

    messages: tuple[Message, ...]
    start: int
    calls: tuple[EpisodeCall, ...]
    final_text: str
    final_state: dict[str, Any]
    stop_reason: str = ""
    detail: str = ""
    fault: Fault = ""
    turns: int = 0
    malformed: int = 0
    tokens: int | None = None
    token_ids: tuple[int, ...] = ()
    branches: tuple[dict[str, Any], ...] = ()


def episode_of(trajectory: Trajectory) -> Episode:
    """The episode of a stored trajectory. A verifier may do with it what it likes: nothing in it is shared."""
    start = first_turn(trajectory.messages, trajectory.turns)
    known = bool(trajectory.token_ids) or not trajectory.turns
    return episode_from(
        trajectory.messages,
        start,
        trajectory.final_state,
        turns=trajectory.turns,
        stop_reason=trajectory.stop_reason,
        detail=trajectory.detail,
        fault=trajectory.fault,
        tokens=sum(trajectory.action_mask) if known else None,
        token_ids=tuple(trajectory.token_ids),
        branches=tuple(fresh_copy(trajectory.branches)),
    )


def episode_from(
    messages: Sequence[Message],
    start: int,
    final_state: dict[str, Any],
    turns: Sequence[Mapping[str, Any]] | None = None,
    **facts: Any,
) -> Episode:
    """An episode from its conversation.

    Args:
        messages: All messages.
        start: Position of the agent's first own message.
        final_state: The environment's final state.
        turns: The stored turns, one for each own message of the agent; None where a turn is just its message.
        facts: Other fields of `Episode`.
    """
    shown = tuple(fresh_copy(list(messages)))
    places = [place for place in range(start, len(shown)) if shown[place]["role"] == "assistant"]
    marked = [turn.get("errors", ()) for turn in turns] if turns is not None else []
    calls = tuple(
        call
        for number, place in enumerate(places)
        for call in _calls_of(shown, place, number, marked[number] if number < len(marked) else ())
    )
    last = shown[places[-1]] if places else {}
    return Episode(
        shown,
        start,
        calls,
        last.get("content") or "",
        fresh_copy(final_state),
        turns=len(places) if turns is None else len(turns),
        malformed=sum(turn["malformed"] for turn in turns) if turns is not None else sum(call.malformed for call in calls),
        **facts,
    )


def _calls_of(messages: Sequence[Message], place: int, turn: int, marked: Sequence[int]) -> Iterator[EpisodeCall]:
    """The calls of the assistant message at `place`; `marked` are the numbers of failed ones whose replies hide it."""
    message, replies = messages[place], _replies(messages, place)
    if called := message.get("tool_calls"):
        by_id: dict[str, list[str]] = {}
        for reply in replies:
            by_id.setdefault(reply.get("tool_call_id", ""), []).append(reply.get("content") or "")
        for number, call in enumerate(called):
            arguments = parsed_arguments(call["function"]["arguments"])
            broken = not isinstance(arguments, dict)
            given = by_id.get(call["id"], [])
            result = given.pop(0) if given else None
            failed = broken or number in marked or (result is not None and is_error(result))
            yield EpisodeCall(call["function"]["name"], {} if broken else arguments, result, failed, broken, turn)
        return
    good = [tuple(pair) for pair in message.get(WELL_FORMED, ())]
    for number, reply in enumerate(replies):  # of a turn with a malformed call, in the order of its calls
        text, named = reply.get("content") or "", bool(reply.get("name") and good)
        name, arguments = good.pop(0) if named else ("", {})
        yield EpisodeCall(name, arguments, text, not named or number in marked or is_error(text), not named, turn)


def _replies(messages: Sequence[Message], place: int) -> list[Message]:
    """The tools' messages after the one at `place`, up to the next that is none."""
    found = []
    for message in messages[place + 1 :]:
        if message["role"] != "tool":
            break
        found.append(message)
    return found
