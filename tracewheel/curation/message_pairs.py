"""Preference pairs out of logs: a success and a failure of the same task, cut where they part, as chat messages.

They are for direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290) on what followed the first
divergence; to begin a pair at the first wrong step is Step-DPO's (Lai et al. 2024, arXiv:2406.18629).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tracewheel.core.types import canonical_json, content_hash
from tracewheel.environments.recorded.calls import Schema, normalised, normalised_key, parameters_of, parsed_arguments

if TYPE_CHECKING:
    import pandas

Message = dict[str, Any]
# What a pair's two traces have in common before the cut: every message, or every call and every reply of a tool.
Shared = Literal["messages", "calls"]
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


@dataclass(frozen=True)
class Cut:
    """Where two conversations part: the positions of the first assistant messages that differ, and after how many calls."""

    chosen: int
    rejected: int
    step: int


def preference_pairs(
    episodes: pandas.DataFrame, *, per_task: int = 8, margin: float = 1.0, shared: Shared = "messages"
) -> tuple[pandas.DataFrame, dict[str, Any]]:
    """Pair the successes with the failures of each task.

    Two episodes make a pair when the first thing in which they differ is what the assistant did. Where a user or a tool
    said something else first, the difference is not the assistant's doing, and with `shared` "messages" there is no pair.
    With "calls" a pair is made wherever the calls and the tools' replies are the same up to the cut, though the words
    around them are not, as with a user who phrases the same wish anew: weaker, but it is what logs of conversations
    give. Then both sides are one turn long, the prompt is what the failed agent saw, and both turns are calls.

    Within a task those pairs are taken whose episodes have been used least so far, then the wider margin, then the later cut.

    Args:
        episodes: `trace_id`, `task_id`, `split`, `label` (0 to 1, NaN where unknown, which is left out), `messages` and
            `tools` (JSON text).
        per_task: At most so many pairs of a task.
        margin: The least difference of two labels.
        shared: What the two must have in common before the cut.

    Returns:
        A frame with `PAIR_COLUMNS`: `prompt`, `chosen` and `rejected` are messages as JSON text. And a report: how many
        tasks have both a success and a failure, pairs, pairs by split, and why candidates made none.
    """
    import pandas

    groups: dict[str, list[_Episode]] = defaultdict(list)
    known = episodes[episodes["label"].notna() & (episodes["task_id"] != "")]
    for trace_id, task_id, split, label, text, tools in known[list(NEEDED)].itertuples(index=False, name=None):
        messages = json.loads(text)
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
                if isinstance(cut, str):
                    refused[cut] += 1
                else:
                    candidates.append((chosen, rejected, cut))
        rows += [_row(task_id, *pair, shared) for pair in _choose(candidates, per_task)]
    frame = pandas.DataFrame(rows, columns=list(PAIR_COLUMNS))
    report = {
        "tasks_with_both": mixed,
        "pairs": len(frame),
        "by_split": {split: int(count) for split, count in sorted(Counter(frame["split"]).items())},
        "no_pair_because": dict(sorted(refused.items())),
    }
    return frame, report


def _cut(chosen: _Episode, rejected: _Episode, shared: Shared) -> Cut | str:
    """Where two episodes part, or why they make no pair."""
    if shared == "calls":
        return _cut_at_calls(chosen, rejected)
    pairs = zip(chosen.words, rejected.words, strict=False)
    place = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    if place is None:
        return "one is the beginning of the other"
    if chosen.messages[place]["role"] != "assistant" or rejected.messages[place]["role"] != "assistant":
        return "the user or a tool said something else first"
    return Cut(place, place, sum(len(message.get("tool_calls") or []) for message in chosen.messages[:place]))


def _cut_at_calls(chosen: _Episode, rejected: _Episode) -> Cut | str:
    """The first turns with calls that differ, after equal calls with equal replies."""
    one, other = (_steps(episode) for episode in (chosen, rejected))
    place = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a[1:] != b[1:]), None)
    if place is None:
        return "one is the beginning of the other"
    (chosen_at, chosen_calls, _), (rejected_at, rejected_calls, _) = one[place], other[place]
    if chosen_calls == rejected_calls:
        return "the user or a tool said something else first"
    return Cut(chosen_at, rejected_at, sum(len(calls) for _, calls, _ in one[:place]))


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
    """Each message without ids, and of a turn that calls something only the calls: equal where messages say the same."""
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


def _row(task_id: str, chosen: _Episode, rejected: _Episode, cut: Cut, shared: Shared) -> tuple[Any, ...]:
    ends = (None, None) if shared == "messages" else (cut.chosen + 1, cut.rejected + 1)
    better, worse = chosen.messages[cut.chosen : ends[0]], rejected.messages[cut.rejected : ends[1]]
    texts = [json.dumps(part, ensure_ascii=False) for part in (rejected.messages[: cut.rejected], better, worse)]
    identity = content_hash([task_id, chosen.trace_id, rejected.trace_id, shared])
    traces = (chosen.trace_id, rejected.trace_id)
    return (identity, task_id, rejected.split, shared, cut.step, *texts, rejected.tools, *traces, chosen.label - rejected.label)
