"""A reader as a mapping: where the conversation, its roles, texts and calls are in one's own JSON."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from tracewheel import JsonPath, Strict

ROLES = ("system", "developer", "user", "assistant", "tool", "skip")


def _path_or_constant(text: str) -> str:
    if not text.startswith("="):
        JsonPath(text)
    return text


def _path(text: str) -> str:
    if text.startswith("="):
        raise ValueError(f"'{text}' is a constant; a path is needed here")
    JsonPath(text)
    return text


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _fields(fields: dict[str, str]) -> dict[str, str]:
    for name in ("environment", "prompt"):
        if name in fields:
            raise ValueError(f"'{name}' is a key of the mapping itself, beside 'fields'")
    return fields


def _environment(value: str | dict[str, Any]) -> str | dict[str, Any]:
    """A path to the object, or its parts: paths, constants, or objects of them; numbers and truth values are constants."""
    if isinstance(value, str):
        return _path(value)
    if "kind" not in value:
        raise ValueError("'kind' is missing, as in kind: =module:Class")
    return _parts(value)


def _parts(value: dict[str, Any]) -> dict[str, Any]:
    for part in value.values():
        if isinstance(part, dict):
            _parts(part)
        elif isinstance(part, str):
            _path_or_constant(part)
    return value


def _role(name: str) -> str:
    if name not in ROLES:
        raise ValueError(f"'{name}' is no role; known: {', '.join(ROLES)}")
    return name


Path = Annotated[str, AfterValidator(_path)]
PathOrConstant = Annotated[str, AfterValidator(_path_or_constant)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_listed)]
Role = Annotated[str, AfterValidator(_role)]


class CallPaths(Strict):
    """Where the parts of a call are, from the call on. `result` is for logs that keep it with the call.

    `arguments` leads to the object of all arguments, or has a path for each name.
    """

    name: PathOrConstant = "name"
    arguments: Annotated[tuple[Path, ...] | dict[str, Path], BeforeValidator(_listed)] = ("arguments",)
    id: Path | None = None
    result: Path | None = None


class MessagePaths(Strict):
    """Where the parts of a message are, from an element of the conversation on.

    Of several paths the first that is there counts. `calls` is one call or a list of them. For results, `id` and `tool` name
    the call and the tool that they are of. `when` holds values that an element must have for this rule: one of a list,
    a text with `*` for anything, or `*` alone for any value. `role: =skip` leaves these elements out. `message` is the path to
    a whole message in the form of a provider or framework, instead of its parts. With `joins` what the agent says here belongs
    to the turn that it has begun.
    """

    role: PathOrConstant = "role"
    message: Path | None = None
    joins: bool = False
    text: Paths = ("content",)
    reasoning: Path | None = None
    calls: Paths = ()
    call: CallPaths = CallPaths()
    id: Path | None = None
    tool: PathOrConstant | None = None
    when: dict[Path, Any] = Field(default_factory=dict)


class MappingConfig(Strict):
    """A reader for one's own JSON.

    `conversation` leads to the list of messages; `.` is the record itself, for logs of single exchanges, and `[]` a JSON list
    that is one conversation. `group` is the path to a conversation's id where each record is one message (`conversation: .`)
    or a part of it; records of a group may lie apart. `messages` says where a message's parts are; several rules make
    several messages of one element (a question and its answer) or fit several kinds of elements. `roles` adds names of roles
    to the usual ones; `skip` leaves messages out. `system` is a system prompt apart from the conversation. A record is
    recognised if the conversation is there and it has the values of `when`. `prompt` is the user's first message where it is
    not in the conversation. `environment` is the starting point that an environment makes a task of: a path to the whole
    object, or its parts, each a path or a constant. `fields` are as in `ingest.fields`; the fields in `required` must be there.
    """

    conversation: Path
    name: str = "mapping"
    group: Path | None = None
    messages: Annotated[tuple[MessagePaths, ...], BeforeValidator(_one_or_more), Field(min_length=1)] = (MessagePaths(),)
    roles: dict[str, Role] = Field(default_factory=dict)
    system: PathOrConstant | None = None
    prompt: PathOrConstant | None = None
    environment: Annotated[str | dict[str, Any], AfterValidator(_environment)] | None = None
    tools: Path | None = None
    fields: Annotated[dict[str, PathOrConstant], AfterValidator(_fields)] = Field(default_factory=dict)
    required: tuple[str, ...] = ()
    when: dict[Path, Any] = Field(default_factory=dict)


SECTIONS: dict[Any, type[Strict]] = {"messages": MessagePaths, "call": CallPaths}


def checked_mapping(values: dict[str, Any]) -> MappingConfig:
    """The mapping that these values are.

    Raises:
        ValueError: they are none; the message names each wrong key, the nearest that is right, and all that are allowed.
    """
    try:
        return MappingConfig.model_validate(values)
    except ValidationError as error:
        raise ValueError(f"mapping: {'; '.join(map(_described, error.errors()))}") from error


def _described(problem: Any) -> str:
    where = ".".join(map(str, problem["loc"]))
    if problem["type"] != "extra_forbidden":
        return f"{where}: {problem['msg'].removeprefix('Value error, ')}"
    *above, key = problem["loc"]
    section = next((SECTIONS[name] for name in reversed(above) if name in SECTIONS), MappingConfig)
    allowed = list(section.model_fields)
    near = difflib.get_close_matches(str(key), allowed, n=1)
    return f"{where}: no such key{f'; did you mean {near[0]}?' if near else ''} (allowed: {', '.join(allowed)})"
