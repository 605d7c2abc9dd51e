"""Making a recording out of traces, and telling which tool sets the traces were logged with."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.types import content_hash
from tracewheel.environments.recorded.calls import calls_in, exact_key, normalised_key, parameters_of
from tracewheel.environments.recorded.recording import ABOUT_FILE, CALLS_FILE, RECORDING_VERSION
from tracewheel.environments.recorded.toolsets import merged_tools

if TYPE_CHECKING:
    import pandas

# Worlds count as one when so large a share of the calls that several tasks begin with is answered alike.
AGREEMENT = 0.9
COLUMNS = ("trace_id", "task", "position", "tool", "arguments", "exact_key", "normalised_key", "reply")


def build_recording(
    traces: pandas.DataFrame, out: Path, *, free_tools: Collection[str] = (), shared_world: bool | None = None
) -> dict[str, Any]:
    """Write a recording of the traces of one tool set to the folder `out`.

    Args:
        traces: Trace records (`id`, `messages`, `tools` and, where they have it, `task`, `environment`, `tools_inferred`).
        free_tools: Tools whose calls change nothing and whose replies say nothing, as a tool to think aloud with:
            every call of them is answered with an empty text, and none is matched.
        shared_world: Whether a trace of one task may answer for another. None: it is measured. Where nine in ten of
            the first calls that traces of several tasks made are answered alike, their world is one.

    Returns:
        What `recording.json` says: counts, the share of `agreement` measured (None where nothing could be compared).

    Raises:
        DataError: there are no calls, the traces have several tool sets, or a free tool is not in the set.
    """
    import pandas

    tools = merged_tools(traces)
    unknown = sorted(set(free_tools) - set(parameters_of(tools)))
    if unknown:
        raise DataError(
            f"free tools: no tool of the traces is called {unknown[0]}; there are {', '.join(parameters_of(tools))}"
        )
    calls = pandas.DataFrame(_rows(traces, tools), columns=list(COLUMNS))
    if calls.empty:
        raise DataError(f"none of the {len(traces)} traces has a tool call; there is nothing to record")
    agreement = world_agreement(calls[~calls["tool"].isin(list(free_tools))])
    shared = bool(agreement is not None and agreement >= AGREEMENT) if shared_world is None else shared_world
    replies = calls.groupby(["task", "normalised_key"])["reply"].nunique(dropna=False)
    about = {
        "version": RECORDING_VERSION,
        "tools": tools,
        "free_tools": sorted(free_tools),
        "shared_world": shared,
        "agreement": agreement,
        "traces": len(traces),
        "tasks": int(calls["task"].nunique()),
        "calls": len(calls),
        "distinct_calls": int(calls["normalised_key"].nunique()),
        "state_dependent_calls": int((replies > 1).sum()),
        "calls_by_tool": {name: int(count) for name, count in sorted(Counter(calls["tool"]).items())},
    }
    out.mkdir(parents=True, exist_ok=True)
    calls.to_parquet(out / CALLS_FILE, index=False)
    about["id"] = content_hash([digest_file(out / CALLS_FILE), about])
    # Not sorted by key: a schema whose keys stand in another order makes other tokens.
    (out / ABOUT_FILE).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return about


def log_task(record: dict[str, Any]) -> str:
    """The name of the task that a Trace record is of.

    That is the log's own name; where the log has none, traces share a task that begin with the same words of system and
    user from the same logged starting point.
    """
    if isinstance(name := record.get("task"), str) and name:
        return name
    messages = json.loads(record["messages"])
    first = next((index for index, message in enumerate(messages) if message["role"] == "user"), len(messages))
    opening = [[message["role"], message.get("content")] for message in messages[: first + 1]]
    environment = record.get("environment")
    return f"log-{content_hash([opening, environment if isinstance(environment, str) else 'null'])}"


def world_agreement(calls: pandas.DataFrame) -> float | None:
    """How far traces of different tasks heard the same, when they made the same call before any other had changed anything.

    Only first calls of a trace are compared, because later ones may have met a world that the trace itself has changed.

    Args:
        calls: A frame with the columns of `calls.parquet`.

    Returns:
        Of the calls that open traces of several tasks, the share whose most common reply these traces agree on,
        weighted by the number of tasks; None where no call opens traces of several tasks.
    """
    opening = calls[calls.groupby("trace_id").cumcount() == 0]
    agreed = compared = 0
    for _, group in opening.groupby("normalised_key"):
        replies: dict[str, Counter[Any]] = defaultdict(Counter)
        for task, reply in zip(group["task"], group["reply"], strict=True):
            replies[task][reply] += 1
        if len(replies) > 1:
            usual = Counter(heard.most_common(1)[0][0] for heard in replies.values())
            compared += len(replies)
            agreed += usual.most_common(1)[0][1]
    return agreed / compared if compared else None


def _rows(traces: pandas.DataFrame, tools: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    parameters = parameters_of(tools)
    numbers: dict[str, int] = defaultdict(int)
    for row in traces.to_dict("records"):
        record = {str(name): value for name, value in row.items()}
        task, trace_id = log_task(record), str(record["id"])
        for call in calls_in(json.loads(record["messages"])):
            if call.name not in parameters:
                continue  # an invented tool: what was said to it is no reply of a tool
            keys = exact_key(call.name, call.arguments), normalised_key(call.name, call.arguments, parameters)
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            yield (trace_id, task, numbers[trace_id], call.name, arguments, *keys, call.reply)
            numbers[trace_id] += 1
