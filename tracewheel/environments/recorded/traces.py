"""Traces as episodes of a recorded environment, with the `environment` object that replays need."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tracewheel.core.endings import prompt_is_cut, without_endings
from tracewheel.core.types import content_hash, stored_json
from tracewheel.environments.recorded.build import log_task
from tracewheel.environments.recorded.calls import LoggedCall, calls_in
from tracewheel.environments.recorded.environment import comparable

if TYPE_CHECKING:
    import pandas

By = Literal["turn", "episode"]
Record = dict[str, Any]
NO_SUCCESS_HERE = "no successful trace calls a tool after this conversation"
NO_USER = "no user message"
CUT_PROMPT = "the exporter of the log cut its prompt"


@dataclass(frozen=True)
class _Stretch:
    """Part of a trace: the messages before a user message, that message, and the replies up to the next one."""

    record: Record
    number: int
    task: str
    prompt: str
    context: list[dict[str, Any]]
    rest: list[dict[str, Any]]
    only: bool = True

    @property
    def calls(self) -> list[LoggedCall]:
        return calls_in(self.rest)


def recorded_episodes(
    traces: pandas.DataFrame, kind: str, *, by: By = "turn", success: Mapping[str, float] | None = None
) -> tuple[pandas.DataFrame, dict[str, Any]]:
    """Add the `environment` to trace records from which the recorded environment `kind` makes and replays tasks.

    - By "turn", a trace gives one record for each user message, with `-turn<n>` appended to its `id`. The record ends
      before the next user message, so that a policy can solve the task without a user to talk to. Its references are the
      calls of successful traces after the same conversation; user messages after which no success calls a tool are
      dropped.
    - By "episode", a trace gives one record, whose references are all calls of each successful trace of its task. With
      several user messages such a task is for comparisons (labels, divergence, pairs), not for rollouts.

    `solves` in `environment` is the position of a successful trace's own calls among the references, and `alone` says that no
    other success made them: a trace is not judged against itself.

    A record without a session gets the name of its task as session, so that splits keep attempts at a task together. One
    of several turns has neither the outcome nor the judge's opinion of its trace, because both are of the whole trace.

    Args:
        traces: Trace records of one tool set.
        kind: `recorded:PATH`.
        by: One record for each turn or for each episode.
        success: Outcome by trace id, instead of the logged one; 1 is a success.

    Returns:
        The records, and what became of the traces: `by`; `traces` by their outcome (`success`, `failure`, `unknown`), and
        `traces_used`, those with a record, in the same way; `records`; and `left_out`: the user messages (or traces) without
        a record, by reason.
    """
    import pandas

    known = dict(zip(traces["id"], traces["outcome"], strict=True)) if success is None else success
    wins = {str(trace_id) for trace_id, outcome in known.items() if outcome is not None and outcome >= 1.0}
    is_cut = traces["messages"].map(lambda messages: prompt_is_cut(json.loads(messages))).astype(bool)
    whole = traces[~is_cut]
    stretches = [stretch for record in _records(whole) for stretch in (_turns(record) if by == "turn" else _whole(record))]
    identities = [_identity(stretch, by) for stretch in stretches]
    references: dict[str, dict[str, list[Record]]] = defaultdict(dict)
    makers: dict[tuple[str, str], set[str]] = defaultdict(set)
    made: list[str] = []
    prompts: dict[str, tuple[str, _Stretch]] = {}
    for identity, stretch in zip(identities, stretches, strict=True):
        calls = [{"name": call.name, "arguments": call.arguments} for call in stretch.calls if isinstance(call.arguments, dict)]
        made.append(content_hash(calls) if stretch.record["id"] in wins and (calls or by == "episode") else "")
        if made[-1]:
            references[identity].setdefault(made[-1], calls)
            makers[identity, made[-1]].add(stretch.record["id"])
        # All attempts at a task get the prompt of one of them, a success if there is one.
        rank = f"{stretch.record['id'] not in wins:d} {stretch.record['id']}"
        prompts[identity] = min(prompts.get(identity, (rank, stretch)), (rank, stretch), key=lambda pair: pair[0])
    rows = []
    for identity, stretch, own in zip(identities, stretches, made, strict=True):
        if by == "turn" and not references[identity]:
            continue
        logged: Record = {"references": list(references[identity].values())}
        if own:
            logged |= {"solves": list(references[identity]).index(own), "alone": len(makers[identity, own]) == 1}
        rows.append((stretch.record["id"], _row(stretch, kind, by, prompts[identity][1], logged)))
    lost = NO_SUCCESS_HERE if by == "turn" else NO_USER
    counts = {
        "by": by,
        "traces": _outcomes(known, set(traces["id"])),
        "traces_used": _outcomes(known, {trace_id for trace_id, _ in rows}),
        "records": len(rows),
        "left_out": {lost: (len(stretches) if by == "turn" else len(whole)) - len(rows)}
        | ({CUT_PROMPT: int(is_cut.sum())} if is_cut.any() else {}),
    }
    return pandas.DataFrame([row for _, row in rows], columns=list(traces.columns)), counts


def _outcomes(known: Mapping[str, float | None], trace_ids: Iterable[str]) -> dict[str, int]:
    """How many of these traces are successes, failures, and neither as far as is known."""
    outcomes = [known.get(trace_id) for trace_id in trace_ids]
    scored = [outcome for outcome in outcomes if outcome is not None and outcome == outcome]
    wins = sum(outcome >= 1.0 for outcome in scored)
    return {"success": wins, "failure": len(scored) - wins, "unknown": len(outcomes) - len(scored)}


def _records(traces: pandas.DataFrame) -> Iterator[Record]:
    for row in traces.to_dict("records"):
        yield {str(name): value for name, value in row.items()}


def _whole(record: Record) -> Iterator[_Stretch]:
    messages = json.loads(record["messages"])
    first = _users(messages)[:1]
    for index in first:
        yield _Stretch(record, 0, log_task(record), messages[index]["content"], messages[:index], messages[index + 1 :])


def _turns(record: Record) -> Iterator[_Stretch]:
    messages = json.loads(record["messages"])
    starts = _users(messages)
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(messages)], strict=True)):
        prompt = messages[start]["content"]
        yield _Stretch(record, number, log_task(record), prompt, messages[:start], messages[start + 1 : end], len(starts) == 1)


def _without_opinion(record: Record) -> str:
    """The `info` of a trace without the judge's opinion."""
    info = json.loads(record["info"]) if isinstance(record.get("info"), str) else {}
    return stored_json({name: value for name, value in info.items() if name != "judged"})


def _users(messages: list[dict[str, Any]]) -> list[int]:
    """Positions of user messages; of several in a row only the last."""
    spoke = [index for index, message in enumerate(messages) if message["role"] == "user" and message.get("content")]
    return [index for index in spoke if index + 1 == len(messages) or messages[index + 1]["role"] != "user"]


def _identity(stretch: _Stretch, by: By) -> str:
    if by == "episode":
        return stretch.task
    return content_hash([stretch.task, comparable(stretch.context), stretch.prompt])


def _row(stretch: _Stretch, kind: str, by: By, asked: _Stretch, solutions: Record) -> Record:
    logged = {
        "kind": kind,
        "prompt": asked.prompt,
        "task": stretch.task,
        # An episode begins with the user's message: earlier messages of the agent are replayed with the rest.
        "context": [message for message in asked.context if message["role"] == "system"]
        if by == "episode"
        else without_endings(stretch.context),
        **solutions,
    }
    record = stretch.record
    session = record.get("session")
    changes: Record = {
        "environment": stored_json(logged),
        "session": session if isinstance(session, str) and session else f"task {stretch.task}",
    }
    if by == "turn":
        said = [*stretch.context, {"role": "user", "content": stretch.prompt}, *stretch.rest]
        changes |= {"id": f"{record['id']}-turn{stretch.number}", "messages": json.dumps(said, ensure_ascii=False)}
        if not stretch.only:
            changes |= {"outcome": None, "info": _without_opinion(record)}
    return {**record, **changes}
