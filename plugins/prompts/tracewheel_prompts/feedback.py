"""What the reflection model reads of an episode: what our graders know. Only training tasks come here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tracewheel import (
    Episode,
    Score,
    Task,
    Trajectory,
    canonical_json,
    episode_from,
    logged_solutions,
    open_environment,
    play_calls,
    success_of,
)
from tracewheel_prompts.prompt import cut
from tracewheel_screening import without

Record = dict[str, Any]
LONGEST_REPLY, LONGEST_VALUE, MOST_CALLS, MOST_DIFFERENCES = 300, 120, 30, 12


def record_of(task: Task, trajectory: Trajectory, score: Score, reached: Any = None) -> Record:
    """An episode as GEPA shows it: inputs, what the policy did, feedback.

    Args:
        task: The task; its goal is not read.
        trajectory: The episode.
        score: Its score.
        reached: The state in which a verified episode of the task's logs ended; None where none is logged.
    """
    places = [at for at, one in enumerate(trajectory.messages) if one["role"] == "assistant"]
    own = places[max(0, len(places) - len(trajectory.turns)) :]
    start = own[0] if own else len(trajectory.messages)
    episode = episode_from(
        trajectory.messages, start, trajectory.final_state, turns=trajectory.turns, stop_reason=trajectory.stop_reason
    )
    texts, _ = without([task.prompt, *_did(episode)], prose=False)
    return {
        "Inputs": {"request": texts[0]},
        "Generated Outputs": "\n".join(texts[1:]),
        "Feedback": "\n".join(_told(episode, trajectory, score, reached)),
    }


def shown(record: Record) -> Record:
    """A record in the order in which it is read, which one that comes back from a journal has lost."""
    return {name: record[name] for name in ("Inputs", "Generated Outputs", "Feedback")}


def _did(episode: Episode) -> list[str]:
    calls = [
        f"{number}. {call.name}({json.dumps(call.arguments, ensure_ascii=False)})"
        + (" [malformed]" if call.malformed else "")
        + ("" if call.result is None else f" -> {cut(call.result, LONGEST_REPLY)}")
        for number, call in enumerate(episode.calls[:MOST_CALLS], 1)
    ]
    more = len(episode.calls) - MOST_CALLS
    said = [f"It said: {cut(episode.final_text, LONGEST_REPLY)}"] if episode.final_text else []
    return [*calls, *([f"… {more} more calls"] if more > 0 else []), *said]


def _told(episode: Episode, trajectory: Trajectory, score: Score, reached: Any) -> Iterator[str]:
    success = "success" if success_of(score) == 1.0 else "no success"
    yield f"Score {'unknown' if score.total is None else format(score.total, '.2f')}, {success}."
    if score.breakdown:
        yield "Its parts: " + ", ".join(f"{name} {value:.2f}" for name, value in sorted(score.breakdown.items())) + "."
    if score.explanation:
        yield f"The grader says: {cut(score.explanation, LONGEST_REPLY)}"
    failed = [(number, call) for number, call in enumerate(episode.calls, 1) if call.error or call.malformed]
    for place, (number, call) in enumerate(failed[:3]):
        which = "First failing step" if not place else "Another"
        why = cut("could not be read" if call.malformed else call.result or "", LONGEST_REPLY)
        yield f"{which}: call {number}, {call.name}: {without([why], prose=False)[0][0]}"
    if trajectory.stop_reason not in ("finished", ""):
        yield f"It ended by: {trajectory.stop_reason} {cut(trajectory.detail, LONGEST_REPLY)}".rstrip() + "."
    if reached is not None and not success_of(score):
        found = list(differences(reached, trajectory.final_state))
        if found:
            yield "Where the final state differs from that of a verified episode of this task:"
            yield from found[:MOST_DIFFERENCES]
            yield from [f"… {len(found) - MOST_DIFFERENCES} more"] if len(found) > MOST_DIFFERENCES else []


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """What two states differ in, one line each.

    >>> list(differences({"a": 1, "b": 2}, {"a": 1, "c": 3}))
    ['b is missing: 2', 'c is there: 3']
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted({*wanted, *found}):
            inner = f"{path}.{key}" if path else str(key)
            if key not in found:
                yield f"{inner} is missing: {_value(wanted[key])}"
            elif key not in wanted:
                yield f"{inner} is there: {_value(found[key])}"
            else:
                yield from differences(wanted[key], found[key], inner)
    elif wanted != found:
        yield f"{path or 'it'} is {_value(found)}, not {_value(wanted)}"


def _value(value: Any) -> str:
    return cut(canonical_json(value), LONGEST_VALUE)


def verified_states(curated: Any, tasks: Sequence[Task]) -> dict[str, Any]:
    """The final states of verified logged episodes, by task; tasks without one are left out.

    Args:
        curated: The curated folder.
        tasks: Training tasks.
    """
    known = logged_solutions(curated, tasks)
    states: dict[str, Any] = {}
    for task in tasks:
        if task.id in known:
            with open_environment(task.environment) as environment:
                play_calls(environment, task, known[task.id])
                states[task.id] = environment.snapshot()
    return states
