"""Which tools a turn may and must call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracewheel.gateway.dialects.fields import refuse


@dataclass(frozen=True)
class ToolChoice:
    """Tools in OpenAI's form, and which of them must be called; `tool` is None where the model chooses among them."""

    tools: list[dict[str, Any]]
    tool: str | None = None
    must_call: bool = False


def choose(tools: list[dict[str, Any]], mode: str, param: str, names: list[str] | None = None) -> ToolChoice:
    """The tools of a turn.

    Args:
        tools: The tools offered.
        mode: "none" takes them away, "auto" lets the model choose, "required" asks for a call.
        param: Where the choice stands in the request.
        names: The tools that may be called, None for all.

    Raises:
        Refusal: a call is asked for without a tool, or of one that is not offered.
    """
    if mode == "none":
        return ToolChoice([])
    offered = [tool["function"]["name"] for tool in tools]
    unknown = [name for name in names or () if name not in offered]
    if unknown:
        raise refuse(f"Tool choice {unknown[0]!r:.80} not found in 'tools' parameter.", param, "invalid_value")
    if names is not None:
        tools = [tool for tool in tools if tool["function"]["name"] in names]
    if mode != "required":
        return ToolChoice(tools)
    if not tools:
        raise refuse(f"'{param}' is only allowed when 'tools' are specified.", param, "invalid_value")
    return ToolChoice(tools, tools[0]["function"]["name"] if len(tools) == 1 else None, True)
