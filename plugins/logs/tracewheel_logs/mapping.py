"""A reader made from a mapping (`kind: mapping`): paths to what one's own JSON holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tracewheel import (
    ROLE_NAMES,
    InvalidRecord,
    JsonPath,
    MissingPath,
    Place,
    RawTrace,
    as_chat,
    as_text,
    as_tools,
    ending,
    field_value,
    identity_of,
    is_blank,
    parsed_json,
    read_parts,
    tool_call,
    with_ending,
)
from tracewheel_logs.dialogue import one_turn
from tracewheel_logs.mapping_config import CallPaths, MappingConfig, MessagePaths, checked_mapping

ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool")},
    **{name.lower(): role for name, role in ROLE_NAMES.items()},
    **dict.fromkeys(("agent", "chatbot", "llm", "assistant_response", "answer"), "assistant"),
    **dict.fromkeys(("customer", "client", "question", "prompt"), "user"),
    "skip": "skip",
    **dict.fromkeys(("observation", "tool_result", "tool_response", "function_response"), "tool"),
}
WHOLE_LIST = "[]"
ANYTHING = "*"
RESPONSE_ITEMS = ("reasoning", "function_call", "function_call_output")  # of the responses API, which have no role


class MappingReader:
    """Reads records by paths.

    ```yaml
    readers:
      - kind: mapping
        args:
          name: desk
          conversation: dialog.turns
          messages:
            role: speaker
            text: [text, markdown]
            calls: actions
            call: {name: tool, arguments: input, result: output}
          roles: {bot: assistant, visitor: user}
          prompt: request.text
          environment: {kind: =desk:Desk, tickets: start.tickets}
          fields: {outcome: review.solved, user: visitor.id, model: =bot-2}
    ```

    Args:
        options: `MappingConfig`'s keys.

    Raises:
        pydantic.ValidationError: the options are no mapping.
    """

    @staticmethod
    def check(args: dict[str, Any]) -> None:
        """Check the options when a profile is read; a `ValueError` names each wrong key."""
        checked_mapping(args)

    def __init__(self, **options: Any) -> None:
        self._config = config = MappingConfig.model_validate(options)
        self.name = config.name
        self.gathers = "group" if config.group else "list" if config.conversation == WHOLE_LIST else "record"
        self._roles = ROLES | {name.lower(): role for name, role in config.roles.items()}
        paths = [config.conversation, config.system, config.prompt, config.tools, *config.fields.values()]
        paths += _leaves(config.environment)
        if config.conversation == ".":
            paths += [path for rule in config.messages for path in (*rule.text, *rule.calls)]
        self._read = set(_tops(paths))

    def recognises(self, value: Any) -> bool:
        """Whether the record has the conversation and the values of `when`."""
        return self.why_not(value) is None

    def why_not(self, value: Any) -> str | None:
        """What the record lacks; None if it is one of this mapping."""
        config = self._config
        if config.group and JsonPath(config.group).get(value) is None:
            return f"group {_why_missing(config.group, value)}"
        if self.gathers == "list":
            rules = [rule for rule in config.messages if isinstance(value, dict) and _fits(rule.when, value)]
            return None if any(_has_parts(rule, value) for rule in rules) else "the first element is no message of the mapping"
        try:
            found = JsonPath(config.conversation).find(value)
        except MissingPath as error:
            return f"conversation {error}"
        if config.conversation != "." and not isinstance(parsed_json(found), list):
            return f"conversation '{config.conversation}' is a {type(found).__name__}, not a list"
        return None if _fits(config.when, value) else f"the record has not the values of 'when': {config.when}"

    def parts(self, value: Any) -> list[tuple[str, Any]]:
        """The record, which is a part of a conversation, with the conversation's id (`group`)."""
        return [(str(JsonPath(self._config.group or ".").get(value)), value)]

    def read(self, value: Any, place: Place) -> RawTrace:
        """What the record holds, or all records of one `group`.

        Raises:
            InvalidRecord: a path that is needed is missing; the detail names it.
        """
        config = self._config
        first = value[0] if self.gathers == "group" else value
        messages, before = [*self._before(first)], None
        for number, (element, said, joins) in enumerate(self._said(self._elements(value))):
            if messages and messages[-1].get("tool_calls") and said and said[0]["role"] != "tool" and not joins:
                where = f"element {number} follows a call without one"
                raise InvalidRecord("call without a reply", f"{where}; {self._no_reply(before)}")
            _add(messages, said, joins)
            before = element if said else before
        return RawTrace(
            messages,
            environment=_environment(config.environment, first),
            tools=_tools(config.tools, first),
            **self._fields(value),
        )

    def fits(self, element: Any) -> bool:
        """Whether a rule of `messages` is for such an element."""
        return any(_fits(rule.when, element) for rule in self._config.messages)

    def messages(self, elements: Iterable[Any]) -> list[dict[str, Any]]:
        """The messages of a conversation's elements, whether or not each call has its reply.

        Raises:
            InvalidRecord: an element cannot be read.
        """
        messages: list[dict[str, Any]] = []
        for _, said, joins in self._said(elements):
            _add(messages, said, joins)
        return messages

    def _said(self, elements: Iterable[Any]) -> Iterator[tuple[Any, list[dict[str, Any]], bool]]:
        """Each element, its messages, and whether they belong to the agent's turn before."""
        for number, element in enumerate(elements):
            said, joins = self._messages(element, number)
            yield element, said, joins

    def _elements(self, value: Any) -> list[Any]:
        if self._config.group and self._config.conversation != ".":
            return [element for record in value for element in parsed_json(JsonPath(self._config.conversation).find(record))]
        if self.gathers == "list" or self._config.conversation == ".":
            return value if isinstance(value, list) else [value]
        found: list[Any] = parsed_json(JsonPath(self._config.conversation).find(value))
        return found

    def _before(self, value: Any) -> Iterator[dict[str, Any]]:
        """What stands before the conversation: the system prompt and the user's request."""
        if self._config.system and (text := _at(self._config.system, value)):
            yield {"role": "system", "content": as_text(text)}
        if self._config.prompt:
            if (text := _at(self._config.prompt, value)) in (None, ""):
                raise InvalidRecord("message unreadable", f"prompt: {_why_missing(self._config.prompt, value)}")
            yield {"role": "user", "content": as_text(text)}

    def _messages(self, element: Any, number: int) -> tuple[list[dict[str, Any]], bool]:
        """The messages of one element of the conversation, and whether they belong to the turn before."""
        element = parsed_json(element)
        rules = [rule for rule in self._config.messages if _fits(rule.when, element)]
        if not rules:
            paths = dict.fromkeys(path for rule in self._config.messages for path in rule.when)
            there = ", ".join(f"{path}: {found!r:.40}" for path in paths if (found := JsonPath(path).get(element)) is not None)
            raise InvalidRecord(
                "message unreadable", f"element {number}: no rule of 'messages' has a 'when' that fits it ({there:.200})"
            )
        added: list[dict[str, Any]] = []
        problems: list[str] = []
        skipped = False
        for rule in rules:
            role = self._role(rule, element, number)
            if role == "skip":
                skipped = True
            elif rule.message:
                whole = JsonPath(rule.message).get(element)
                is_empty = isinstance(whole, dict) and is_blank(whole)
                if isinstance(whole, dict):
                    whole = [whole if whole.get("type") in RESPONSE_ITEMS else {**whole, "role": role}]
                made = [] if is_empty else as_chat(whole, role)
                added, skipped = [*added, *made], skipped or not made
            elif _has_parts(rule, element):
                added += _messages(rule, role, element, number)
            else:
                problems.append(_missing(rule, element))
        if not added and not skipped:
            raise InvalidRecord("message unreadable", f"element {number}: {'; '.join(problems)}")
        return added, any(rule.joins for rule in rules)

    def _no_reply(self, element: Any) -> str:
        """Where the mapping looked for the result of an element's calls, and what stands there."""
        element = parsed_json(element)
        rule = next(rule for rule in self._config.messages if _fits(rule.when, element) and _calls(rule, element))
        call = parsed_json(_calls(rule, element)[-1])
        if rule.call.result:
            return f"call.result {_why_missing(rule.call.result, call)}"
        keys = f" (keys there: {', '.join(map(repr, call)):.200})" if isinstance(call, dict) else ""
        return f"if its result stands beside the call, name it in the mapping: call.result{keys}"

    def _role(self, rule: MessagePaths, element: Any, number: int) -> str:
        if rule.role.startswith("="):
            name: Any = rule.role[1:]
        else:
            try:
                name = JsonPath(rule.role).find(element)
            except MissingPath as error:
                raise InvalidRecord("message unreadable", f"element {number}: role {error}") from error
        role = self._roles.get(str(name).lower()) or self._roles.get(str(name))
        if role is None:
            raise InvalidRecord(
                "unknown role", f"element {number}: {name!r:.40} at '{rule.role}'; add it to 'roles' of the mapping"
            )
        return role

    def _fields(self, value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        info = {key: part for key, part in value.items() if key not in self._read} if isinstance(value, dict) else {}
        for field, path in self._config.fields.items():
            records = value if self.gathers == "group" else [value]
            part = next((part for record in records if (part := _at(path, record)) is not None), None)
            if part is None:
                if field in self._config.required:
                    raise InvalidRecord("field unreadable", f"{field}: {_why_missing(path, value)}")
                continue
            read = field_value(field, part)
            if read is None:
                info[field] = part
                if field == "outcome":
                    raise InvalidRecord("reward is not a number", f"outcome: what is at '{path}' is {part!r:.60}")
            else:
                found[field] = read
        return {**found, "info": info}


def _add(messages: list[dict[str, Any]], said: list[dict[str, Any]], joins: bool) -> None:
    """Add messages; with `joins` the first, if it is the agent's, to the agent's turn right before."""
    if joins and messages and said and messages[-1]["role"] == said[0]["role"] == "assistant":
        messages[-1], said = one_turn(messages[-1], said[0]), said[1:]
    messages += said


def _tools(path: str | None, value: Any) -> list[dict[str, Any]] | None:
    """The tools at a path.

    Raises:
        InvalidRecord: one of them has no name where any tool has it.
    """
    given = parsed_json(JsonPath(path).get(value)) if path else None
    tools = as_tools(given)
    if given and len(tools) < len(given):
        lost = next((tool for tool in given if not as_tools([tool])), given) if isinstance(given, list) else given
        keys = ", ".join(map(repr, lost))[:200] if isinstance(lost, dict) else repr(lost)[:80]
        raise InvalidRecord("tools unreadable", f"'{path}': a tool needs a 'name' and 'parameters', this one has {keys}")
    return tools if path else None


def _messages(rule: MessagePaths, role: str, element: Any, number: int) -> list[dict[str, Any]]:
    text = _first(rule.text, element)
    content = read_parts(text).text if isinstance(text, list) else None if text is None else as_text(text)
    if role == "tool":
        call_id = identity_of(JsonPath(rule.id).get(element)) if rule.id else None
        name = _at(rule.tool, element) if rule.tool else None
        return [{"role": "tool", "tool_call_id": call_id, "content": content or "", **({"name": str(name)} if name else {})}]
    message: dict[str, Any] = {"role": role, "content": content}
    if rule.reasoning and (thought := JsonPath(rule.reasoning).get(element)):
        message["reasoning"] = as_text(thought)
    results: list[dict[str, Any]] = []
    for at, call in enumerate(_calls(rule, element) if role == "assistant" else []):
        made = _call(rule.call, parsed_json(call), f"call_{number}_{at}", f"element {number}, call {at}")
        message.setdefault("tool_calls", []).append(made)
        if rule.call.result:
            try:
                result = JsonPath(rule.call.result).find(parsed_json(call))
            except MissingPath:
                continue
            results.append({"role": "tool", "tool_call_id": made["id"], "content": as_text(result)})
    if "tool_calls" not in message and content is None:
        message["content"] = ""
    return [*with_ending([message], ending(element) if role == "assistant" else ""), *results]


def _calls(rule: MessagePaths, element: Any) -> list[Any]:
    listed = parsed_json(_first(rule.calls, element))
    return listed if isinstance(listed, list) else [listed] if listed else []


def _call(paths: CallPaths, call: Any, made_id: str, where: str) -> dict[str, Any]:
    name = _at(paths.name, call)
    if not isinstance(name, str) or not name:
        raise InvalidRecord("tool calls unreadable", f"{where}: name {_why_missing(paths.name, call)}")
    identity = identity_of(JsonPath(paths.id).get(call)) if paths.id else None
    if isinstance(paths.arguments, dict):
        given = {key: part for key, path in paths.arguments.items() if (part := JsonPath(path).get(call)) is not None}
    else:
        given = _first(paths.arguments, call)
    return tool_call(identity or made_id, name, given)


def _environment(wanted: Any, value: Any) -> Any:
    """The starting point of an environment, at its path or put together of its parts.

    Raises:
        InvalidRecord: a path leads nowhere.
    """
    if isinstance(wanted, dict):
        return {name: _environment(part, value) for name, part in wanted.items()}
    if not isinstance(wanted, str) or wanted.startswith("="):
        return wanted[1:] if isinstance(wanted, str) else wanted
    try:
        return JsonPath(wanted).find(value)
    except MissingPath as error:
        raise InvalidRecord("environment unreadable", str(error)) from error


def _leaves(wanted: Any) -> Iterator[str | None]:
    """The paths and constants of an environment's parts."""
    if isinstance(wanted, dict):
        for part in wanted.values():
            yield from _leaves(part)
    elif isinstance(wanted, str):
        yield wanted


def _has_parts(rule: MessagePaths, element: Any) -> bool:
    """Whether a text, even an empty one, a call or a thought is there."""
    found = [path for path in rule.text if _is_there(path, element)]
    thought = rule.reasoning and JsonPath(rule.reasoning).get(element)
    return bool(found) or bool(thought) or bool(_first(rule.calls, element))


def _is_there(path: str, element: Any) -> bool:
    try:
        JsonPath(path).find(element)
    except MissingPath:
        return False
    return True


def _missing(rule: MessagePaths, element: Any) -> str:
    reasons = [_why_missing(path, element) for path in (*rule.text, *rule.calls)]
    return f"neither a text nor a call: {'; '.join(reasons)}"


def _fits(when: Mapping[str, Any], value: Any) -> bool:
    return all(
        _is_there(path, value) if wanted == ANYTHING else _is_one(JsonPath(path).get(value), wanted)
        for path, wanted in when.items()
    )


def _is_one(found: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, one of several, or like a text with `*`."""
    if isinstance(wanted, list) and found != wanted:
        return any(_is_one(found, one) for one in wanted)
    if isinstance(wanted, str) and ANYTHING in wanted and isinstance(found, str):
        return fnmatchcase(found, wanted)
    return bool(found == wanted)


def _first(paths: tuple[str, ...], value: Any) -> Any:
    """What is at the first of the paths where something is that is not null or empty; else an empty text, if one is there."""
    found = [JsonPath(path).get(value) for path in paths]
    return next((part for part in found if part not in (None, "", [], {})), "" if "" in found else None)


def _at(path: str, value: Any) -> Any:
    return path[1:] if path.startswith("=") else JsonPath(path).get(value)


def _why_missing(path: str, value: Any) -> str:
    try:
        found = JsonPath(path).find(value)
    except MissingPath as error:
        return str(error)
    return f"'{path}' is {found!r:.40}"


def _tops(paths: list[str | None]) -> Iterator[str]:
    """The keys of the record that paths without more than one step lead to, and those of the conversation."""
    for position, path in enumerate(paths):
        if path and not path.startswith("="):
            steps = JsonPath(path).steps
            if steps and isinstance(steps[0], str) and (len(steps) == 1 or position == 0):
                yield steps[0]
