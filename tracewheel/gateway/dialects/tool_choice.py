"""Which tools a turn may call, and whether it must: the vendors' `tool_choice`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracewheel.gateway.dialects.fields import Fields, refuse, wrong_type, wrong_value

PARAM = "tool_choice"


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


def openai_choice(fields: Fields, tools: list[dict[str, Any]], *, nested: bool) -> ToolChoice:
    """The tools of a turn, by OpenAI's `tool_choice`.

    Args:
        fields: The request.
        tools: The tools offered.
        nested: Whether names and allowed tools stand in objects of their own, as in Chat Completions, or beside the type.

    Raises:
        Refusal: the choice is none of the protocol's, or as for `choose`.
    """
    given = fields.get(PARAM)
    if given is None or isinstance(given, str):
        if given not in (None, "none", "auto", "required"):
            raise wrong_value(given, ["none", "auto", "required"], PARAM)
        return choose(tools, given or "auto", PARAM)
    if not isinstance(given, dict):
        raise wrong_type(given, "one of a string or an object", PARAM)
    choice = Fields(given, PARAM)

    if choice.text("type") in ("function", "custom"):
        named = choice.needed(choice.text("type")) if nested else choice
        return choose(tools, "required", PARAM, [named.text("name")])
    if choice.text("type") != "allowed_tools":
        raise wrong_value(choice.text("type"), ["function", "allowed_tools"], f"{PARAM}.type")
    allowed = choice.needed("allowed_tools") if nested else choice
    holders = [tool.needed(tool.text("type")) if nested else tool for tool in allowed.objects("tools")]
    names = [holder.text("name") for holder in holders if holder.get("name")]  # of the vendor's own tools none is offered
    offered = [tool["function"]["name"] for tool in tools]
    names = [name for name in names if name in offered] or names
    return choose(tools, allowed.choice("mode", ["auto", "required"]) or "auto", PARAM, names)
