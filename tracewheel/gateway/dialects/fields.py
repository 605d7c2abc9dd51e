"""Reads the parts of a request that all dialects have: fields, messages and the choice of tools.

Reading is strict. What is wrong is refused in the vendors' words, with the field's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self

from tracewheel.gateway.exchange import Message, Refusal
from tracewheel.traces.readers.content import arguments_text
from tracewheel.traces.readers.media import placeholder
from tracewheel.traces.readers.messages import read_arguments
from tracewheel.traces.readers.tools import as_tools

NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer", float: "a number"}


def refuse(message: str, param: str | None, code: str | None = None) -> Refusal:
    """The refusal of a request that is wrong in the field `param`."""
    return Refusal("invalid_request", message, param, code=code)


def wrong_type(value: Any, wanted: str, param: str) -> Refusal:
    """The refusal of a value of another type than the vendor documents."""
    got = "null" if value is None else NAMES.get(type(value), type(value).__name__)
    return refuse(f"Invalid type for '{param}': expected {wanted}, but got {got} instead.", param, "invalid_type")


def wrong_value(value: Any, known: Collection[str], param: str) -> Refusal:
    """The refusal of a value that is none of the known ones."""
    supported = ", ".join(f"'{one}'" for one in known)
    return refuse(f"Invalid value: {value!r:.80}. Supported values are: {supported}.", param, "invalid_value")


def unsupported(what: str, param: str) -> Refusal:
    """The refusal of something that the vendor has and this door has not."""
    return refuse(f"Unsupported parameter: '{param}': {what}.", param, "unsupported_parameter")


# How the vendors and other servers draw tokens. The door draws as its profile says, whatever a program asks.
SAMPLING = {"top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "length_penalty", "logit_bias"}
SAMPLING |= {"min_tokens", "chat_template_kwargs"}
SERVED = {"web_search_options", "mcp_servers", "container"}  # tools that run at the vendor, and where; the policy has none


class Fields:
    """An object in a request body. A field that is null counts as not given, as the vendors have it.

    Args:
        value: The value, which must be an object.
        path: Where it stands, as in `messages[2]`; empty for the body itself.
        dropped: What of the whole body is left out; all its objects share it.

    Raises:
        Refusal: from all methods, where a field has another type or value than it may.
    """

    def __init__(self, value: Any, path: str = "", dropped: set[str] | None = None) -> None:
        if not isinstance(value, dict):
            raise wrong_type(value, "an object", path or "body")
        self.value, self.path = value, path
        self.dropped = set() if dropped is None else dropped

    def at(self, name: str) -> str:
        """Where a field stands."""
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Any:
        """A field of any type; None where it is not given."""
        return self.value.get(name)

    def missing(self, name: str) -> Refusal:
        """The refusal of an object without this field."""
        return refuse(f"Missing required parameter: '{self.at(name)}'.", self.at(name), "missing_required_parameter")

    def text(self, name: str) -> str:
        """A text that must be given."""
        found = self.optional_text(name)
        if found is None:
            raise self.missing(name)
        return found

    def optional_text(self, name: str) -> str | None:
        """A text, or None."""
        found = self.value.get(name)
        if found is not None and not isinstance(found, str):
            raise wrong_type(found, "a string", self.at(name))
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether something is on."""
        found = self.value.get(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise wrong_type(found, "a boolean", self.at(name))
        return found

    def whole(self, name: str, least: int, most: int | None = None) -> int | None:
        """A whole number within bounds, or None."""
        found = self.value.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int):
            raise wrong_type(found, "an integer", self.at(name))
        self._check_bounds(name, found, least, most)
        return found

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number within bounds, or None."""
        found = self.value.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise wrong_type(found, "a number", self.at(name))
        self._check_bounds(name, found, least, most)
        return float(found)

    def _check_bounds(self, name: str, found: float, least: float, most: float | None) -> None:
        kind = "integer" if isinstance(found, int) else "decimal"
        for is_wrong, side, sign, bound in (
            (found < least, "below minimum", ">=", least),
            (most is not None and found > most, "above maximum", "<=", most),
        ):
            if is_wrong:
                code = f"{kind}_{side.replace('minimum', 'min').replace('maximum', 'max').replace(' ', '_')}_value"
                text = f"Invalid '{self.at(name)}': {kind} {side} value. Expected a value {sign} {bound:g}, but got {found:g}."
                raise refuse(text, self.at(name), code)

    def choice(self, name: str, known: Collection[str]) -> str | None:
        """One of some words, or None."""
        found = self.optional_text(name)
        if found is not None and found not in known:
            raise wrong_value(found, known, self.at(name))
        return found

    def inner(self, name: str) -> Self | None:
        """An object, or None."""
        found = self.value.get(name)
        return None if found is None else type(self)(found, self.at(name), self.dropped)

    def needed(self, name: str) -> Self:
        """An object that must be given."""
        found = self.inner(name)
        if found is None:
            raise self.missing(name)
        return found

    def listed(self, name: str) -> list[Any]:
        """A list of anything; empty where it is not given."""
        found = self.value.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise wrong_type(found, "an array of objects", self.at(name))
        return found

    def objects(self, name: str) -> Iterator[Self]:
        """The objects of a list."""
        for position, one in enumerate(self.listed(name)):
            yield type(self)(one, f"{self.at(name)}[{position}]", self.dropped)

    def texts(self, name: str, most: int | None = None) -> tuple[str, ...]:
        """A list of texts, or a bare text as a list of one."""
        found = self.value.get(name)
        if found is None:
            return ()
        found = [found] if isinstance(found, str) else found
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise wrong_type(self.value[name], "a string or an array of strings", self.at(name))
        if most is not None and len(found) > most:
            text = f"array too long. Expected an array with maximum length {most}, but got an array with length {len(found)}"
            raise refuse(f"Invalid '{self.at(name)}': {text} instead.", self.at(name), "array_above_max_length")
        if "" in found:
            raise refuse(f"Invalid '{self.at(name)}': a stop text cannot be empty.", self.at(name), "invalid_value")
        return tuple(found)

    def check_known(self, known: Collection[str], neutral: Mapping[str, tuple[Any, ...]]) -> None:
        """Check that there are no other fields than the known ones.

        Args:
            known: Fields that are read, and those that change nothing here.
            neutral: Fields that this door has not, with the values that ask for nothing.
        """
        for name, value in self.value.items():
            if name in SAMPLING | SERVED:
                self.dropped |= {name} if value else set()
            elif name in neutral:
                if value is not None and value not in neutral[name]:
                    allowed = "".join(f", {one!r} is accepted" for one in neutral[name][:1])
                    raise unsupported(f"not supported by this endpoint{allowed}", self.at(name))
            elif name not in known:
                raise refuse(f"Unknown parameter: '{self.at(name):.80}'.", self.at(name)[:80], "unknown_parameter")


CUSTOM = "input"  # the argument of a custom tool
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def tool_call(identity: str, name: str, arguments: str) -> dict[str, Any]:
    """A tool call."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


WRAPPED = (
    "INVALID_JSON"  # the key under which a call's arguments that are no object are given to vendors that know objects only
)


def object_arguments(arguments: str) -> dict[str, Any]:
    """A call's arguments as an object."""
    given = read_arguments(arguments)
    return {WRAPPED: arguments} if given is None else given


def given_arguments(given: dict[str, Any]) -> str:
    """The arguments that an object came from."""
    wrapped = given.get(WRAPPED)
    return wrapped if isinstance(wrapped, str) and len(given) == 1 else arguments_text(given)


def assistant(text: str, reasoning: str = "", calls: list[dict[str, Any]] | None = None) -> Message:
    """An assistant message: no content beside calls is None, and keys without a value are absent."""
    message: Message = {"role": "assistant", "content": (text or None) if calls else text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def said(message: Message) -> Message:
    """What a program gets to see of a reply's message, and so what comes back of it."""
    calls = [
        tool_call(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or ()
    ]
    return assistant(message.get("content") or "", message.get("reasoning_content") or "", calls)


def tool_reply(call_id: str, content: str) -> Message:
    """What a tool answered."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def text_of(fields: Fields, name: str) -> str:
    """A content: a text, or parts of text, which are joined.

    Raises:
        Refusal: it holds a part that is not text.
    """
    content = fields.get(name)
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise wrong_type(content, "one of a string or array of objects", fields.at(name))
    return "".join(part_text(part) for part in fields.objects(name))


def part_text(part: Fields) -> str:
    """The text of a content part; what stands for an image, audio or a file.

    Raises:
        Refusal: the part is unknown.
    """
    kind = part.text("type")
    if kind not in TEXT_PARTS:
        shown = placeholder(part.value)
        if shown is None:
            raise wrong_value(kind, ("text",), part.at("type"))
        if shown.startswith("["):  # a file of text is text
            part.dropped.add(kind)
        return shown
    return part.text("refusal" if kind == "refusal" else "text")


def checked_tools(tools: list[dict[str, Any]], name: str = "tools") -> list[dict[str, Any]]:
    """Tools of any vendor's form in OpenAI's.

    Raises:
        Refusal: two have the same name.
    """
    shaped = as_tools(tools)
    if len(shaped) != len(tools):
        raise refuse(f"Invalid '{name}': tool names must be unique.", name, "invalid_value")
    return [{**tool, "function": _shown(tool["function"])} for tool in shaped]


def custom_tool(tool: Fields) -> dict[str, Any]:
    """A tool that takes any text, as a function with one text; a grammar that the text is to follow is told, not enforced."""
    form = tool.inner("format") or Fields({})
    grammar = form.inner("grammar") or form
    if grammar.get("definition") is not None:
        tool.dropped.add("tools.custom.format")
    told = [tool.optional_text("description"), grammar.optional_text("definition")]
    text = {"type": "object", "properties": {CUSTOM: {"type": "string"}}, "required": [CUSTOM]}
    shown: dict[str, Any] = {"name": tool.text("name"), "description": "\n\n".join(filter(None, told)), "parameters": text}
    return {"type": "function", "function": shown}


def custom_input(arguments: str) -> str:
    """The text that a call gives a custom tool; arguments that are none are given as they are."""
    given = read_arguments(arguments)
    text = given.get(CUSTOM) if given is not None and len(given) == 1 else None
    return text if isinstance(text, str) else arguments


def custom_call(identity: str, name: str, text: str) -> dict[str, Any]:
    """A call of a custom tool as a call of its function."""
    return tool_call(identity, name, arguments_text({CUSTOM: text}))


def openai_tools(fields: Fields, *, nested: bool) -> list[dict[str, Any]]:
    """The tools that a policy can call, in OpenAI's form: functions, and custom tools as functions; others are dropped."""
    offered: list[dict[str, Any]] = []
    for tool in fields.objects("tools"):
        kind = tool.text("type")
        if kind == "custom":
            offered.append(custom_tool(tool.needed("custom") if nested else tool))
        elif kind != "function":
            fields.dropped.add(f"tools.{kind:.40}")
        else:
            function = tool.needed("function") if nested else tool
            function.text("name")
            function.inner("parameters")
            function.optional_text("description")
            offered.append(tool.value)
    return offered


def custom_names(body: dict[str, Any]) -> set[str]:
    """The names of a request's custom tools, whose calls are answered in a form of their own."""
    return {(tool.get("custom") or tool)["name"] for tool in body.get("tools") or () if tool["type"] == "custom"}


def _shown(function: dict[str, Any]) -> dict[str, Any]:
    """A function as the model is shown it: `strict` asks the server to decode in some way, and is no part of the tool."""
    return {name: value for name, value in function.items() if name != "strict"}


def check_calls(messages: list[Message], param: str) -> None:
    """Check that replies of tools follow their calls and that each call has its reply, as the vendors do.

    Raises:
        Refusal: they do not.
    """
    open_calls: Counter[str] = Counter()
    for message in messages:
        if message["role"] == "tool":
            if not open_calls[message["tool_call_id"]]:
                found = message["tool_call_id"]
                raise refuse(f"No tool call found for the tool output with id {found!r:.80} in the message before.", param)
            open_calls[message["tool_call_id"]] -= 1
            if not open_calls[message["tool_call_id"]]:
                del open_calls[message["tool_call_id"]]
            continue
        if open_calls:
            break
        open_calls = Counter(one["id"] for one in message.get("tool_calls") or ())
    if open_calls:
        missing = ", ".join(open_calls.elements())[:200]
        raise refuse(
            f"No tool output found for these tool calls, which must be answered by the next messages: {missing}.", param
        )
