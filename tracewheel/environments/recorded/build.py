"""Building a recording from traces."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.types import canonical_json, content_hash
from tracewheel.environments.recorded.calls import calls_in, exact_key, normalised_key, parameters_of
from tracewheel.environments.recorded.recording import ABOUT_FILE, CALLS_FILE, RECORDING_VERSION

if TYPE_CHECKING:
    import pandas


Tool = dict[str, Any]
SHOWN = 5


def tool_sets(traces: pandas.DataFrame) -> pandas.Series:
    """The name of each trace's tool set: its tool names, or its format and "inferred" without logged tools.

    An agent's tools are one set, whichever programs have logged it: its log of before, and that of `serve`. Inferred tools are
    the ones that a trace called, so traces of one format without logged tools form one set. Traces without tools have the
    name "".
    """
    import pandas

    names = []
    columns = zip(traces["tools"], _column(traces, "tools_inferred", False), _column(traces, "format", ""), strict=True)
    for tools, inferred, source in columns:
        offered = sorted({tool["function"]["name"] for tool in json.loads(tools)})
        names.append(f"{source}: inferred" if inferred else ", ".join(offered))
    return pandas.Series(names, index=traces.index, dtype=object)


def merged_tools(traces: pandas.DataFrame) -> list[Tool]:
    """The tools of traces of one set, in the order of the log; inferred schemas of one tool are merged.

    Raises:
        DataError: the traces have several tool sets; the message counts them.
    """
    sets = Counter(name for name in tool_sets(traces) if name)
    if len(sets) > 1:
        shown = "; ".join(f"{name[:80]} ({count} traces)" for name, count in sets.most_common(SHOWN))
        raise DataError(f"the traces have {len(sets)} tool sets, a recording needs one: {shown}")
    tools: dict[str, Tool] = {}
    for logged, inferred in zip(traces["tools"], _column(traces, "tools_inferred", False), strict=True):
        for tool in json.loads(logged):
            name = tool["function"]["name"]
            tools[name] = _joined(tools[name], tool) if inferred and name in tools else tools.get(name, tool)
    return list(tools.values())


def _joined(one: Tool, other: Tool) -> Tool:
    """Merge two inferred schemas of a tool: the arguments of both, required where both require them."""
    first, second = (tool["function"].get("parameters") or {} for tool in (one, other))
    properties = {**(second.get("properties") or {}), **(first.get("properties") or {})}
    required = [name for name in first.get("required") or [] if name in (second.get("required") or [])]
    parameters = {**first, "type": "object", "properties": properties, "required": required}
    return {**one, "function": {**one["function"], "parameters": parameters}}


def _column(traces: pandas.DataFrame, name: str, missing: Any) -> list[Any]:
    return list(traces[name]) if name in traces else [missing] * len(traces)


# The world is shared if at least this share of the first calls common to several tasks gets the same reply.
AGREEMENT = 0.9
COLUMNS = ("trace_id", "task", "position", "tool", "arguments", "exact_key", "normalised_key", "reply")


def build_recording(
    traces: pandas.DataFrame, out: Path, *, free_tools: Collection[str] = (), shared_world: bool | None = None
) -> dict[str, Any]:
    """Write a recording of the traces of one tool set to the folder `out`.

    Args:
        traces: Trace records (`id`, `messages`, `tools` and, where they have it, `task`, `environment`, `tools_inferred`).
        free_tools: Tools whose calls have no effect and no informative reply, such as a tool for thinking aloud. Their
            calls get an empty reply and are not matched.
        shared_world: Whether a trace of one task may answer for another. None measures it: the world is shared if at
            least `AGREEMENT` of the first calls common to several tasks get the same reply.

    Returns:
        The contents of `recording.json`: counts, and the measured `agreement` (None where nothing could be compared).

    Raises:
        DataError: there are no calls, the traces have several tool sets, or a free tool is unknown.
    """
    import pandas

    tools = merged_tools(traces)
    unknown = sorted(set(free_tools) - set(parameters_of(tools)))
    if unknown:
        raise DataError(f"free tools: the traces have no tool {unknown[0]}; they have {', '.join(parameters_of(tools))}")
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
    # Keys are not sorted: a schema with its keys in another order has other tokens.
    (out / ABOUT_FILE).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return about


def outcomes_of(traces: pandas.DataFrame) -> dict[str, int]:
    """How many traces are a logged `success`, a `failure`, or neither (`unknown`)."""
    known = traces["outcome"].dropna()
    wins = int((known >= 1.0).sum())
    return {"success": wins, "failure": len(known) - wins, "unknown": len(traces) - len(known)}


def log_task(record: dict[str, Any]) -> str:
    """The name of a Trace record's task.

    This is the name in the log. Without one, traces with the same system and first user message and the same logged
    starting point share a task.
    """
    if isinstance(name := record.get("task"), str) and name:
        return name
    messages = json.loads(record["messages"])
    first = next((index for index, message in enumerate(messages) if message["role"] == "user"), len(messages))
    context = [[message["role"], message.get("content")] for message in messages[: first + 1]]
    environment = record.get("environment")
    return f"log-{content_hash([context, _sorted(environment)])}"


def _sorted(environment: Any) -> str:
    """The text of a logged starting point with its keys sorted."""
    return canonical_json(json.loads(environment)) if isinstance(environment, str) else "null"


def world_agreement(calls: pandas.DataFrame) -> float | None:
    """How often traces of different tasks got the same reply to the same first call.

    Later calls are not compared, because the trace itself may have changed the world by then.

    Args:
        calls: A frame with the columns of `calls.parquet`.

    Returns:
        Of the first calls common to several tasks, the share of tasks whose most common reply agrees; None where tasks have
        no first call in common.
    """
    first = calls[calls.groupby("trace_id").cumcount() == 0]
    agreed = compared = 0
    for _, group in first.groupby("normalised_key"):
        replies: dict[str, Counter[Any]] = defaultdict(Counter)
        for task, reply in zip(group["task"], group["reply"], strict=True):
            replies[task][reply] += 1
        if len(replies) > 1:
            usual = Counter(counts.most_common(1)[0][0] for counts in replies.values())
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
                continue  # an invented tool: the reply is not a tool's
            keys = exact_key(call.name, call.arguments), normalised_key(call.name, call.arguments, parameters)
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            yield (trace_id, task, numbers[trace_id], call.name, arguments, *keys, call.reply)
            numbers[trace_id] += 1
