"""A trajectory turn by turn, and two of them side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import orjson

from tracewheel.core.differences import ABSENT, value_differences
from tracewheel.core.types import first_turn
from tracewheel.curation.faults import invalid_argument
from tracewheel.dashboard.facts import tools_of
from tracewheel.environments.recorded.calls import parameters_of
from tracewheel.report.finished_run import FinishedRun
from tracewheel.scoring.adjustments import ADJUSTMENTS

MOST_CHANGES = 200


@dataclass(frozen=True)
class Call:
    """A tool call: what is wrong with it ("" for nothing), and its reply."""

    name: str
    arguments: str
    trouble: str = ""
    reply: str | None = None
    failed: bool = False


@dataclass(frozen=True)
class Step:
    """A message, with the replies to its calls.

    Attributes:
        number: Position of the message in the conversation.
        turn: Number of the episode's own turn, from 0; None for context.
        start, end: The tokens that the policy sampled; None for context.
        versions: Of the policies that sampled it.
        reward: Of the turn; None where there is none.
    """

    number: int
    role: str
    text: str
    thinking: str = ""
    calls: Sequence[Call] = ()
    turn: int | None = None
    start: int | None = None
    end: int | None = None
    versions: Sequence[int] = ()
    malformed: int = 0
    reward: float | None = None


@dataclass(frozen=True)
class Part:
    """A part of a score: its place below the verifier, and whether it adds to or subtracts from the reward."""

    name: str
    value: float
    is_adjustment: bool = False


def tools_of_run(run: FinishedRun) -> Sequence[Mapping[str, Any]]:
    """The tools of a run's environment; empty where it cannot be built here."""
    return tools_of(str((run.settings.get("environment") or {}).get("kind") or ""))


def transcript_of(found: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> list[Step]:
    """The steps of a trajectory.

    Args:
        found: A trajectory as `one_trajectory` has it.
        tools: What the environment offers; empty where that is not known.
    """
    messages, turns = listed(found.get("messages")), listed(found.get("turns"))
    rewards = found.get("turn_rewards")
    rewards = [] if rewards is None else list(rewards)
    numbers = last_turns(found.get("branches"), len(turns))
    begin, parameters = first_turn(messages, numbers), parameters_of(tools)
    shown: set[int] = set()
    known = {str(tool["function"]["name"]) for tool in tools}
    steps: list[Step] = []
    turn = 0
    for number, message in enumerate(messages):
        role = str(message.get("role") or "")
        if number in shown:
            continue  # stands beside its call
        replies = _replies(messages, number)
        calls = []
        for call in message.get("tool_calls") or ():
            place = replies.pop(str(call.get("id") or ""), None)
            shown |= set() if place is None else {place}
            reply = None if place is None else text_of(messages[place].get("content"))
            calls.append(_call(call, reply, known, parameters))
        own: dict[str, Any] = {}
        if role == "assistant" and number >= begin and turn < len(numbers):
            place = numbers[turn]
            at = turns[place]
            own = {
                "turn": place,
                "start": at["start"],
                "end": at["end"],
                "versions": sorted({at["policy_version"], *(version for _, version in at.get("changes") or ())}),
                "malformed": at.get("malformed") or 0,
                "reward": rewards[place] if place < len(rewards) else at.get("reward"),
            }
            turn += 1
        steps.append(Step(number, role, text_of(message.get("content")), _thinking(message), calls, **own))
    return steps


def last_turns(branches: Any, count: int) -> list[int]:
    """The numbers of the turns that a trajectory's `messages` are of: all, or those of the branch with the last turn.

    Args:
        branches: As stored; empty where the history only grew.
        count: How many turns the trajectory has.
    """
    own = [turns_at(each, count) for each in listed(branches) if isinstance(each, Mapping)]
    return next((turns for turns in own if count - 1 in turns), list(range(count)))


def turns_at(branch: Mapping[str, Any], count: int) -> list[int]:
    """The numbers of the turns of a stored branch, of a trajectory that has `count` turns."""
    return [int(at) for at in listed(branch.get("turns")) if isinstance(at, int) and 0 <= at < count]


def parts_of(breakdown: Any) -> list[Part]:
    """The parts of a score, success first."""
    if not isinstance(breakdown, Mapping):
        return []
    found = [Part(str(name), float(value), name in ADJUSTMENTS) for name, value in breakdown.items()]
    return sorted(found, key=lambda part: (part.is_adjustment, part.name != "success", part.name))


def state_changes(before: Any, after: Any) -> list[tuple[str, str, Any, Any]]:
    """How the world of an episode changed: what (`added`, `gone`, `changed`), where, before and after."""
    found: list[tuple[str, str, Any, Any]] = []
    for path, one, other in value_differences(before, after):
        if len(found) == MOST_CHANGES:
            break
        kind = "added" if one == ABSENT else "gone" if other == ABSENT else "changed"
        found.append((kind, path, None if one == ABSENT else one, None if other == ABSENT else other))
    return found


def text_of(content: Any) -> str:
    """The text of a message's content, of parts too."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or f"({part.get('type')})") for part in content if isinstance(part, Mapping))
    return ""


def _call(call: Mapping[str, Any], reply: str | None, known: set[str], parameters: Mapping[str, Mapping[str, Any]]) -> Call:
    function = call.get("function") or {}
    name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
    trouble = "no such tool" if known and name not in known else ""
    if known and not trouble:
        trouble = _flaw(arguments, parameters.get(name, {}))
    return Call(name, arguments, trouble, reply, (reply or "").lstrip().lower().startswith("error"))


def _flaw(arguments: str, schema: Mapping[str, Any]) -> str:
    try:
        values = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return "arguments are no JSON"
    return (invalid_argument(values, schema) or "") if isinstance(values, dict) else "arguments are no object"


def _replies(messages: Sequence[Mapping[str, Any]], number: int) -> dict[str, int]:
    """The places of the tool messages that follow a message, by the id of the call that they answer."""
    found: dict[str, int] = {}
    for place in range(number + 1, len(messages)):
        if messages[place].get("role") != "tool":
            break
        found.setdefault(str(messages[place].get("tool_call_id") or ""), place)
    return found


def _thinking(message: Mapping[str, Any]) -> str:
    return next((message[key] for key in ("reasoning_content", "reasoning") if isinstance(message.get(key), str)), "")


def listed(value: Any) -> list[Any]:
    """The value, where it is a list; else an empty one."""
    return value if isinstance(value, list) else []


SAME, DIFFERS, AFTER = "same", "differs", "after"


@dataclass(frozen=True)
class Row:
    """A step of each; None where one has ended. `kind` is `same`, `differs` (the first that does) or `after`."""

    left: Step | None
    right: Step | None
    kind: str


def aligned(left: Sequence[Step], right: Sequence[Step]) -> list[Row]:
    """The steps in pairs, turn beside turn."""
    rows: list[Row] = []
    parted = False
    for one, other in zip_longest(left, right):
        if parted:
            rows.append(Row(one, other, AFTER))
        elif one is not None and other is not None and _said(one) == _said(other):
            rows.append(Row(one, other, SAME))
        else:
            rows.append(Row(one, other, DIFFERS))
            parted = True
    return rows


def how_it_differs(rows: Sequence[Row]) -> str:
    """What differs at the first step that does, in words; "" where nothing does."""
    row = next((row for row in rows if row.kind == DIFFERS), None)
    if row is None:
        return ""
    if row.left is None or row.right is None:
        return f"The {'right' if row.left is None else 'left'} one goes on where the other has ended."
    if row.left.role != row.right.role:
        return f"A message of {row.left.role} on the left, of {row.right.role} on the right."
    ours, theirs = [call.name for call in row.left.calls], [call.name for call in row.right.calls]
    if ours != theirs:
        return f"The left one calls {', '.join(ours) or 'no tool'}, the right one {', '.join(theirs) or 'no tool'}."
    if [call.arguments for call in row.left.calls] != [call.arguments for call in row.right.calls]:
        return f"Both call {', '.join(ours)}, with different arguments."
    if [call.reply for call in row.left.calls] != [call.reply for call in row.right.calls]:
        return f"Both make the same call of {', '.join(ours)}, and get different replies."
    return "They say different things."


def _said(step: Step) -> tuple[object, ...]:
    return step.role, step.text, step.thinking, tuple((call.name, call.arguments, call.reply) for call in step.calls)
