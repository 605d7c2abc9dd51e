"""Which tools a turn may call, and whether it must: the vendors' `tools` and `tool_choice`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tracewheel.gateway.dialects.fields import Fields
from tracewheel.gateway.exchange import CUSTOM, Refusal
from tracewheel.traces.readers.tools import as_tools

PARAM = "tool_choice"


@dataclass(frozen=True)
class ToolChoice:
    """Tools in OpenAI's form, and which of them must be called; `tool` is None where the model chooses among them."""

    tools: list[dict[str, Any]]
    tool: str | None = None
    must_call: bool = False

    @classmethod
    def of(cls, offered: list[dict[str, Any]], mode: str, param: str, names: list[str] | None = None) -> Self:
        """The tools of a turn.

        Args:
            offered: The tools, in any vendor's form.
            mode: "none" takes them away, "auto" lets the model choose, "required" asks for a call.
            param: Where the choice stands in the request.
            names: The tools that may be called, None for all.

        Raises:
            Refusal: two have the same name, or a call is asked for without a tool, or of one that is not offered.
        """
        tools = _checked(offered)
        if mode == "none":
            return cls([])
        known = _names(tools)
        unknown = [name for name in names or () if name not in known]
        if unknown:
            raise Refusal.invalid(f"Tool choice {unknown[0]!r:.80} not found in 'tools' parameter.", param, "invalid_value")
        if names is not None:
            tools = [tool for tool in tools if tool["function"]["name"] in names]
        if mode != "required":
            return cls(tools)
        if not tools:
            raise Refusal.invalid(f"'{param}' is only allowed when 'tools' are specified.", param, "invalid_value")
        return cls(tools, tools[0]["function"]["name"] if len(tools) == 1 else None, True)

    @classmethod
    def openai(cls, fields: Fields, *more: Fields, nested: bool) -> Self:
        """The tools of a turn, by OpenAI's `tools` and `tool_choice`.

        Args:
            fields: The request.
            more: Further objects with `tools`, of which those with new names count.
            nested: Whether tools, names and allowed tools stand in objects of their own, as in Chat Completions, or beside the
                type.

        Raises:
            Refusal: the choice is none of the protocol's, or as for `of`.
        """
        tools = _offered(fields, nested=nested)
        for one in more:
            known = {tool["name"] for tool in tools if "name" in tool}
            tools += [tool for tool in _offered(one, nested=nested) if tool.get("name") not in known]
        given = fields.get(PARAM)
        if given is None or isinstance(given, str):
            if given not in (None, "none", "auto", "required"):
                raise Refusal.wrong_value(given, ["none", "auto", "required"], PARAM)
            return cls.of(tools, given or "auto", PARAM)
        if not isinstance(given, dict):
            raise Refusal.wrong_type(given, "one of a string or an object", PARAM)
        choice = Fields(given, PARAM)

        if choice.text("type") in ("function", "custom"):
            named = choice.needed(choice.text("type")) if nested else choice
            return cls.of(tools, "required", PARAM, [named.text("name")])
        if choice.text("type") != "allowed_tools":
            raise Refusal.wrong_value(choice.text("type"), ["function", "allowed_tools"], f"{PARAM}.type")
        allowed = choice.needed("allowed_tools") if nested else choice
        holders = [tool.needed(tool.text("type")) if nested else tool for tool in allowed.objects("tools")]
        names = [holder.text("name") for holder in holders if holder.get("name")]  # of the vendor's own tools none is offered
        offered = _names(_checked(tools))
        names = [name for name in names if name in offered] or names
        return cls.of(tools, allowed.choice("mode", ["auto", "required"]) or "auto", PARAM, names)


def _names(tools: list[dict[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def _checked(offered: list[dict[str, Any]], name: str = "tools") -> list[dict[str, Any]]:
    """Tools of any vendor's form in OpenAI's. `strict` asks the server to decode in some way, and is no part of the tool.

    Raises:
        Refusal: two have the same name.
    """
    shaped = as_tools(offered)
    if len(shaped) != len(offered):
        raise Refusal.invalid(f"Invalid '{name}': tool names must be unique.", name, "invalid_value")
    return [{**one, "function": {key: value for key, value in one["function"].items() if key != "strict"}} for one in shaped]


def _offered(fields: Fields, *, nested: bool) -> list[dict[str, Any]]:
    """The tools that a policy can call: functions, and custom tools as functions; others are dropped."""
    offered: list[dict[str, Any]] = []
    for tool in fields.objects("tools"):
        kind = tool.text("type")
        if kind == "custom":
            offered.append(_custom(tool.needed("custom") if nested else tool))
        elif kind != "function":
            fields.dropped.add(f"tools.{kind:.40}")
        else:
            function = tool.needed("function") if nested else tool
            function.text("name")
            function.inner("parameters")
            function.optional_text("description")
            offered.append(tool.value)
    return offered


def _custom(tool: Fields) -> dict[str, Any]:
    """A tool that takes any text, as a function with one text; a grammar that the text is to follow is told, not enforced."""
    form = tool.inner("format") or Fields({})
    grammar = form.inner("grammar") or form
    if grammar.get("definition") is not None:
        tool.dropped.add("tools.custom.format")
    told = [tool.optional_text("description"), grammar.optional_text("definition")]
    text = {"type": "object", "properties": {CUSTOM: {"type": "string"}}, "required": [CUSTOM]}
    shown: dict[str, Any] = {"name": tool.text("name"), "description": "\n\n".join(filter(None, told)), "parameters": text}
    return {"type": "function", "function": shown}
