"""Plays logged episodes again, in the environment they claim to come from, and verifies the outcome.

Nothing a log says of its own success is trusted: the success of an episode is what the verifier says
of the state that its calls lead to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, Trace, canonical_json
from tracewheel.environments import Environment, make_environment, opening_of
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.scoring.verifiers import make_verifier

if TYPE_CHECKING:
    import pandas

TOLERANCE = 1e-6


@dataclass(frozen=True)
class Replay:
    """An episode played again.

    `success` is None when it cannot be known: the tools said something else than in the log
    (`observation_drift`), or the verifier could not judge the state. `opening` is how many of the trace's messages are an
    earlier conversation that the episode goes on from.
    """

    task: Task
    success: float | None
    breakdown: dict[str, float]
    ended: bool
    observation_drift: bool
    unscored: str = ""
    opening: int = 0


def replay_trace(trace: Trace, environment: Environment) -> Replay:
    """Play the calls of a trace again.

    Raises:
        DataError: the trace has no starting point for this environment; the message says why.
    """
    if trace.environment is None:
        raise DataError("no environment logged")
    if trace.environment["kind"] != environment.kind:
        raise DataError("another environment")
    prompt = trace.environment.get("prompt") or next((m["content"] for m in trace.messages if m["role"] == "user"), None)
    if not isinstance(prompt, str) or not prompt:
        raise DataError("no prompt")
    task = environment.task_from_log(prompt, trace.environment)
    environment.reset(task)
    # What was called before the prompt has been carried out by the reset.
    before = len(opening_of(environment, task))
    own = after_opening(trace.messages, before)
    opening = len(trace.messages) - len(own) if before else 0
    ended, drift = play(own, environment)
    if drift:
        said_otherwise = "the tools replied otherwise than in the log"
        return Replay(task, None, {}, ended, observation_drift=True, unscored=said_otherwise, opening=opening)
    success, breakdown, unscored = judge(task, environment)
    return Replay(task, success, breakdown, ended, observation_drift=False, unscored=unscored, opening=opening)


def probe(task: Task, environment: Environment) -> str:
    """Why a task is unfit to be set, or "": it must be judgeable, and give nothing for doing nothing at all."""
    environment.reset(task)
    total, _, unscored = judge(task, environment)
    if total is None:
        return unscored
    return "solved by doing nothing" if total > 0 else ""


def replay_traces(traces: pandas.DataFrame, environment_kind: str) -> tuple[pandas.DataFrame, dict[str, Task]]:
    """Replay every trace of a frame of Trace records.

    Returns:
        The frame with the columns `task_id`, `fingerprint`, `success` (NaN when unscored), `breakdown`
        (JSON text), `ended`, `reward_drift`, `observation_drift`, `dropped` (why the trace is of no
        use, or ""), `unscored` (why, or ""), `opening` (see `Replay`) and `judged` (what a judge said, from 0 to 1, NaN where
        the log has no such thing); and the tasks by id.
    """
    import pandas

    environment = make_environment(environment_kind)
    # A recorded environment says how near an episode comes to a success, which a reward need not agree with.
    proves = not environment_kind.startswith(RECORDED)
    tasks: dict[str, Task] = {}
    rows = []
    for record in traces.to_dict("records"):
        trace = Trace.from_record({str(key): value for key, value in record.items()})
        try:
            replay = replay_trace(trace, environment)
        except DataError as error:
            rows.append(_row(dropped=str(error)))
            continue
        tasks.setdefault(replay.task.id, replay.task)
        drift = proves and _disagrees(trace.outcome, replay.success)
        rows.append(_row(replay, reward_drift=drift, judged=_judged(trace.info)))
    columns = list(_row())
    return pandas.concat([traces.reset_index(drop=True), pandas.DataFrame(rows, columns=columns)], axis=1), tasks


def _row(
    replay: Replay | None = None, *, dropped: str = "", reward_drift: bool = False, judged: float | None = None
) -> dict[str, Any]:
    return {
        "task_id": replay.task.id if replay else "",
        "fingerprint": replay.task.fingerprint if replay else "",
        "success": float("nan") if replay is None or replay.success is None else replay.success,
        "breakdown": canonical_json(replay.breakdown if replay else {}),
        "ended": bool(replay and replay.ended),
        "reward_drift": reward_drift,
        "observation_drift": bool(replay and replay.observation_drift),
        "dropped": dropped,
        "unscored": replay.unscored if replay else "",
        "opening": replay.opening if replay else 0,
        "judged": float("nan") if judged is None else judged,
    }


def judge(task: Task, environment: Environment) -> tuple[float | None, dict[str, float], str]:
    """Total, breakdown, and why there is no total, or ""."""
    verifier = make_verifier(task.verifier)
    try:
        total, breakdown = verifier.verify(task, environment.snapshot())
    except Exception as error:  # a verifier, maybe a user's own, raises whatever it likes on a state it cannot judge
        return None, {}, f"the verifier cannot judge: {type(error).__name__}: {error}"
    return float(total), breakdown, ""


def play(messages: list[dict[str, Any]], environment: Environment) -> tuple[bool, bool]:
    """Carry out the calls of an episode: whether it ended, and whether a tool replied otherwise than in the log."""
    replies: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or []:
            observation = environment.step(call["function"]["name"], json.loads(call["function"]["arguments"]))
            if observation.done:
                return True, False
            replies[call["id"]] = observation.text
        if message["role"] == "tool" and replies.get(message["tool_call_id"]) != message["content"]:
            return False, True
    return False, False


def after_opening(messages: list[dict[str, Any]], before: int) -> list[dict[str, Any]]:
    """The messages but for the first `before` that are not the system's."""
    spoken = [index for index, message in enumerate(messages) if message["role"] != "system"]
    return messages[spoken[before] :] if before < len(spoken) else []


def _judged(info: Mapping[str, Any]) -> float | None:
    """A judge's score, as the readers leave it in a trace; another log's field of that name may be anything."""
    judged = info.get("judged")
    return float(judged) if isinstance(judged, int | float) and 0 <= judged <= 1 else None


def _disagrees(outcome: float | None, success: float | None) -> bool:
    """Whether a logged reward differs from a replayed one. pandas hands a missing reward over as NaN."""
    if outcome is None or outcome != outcome or success is None:
        return False
    return abs(outcome - success) > TOLERANCE
