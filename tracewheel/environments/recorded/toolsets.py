"""The tool sets of traces."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError

if TYPE_CHECKING:
    import pandas

Tool = dict[str, Any]
SHOWN = 5


def tool_sets(traces: pandas.DataFrame) -> pandas.Series:
    """The name of each trace's tool set: its format and tool names, or its format and "inferred" without logged tools.

    Inferred tools are the ones that a trace called, so traces of one format without logged tools form one set. Traces
    without tools have the name "".
    """
    import pandas

    names = []
    columns = zip(traces["tools"], _column(traces, "tools_inferred", False), _column(traces, "format", ""), strict=True)
    for tools, inferred, source in columns:
        offered = sorted({tool["function"]["name"] for tool in json.loads(tools)})
        names.append(f"{source}: inferred" if inferred else f"{source}: {', '.join(offered)}" if offered else "")
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
