"""Preference pairs from logs: a success and a failure of the same task, cut where they diverge, as chat messages.

For direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290) on the messages after the first divergence; pairs
that begin at the first wrong step are those of Step-DPO (Lai et al. 2024, arXiv:2406.18629).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tracewheel.chat.faithful import BROKEN_CALL
from tracewheel.core.endings import how_unfinished
from tracewheel.core.types import canonical_json, content_hash
from tracewheel.environments.recorded.calls import (
    Schema,
    has_broken_call,
    normalised,
    normalised_key,
    parameters_of,
    parsed_arguments,
)

if TYPE_CHECKING:
    import pandas

NO_REQUEST = "the agent speaks before the user"
Message = dict[str, Any]
# What a pair's two traces share before the cut: all messages, or all calls and tool replies.
Shared = Literal["messages", "calls"]
USER_FIRST = "the user or a tool said something else first"
PAIR_COLUMNS = (
    "id",
    "task_id",
    "split",
    "shared",
    "step",
    "prompt",
    "chosen",
    "rejected",
    "tools",
    "chosen_trace",
    "rejected_trace",
    "margin",
)
NEEDED = ("trace_id", "task_id", "split", "label", "messages", "tools")


@dataclass(frozen=True)
class _Episode:
    trace_id: str
    split: str
    label: float
    messages: list[Message]
    tools: str
    words: list[str]

    @cached_property
    def broken(self) -> list[int]:
        """Positions of messages with a call whose arguments are broken."""
        return [at for at, message in enumerate(self.messages) if has_broken_call([message])]


@dataclass(frozen=True)
class Cut:
    """Where two conversations diverge.

    Attributes:
        chosen: Position of the success's first assistant message that differs.
        rejected: The same of the failure.
        step: The number of calls before.
        shared: What both have in common up to there.
    """

    chosen: int
    rejected: int
    step: int
    shared: Shared


def preference_pairs(
    episodes: pandas.DataFrame, *, per_task: int = 8, margin: float = 1.0, shared: Shared | Literal["auto"] = "messages"
) -> tuple[pandas.DataFrame, dict[str, Any]]:
    """Pair the successes with the failures of each task.

    With `shared` "messages", two episodes make a pair when an assistant message is the first to differ; where a user or a tool
    message differs first, the assistant did not cause the difference. With "calls", only calls and tool replies must be equal
    up to the cut, as with a user who words the same request differently: weaker, but what logs of conversations offer. Then
    each side is one turn with calls, and the prompt is what the failed agent saw. "auto" is "messages", and "calls" for two
    episodes with several user messages of which the user's, or a reply, differ first.

    An episode with a turn that was cut, or failed, is in no pair.

    Within a task, pairs of the episodes used least so far come first, then wider margins, then later cuts.

    Args:
        episodes: `trace_id`, `task_id`, `split`, `label` (0 to 1; rows with NaN are left out), `messages` and `tools` (JSON
            text).
        per_task: The largest number of pairs of a task.
        margin: The smallest difference of two labels.
        shared: What both episodes must share before the cut.

    Returns:
        A frame with `PAIR_COLUMNS`: `prompt`, `chosen` and `rejected` are messages as JSON text. And a report: counts of tasks
        with a success and a failure, of pairs, of pairs by split, and of candidates without a pair by reason.
    """
    import pandas

    groups: dict[str, list[_Episode]] = defaultdict(list)
    known = episodes[episodes["label"].notna() & (episodes["task_id"] != "")]
    for trace_id, task_id, split, label, text, tools in known[list(NEEDED)].itertuples(index=False, name=None):
        messages = json.loads(text)
        if any(map(how_unfinished, messages)):
            continue
        groups[task_id].append(_Episode(trace_id, split, float(label), messages, tools, _words(messages, json.loads(tools))))
    refused: Counter[str] = Counter()
    rows, mixed = [], 0
    for task_id in sorted(groups):
        better = [episode for episode in groups[task_id] if episode.label >= 1.0]
        worse = [episode for episode in groups[task_id] if episode.label < 1.0]
        mixed += bool(better and worse)
        candidates = []
        for chosen in better:
            for rejected in worse:
                if chosen.label - rejected.label < margin or chosen.split != rejected.split:
                    refused["margin too small" if chosen.split == rejected.split else "different splits"] += 1
                    continue
                cut = _cut(chosen, rejected, shared)
                if isinstance(cut, Cut):
                    cut = _unfit(chosen, rejected, cut) or cut
                if isinstance(cut, str):
                    refused[cut] += 1
                else:
                    candidates.append((chosen, rejected, cut))
        rows += [_row(task_id, *pair) for pair in _choose(candidates, per_task)]
    frame = pandas.DataFrame(rows, columns=list(PAIR_COLUMNS))
    report = {
        "tasks_with_both": mixed,
        "pairs": len(frame),
        "by_split": {split: int(count) for split, count in sorted(Counter(frame["split"]).items())},
        "no_pair_because": dict(sorted(refused.items())),
    }
    return frame, report


def _cut(chosen: _Episode, rejected: _Episode, shared: Shared | Literal["auto"]) -> Cut | str:
    """Where two episodes diverge, or why they make no pair."""
    if shared == "calls":
        return _cut_at_calls(chosen, rejected)
    cut = _cut_at_messages(chosen, rejected)
    if shared == "auto" and cut == USER_FIRST and _is_talk(chosen) and _is_talk(rejected):
        return _cut_at_calls(chosen, rejected)
    return cut


def _unfit(chosen: _Episode, rejected: _Episode, cut: Cut) -> str:
    """Why a pair cut here cannot be written as it was said, or ""."""
    at_calls = cut.shared == "calls"
    seen = [at for at in rejected.broken if not at_calls or at <= cut.rejected]
    seen += [at for at in chosen.broken if at == cut.chosen or (at > cut.chosen and not at_calls)]
    if seen:
        return BROKEN_CALL
    return "" if any(message["role"] == "user" for message in rejected.messages[: cut.rejected]) else NO_REQUEST


def _is_talk(episode: _Episode) -> bool:
    """Whether the user speaks more than once."""
    return sum(message["role"] == "user" for message in episode.messages) > 1


def _cut_at_messages(chosen: _Episode, rejected: _Episode) -> Cut | str:
    """The first messages that differ."""
    pairs = zip(chosen.words, rejected.words, strict=False)
    place = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    if place is None:
        return "one is the beginning of the other"
    if chosen.messages[place]["role"] != "assistant" or rejected.messages[place]["role"] != "assistant":
        return USER_FIRST
    step = sum(len(message.get("tool_calls") or []) for message in chosen.messages[:place])
    return Cut(place, place, step, "messages")


def _cut_at_calls(chosen: _Episode, rejected: _Episode) -> Cut | str:
    """The first turns with calls that differ, after equal calls with equal replies."""
    one, other = (_steps(episode) for episode in (chosen, rejected))
    place = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a[1:] != b[1:]), None)
    if place is None:
        return "one is the beginning of the other"
    (chosen_at, chosen_calls, _), (rejected_at, rejected_calls, _) = one[place], other[place]
    if chosen_calls == rejected_calls:
        return USER_FIRST
    return Cut(chosen_at, rejected_at, sum(len(calls) for _, calls, _ in one[:place]), "calls")


def _steps(episode: _Episode) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Position, calls and replies of each turn that calls something."""
    parameters = parameters_of(json.loads(episode.tools))
    steps = []
    for index, message in enumerate(episode.messages):
        if keys := _call_keys(message, parameters):
            answers = episode.messages[index + 1 : index + 1 + len(keys)]
            replies = tuple(str(answer.get("content") or "") for answer in answers if answer["role"] == "tool")
            steps.append((index, keys, replies))
    return steps


def _words(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """A key for each message, without ids, and of turns with calls only the calls: equal for equal messages."""
    parameters = parameters_of(tools)
    return [
        canonical_json([message["role"], _call_keys(message, parameters) or normalised(message.get("content") or "", {})])
        for message in messages
    ]


def _call_keys(message: Mapping[str, Any], parameters: Mapping[str, Schema]) -> tuple[str, ...]:
    functions = [call["function"] for call in message.get("tool_calls") or []]
    return tuple(normalised_key(each["name"], parsed_arguments(each["arguments"]), parameters) for each in functions)


def _choose(candidates: list[tuple[_Episode, _Episode, Cut]], limit: int) -> list[tuple[_Episode, _Episode, Cut]]:
    used: Counter[str] = Counter()
    left = list(candidates)
    chosen: list[tuple[_Episode, _Episode, Cut]] = []
    while left and len(chosen) < limit:
        best = min(
            left,
            key=lambda pair: (
                used[pair[0].trace_id] + used[pair[1].trace_id],
                pair[1].label - pair[0].label,
                -pair[2].step,
                pair[0].trace_id,
                pair[1].trace_id,
            ),
        )
        left.remove(best)
        used.update((best[0].trace_id, best[1].trace_id))
        chosen.append(best)
    return chosen


def _row(task_id: str, chosen: _Episode, rejected: _Episode, cut: Cut) -> tuple[Any, ...]:
    ends = (None, None) if cut.shared == "messages" else (cut.chosen + 1, cut.rejected + 1)
    better, worse = chosen.messages[cut.chosen : ends[0]], rejected.messages[cut.rejected : ends[1]]
    texts = [json.dumps(part, ensure_ascii=False) for part in (rejected.messages[: cut.rejected], better, worse)]
    identity = content_hash([task_id, chosen.trace_id, rejected.trace_id, cut.shared])
    traces = (chosen.trace_id, rejected.trace_id)
    return (
        identity,
        task_id,
        rejected.split,
        cut.shared,
        cut.step,
        *texts,
        rejected.tools,
        *traces,
        chosen.label - rejected.label,
    )
