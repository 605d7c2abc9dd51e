"""Replays logged episodes in their environment and verifies the outcome.

The log's own reward is never trusted: the success of an episode is the verifier's score of the state that its calls lead to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracewheel.core.endings import prompt_is_cut
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.kind_table import OWN_CLASS
from tracewheel.core.kinds import parse_kind
from tracewheel.core.own_code import named, reason
from tracewheel.core.types import Task, Trace, canonical_json
from tracewheel.curation.agreement import OTHER_REPLIES, Difference, OtherReply
from tracewheel.curation.labels import label_of
from tracewheel.curation.openings import after_opening, is_text_turn
from tracewheel.environments import (
    Environment,
    Observation,
    Refusal,
    member_for,
    open_environment,
    opening_messages,
    repeats_replies,
)
from tracewheel.environments.recorded.calls import parsed_arguments, reports_failure
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.environments.recorded.traces import CUT_PROMPT
from tracewheel.scoring.verifiers import Episode, episode_from, make_verifier, verdict_of
from tracewheel.traces.ingested_folder import JUDGE, LATE

if TYPE_CHECKING:
    import pandas

TOLERANCE = 1e-6
NO_OTHER_SUCCESS = "no other success of the task is logged to compare this one with"
NOT_TRIED = "nobody has tried this task"
BROKEN_CALL = "error: the call's arguments are not a JSON object"


@dataclass(frozen=True)
class Replay:
    """A replayed episode.

    Attributes:
        task: The task behind it.
        success: The verifier's score; None where the tools replied otherwise than in the log (`observation_drift`) or the
            verifier could not judge the state.
        breakdown: The parts of the score.
        ended: Whether a call ended the episode.
        difference: The first reply that is not as logged; None where all are.
        unscored: Why there is no score, or "".
        opening: Number of the trace's messages that belong to an earlier conversation.
        solution: Whether the calls are a known solution of the task, because the log calls the trace a success. Only in a
            recorded environment, where `success` compares the trace with the other successes and never with itself.
    """

    task: Task
    success: float | None
    breakdown: dict[str, float]
    ended: bool
    difference: Difference | None = None
    unscored: str = ""
    opening: int = 0
    solution: bool = False

    @property
    def observation_drift(self) -> bool:
        """Whether a tool replied otherwise than in the log."""
        return self.difference is not None


def replay_trace(trace: Trace, environment: Environment) -> Replay:
    """Replay the calls of a trace.

    Raises:
        DataError: the trace has no starting point in this environment; the message says why.
    """
    if prompt_is_cut(trace.messages):
        raise DataError(CUT_PROMPT)
    if trace.environment is None:
        raise DataError("no environment logged")
    logged = trace.environment["kind"]
    member = member_for(environment, logged)
    if member is None:
        raise DataError(f"another environment: the log names {logged!r:.60}, the profile '{environment.kind}'")
    environment = member
    prompt = trace.environment.get("prompt") or next((m["content"] for m in trace.messages if m["role"] == "user"), None)
    if not isinstance(prompt, str) or not prompt:
        raise DataError("no prompt")
    task = environment.task_from_log(prompt, trace.environment)
    _check_verifier(task, trace.environment, getattr(environment, "verifiers", None))
    environment.reset(task)
    if not is_tried(trace.messages):
        return Replay(task, None, {}, ended=False, unscored=NOT_TRIED)
    # The reset has carried out the calls of the opening.
    own = after_opening(trace.messages, task, environment)
    opening = len(trace.messages) - len(own)
    ended, other = play(own, environment)
    if other:
        difference = other.described(task.id, trace.id, own)
        return Replay(task, None, {}, ended, difference, unscored=OTHER_REPLIES, opening=opening)
    solution = "solves" in trace.environment and environment.kind.startswith(RECORDED)
    if solution and trace.environment["alone"]:
        logged = LoggedEpisode(trace.messages, opening, ended)
        success, breakdown, unscored = _judged_by_others(task, trace.environment, environment, logged)
    else:
        success, breakdown, unscored = judge(task, environment, LoggedEpisode(trace.messages, opening, ended))
    return Replay(task, success, breakdown, ended, unscored=unscored, opening=opening, solution=solution)


def _check_verifier(task: Task, logged: Mapping[str, Any], declared: tuple[str, ...] | None) -> None:
    """Check that a task's verifier may be made; a record that names another is one record's fault.

    Args:
        task: The task.
        logged: What the log says of its environment.
        declared: The verifiers that the environment declares, whose code the keys of stages hold; None: it declares none.

    Raises:
        DataError: it may not, and the log names it.
        ConfigError: it may not, and the environment's code names it.
    """
    kind = parse_kind(task.verifier).kind
    try:
        make_verifier(task.verifier)
        if declared is not None and kind not in declared and not OWN_CLASS.fullmatch(kind):
            raise ConfigError(
                f"environment '{task.environment}' makes a task with the verifier '{kind}', and its class declares "
                f"{', '.join(declared) or 'none'}: name all in its `verifiers`, or leave that out"
            )
    except ConfigError as error:
        if logged.get("verifier") in (None, "") and kind not in canonical_json(logged):
            raise
        raise DataError(f"the verifier that the log names: {error}") from error


def is_tried(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a conversation is an attempt, and not only the request of a task that was never given to an agent."""
    return any(message["role"] == "assistant" for message in messages)


def _judged_by_others(
    task: Task, logged: dict[str, Any], environment: Environment, episode: LoggedEpisode
) -> tuple[float | None, dict[str, float], str]:
    """As `judge`, in a recorded environment, against the successes of the task except the one with the trace's own calls."""
    others = [calls for place, calls in enumerate(logged["references"]) if place != logged["solves"]]
    if not others:
        return None, {}, NO_OTHER_SUCCESS
    return judge(environment.task_from_log(task.prompt, {**logged, "references": others}), environment, episode)


def no_op_problem(task: Task, environment: Environment) -> str:
    """Why a task must not be used, or "": doing nothing must be judged, and score 0."""
    environment.reset(task)
    total, _, unscored = judge(task, environment)
    if total is None:
        return unscored
    return "solved by doing nothing" if total > 0 else ""


def replayed_rows(traces: pandas.DataFrame, environment_kind: str) -> Iterator[tuple[dict[str, Any], Task | None]]:
    """Replay every trace of a frame: what each row gains, and the trace's own task.

    That is `task_id`, `fingerprint`, `success` (NaN when unscored), `breakdown` (JSON text), `ended`, `reward_drift`,
    `observation_drift`, `dropped` (why the trace cannot be used, or ""), `unscored` (why, or ""), `opening` (see `Replay`),
    `judged` (a judge's score from 0 to 1 in the log, NaN where there is none), `solution` and `difference` (see `Replay`). In a
    recorded environment `success` is the logged reward, else the judge's score, else the similarity to other successes.
    Traces of one task may log its state in different orders of keys, so their tasks differ in that order. The task is None
    for a trace that cannot be used.
    """
    with open_environment(environment_kind) as environment:
        yield from _replayed_rows(traces, environment, proves=not environment_kind.startswith(RECORDED))


def _replayed_rows(
    traces: pandas.DataFrame, environment: Environment, *, proves: bool
) -> Iterator[tuple[dict[str, Any], Task | None]]:
    # A recorded environment measures similarity to a success, which need not agree with the reward.
    for record in traces.to_dict("records"):
        trace = Trace.from_record({str(key): value for key, value in record.items()})
        try:
            replay = replay_trace(trace, environment)
        except Exception as error:
            yield _row(dropped=reason(error)), None
            continue
        drift, judged = proves and _disagrees(trace.outcome, replay.success), _judged(trace.info)
        if not proves:
            # Similarity to other successes is the weakest evidence: the log's own reward and judge come before it.
            replay = replace(replay, success=label_of(None, trace.outcome, replay.success if judged is None else judged).value)
        yield _row(replay, reward_drift=drift, judged=judged), replay.task


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
        "solution": bool(replay and replay.solution),
        "difference": replay.difference if replay else None,
    }


@dataclass(frozen=True)
class LoggedEpisode:
    """The conversation of a replayed episode, for verifiers that see it.

    Attributes:
        messages: All messages.
        opening: How many of them are an earlier conversation.
        ended: Whether a call or an answer ended it.
    """

    messages: list[dict[str, Any]]
    opening: int = 0
    ended: bool = False

    def seen(self, state: dict[str, Any]) -> Episode:
        """As a verifier sees it, with this final state."""
        places = range(self.opening, len(self.messages))
        start = next((place for place in places if self.messages[place]["role"] == "assistant"), len(self.messages))
        said = len(self.messages) > start and is_text_turn(self.messages, len(self.messages) - 1)
        stop_reason = "finished" if self.ended else "no_tool_call" if said else ""
        return episode_from(self.messages, start, state, stop_reason=stop_reason)


def judge(
    task: Task, environment: Environment, episode: LoggedEpisode | None = None
) -> tuple[float | None, dict[str, float], str]:
    """Total, breakdown, and why there is no total, or "".

    Args:
        task: The task.
        environment: In its final state.
        episode: What was said; None: nothing was, after the opening messages.
    """
    verifier = make_verifier(task.verifier)
    try:
        state = environment.snapshot()
        verdict = verdict_of(verifier, task, state, lambda: (episode or _nothing_said(task, environment)).seen(state))
    except Exception as error:  # a user's verifier may raise anything on a state it cannot judge
        return None, {}, f"the verifier cannot judge: {named(error)}"
    return verdict.total, dict(verdict.parts), ""


def _nothing_said(task: Task, environment: Environment) -> LoggedEpisode:
    messages = opening_messages(environment, task)
    return LoggedEpisode(messages, len(messages))


def play(messages: list[dict[str, Any]], environment: Environment) -> tuple[bool, OtherReply | None]:
    """Carry out the calls of an episode: returns whether it ended, and the first reply that is not as in the log.

    A call with broken arguments, of a tool that is not offered or against its schema is the failure that it was: no tool sees
    it, and any reply that reports a failure is the logged one; so it is with an exception that is the tool's answer. A reply
    that reports none says that the log's agent had the call repaired, which no replay can repeat.

    An environment that answers turns without a call is told of them, unless its answers differ from time to time. What it
    answers is not compared: the log says what the user said.

    Raises:
        DataError: the environment blames someone for a failure.
    """
    replies: dict[str, tuple[str, bool]] = {}  # and whether the log has it in other words
    answers = repeats_replies(environment)
    for place, message in enumerate(messages):
        if answers and is_text_turn(messages, place):
            if _going_on(environment.reply(message["content"] or "")).done:  # type: ignore[attr-defined]
                return True, None
            continue
        for call in message.get("tool_calls") or []:
            arguments = parsed_arguments(call["function"]["arguments"])
            if not isinstance(arguments, dict):
                replies[call["id"]] = BROKEN_CALL, True
                continue
            observation = _going_on(environment.step(call["function"]["name"], arguments))
            if observation.done:
                return True, None
            replies[call["id"]] = observation.text, isinstance(observation, Refusal)
        if message["role"] == "tool":
            said, (expected, failed) = message["content"] or "", replies.get(message["tool_call_id"], ("", False))
            if said != expected and not (failed and reports_failure(said)):
                return False, OtherReply(place, expected)
    return False, None


def _going_on(observation: Observation) -> Observation:
    if observation.fault:
        raise DataError(f"the replay fails, through the fault of the {observation.fault}: {observation.text}")
    return observation


def _judged(info: Mapping[str, Any]) -> float | None:
    """The judge's score that the readers left in a trace, or the latest that was said later; a field may hold anything."""
    late = info.get(LATE)
    kinds = late.get("kinds") if isinstance(late, dict) else None
    judged = kinds.get(JUDGE) if isinstance(kinds, dict) and JUDGE in kinds else info.get("judged")
    return float(judged) if isinstance(judged, int | float) and 0 <= judged <= 1 else None


def _disagrees(outcome: float | None, success: float | None) -> bool:
    """Whether a logged reward differs from a replayed one. A missing reward may be NaN, from pandas."""
    if outcome is None or outcome != outcome or success is None:
        return False
    return abs(outcome - success) > TOLERANCE
