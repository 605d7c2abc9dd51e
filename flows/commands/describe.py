"""`tracewheel describe`: the kinds that a profile may name, and what each is, takes and offers."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from flows.commands.command import Command
from flows.console.look import Block, Card, Grid
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import WHEELS, how_to_get

METHODS = {
    "environment": ("step", "tools"),
    "verifier": ("verify",),
    "episode verifier": ("verify_episode",),
    "simulated user": ("begin", "reply"),
    "log reader": ("recognises", "read"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind", metavar="KIND", nargs="?", help="a built-in name, module:Class, or `profile` (default: list what is built in)"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """List the built-in kinds, or describe one kind (a record for each sort that has it), or the settings of a profile.

    Raises:
        ConfigError: there is no such kind.
    """
    if options.kind == "profile":
        from tracewheel.config.settings import settings

        return {"settings": [asdict(one) for one in settings()]}
    kinds = built_in()
    if options.kind is None:
        listed = [
            {"sort": sort, "kind": name, "summary": _summary(found)}
            for sort, named in kinds.items()
            for name, found in named.items()
        ]
        listed += missing(kinds)
        return {"kinds": listed}
    return {"described": [_described(sort, options.kind, found) for sort, found in _found(options.kind, kinds)]}


def missing(kinds: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """The kinds whose wheel is not installed, and how to get it."""
    return [
        {"sort": sort, "kind": kind, "summary": str(how_to_get(sort, kind))}
        for sort, named in WHEELS.items()
        for kind in sorted(named)
        if sort in kinds and kind not in kinds[sort]
    ]


def built_in() -> dict[str, dict[str, Any]]:
    """The built-in classes by sort and name; a log format is the module that reads it."""
    from tracewheel.core.log_formats import LOG_FORMATS, READERS, module_of
    from tracewheel.environments import ENVIRONMENTS
    from tracewheel.environments.users import USERS
    from tracewheel.scoring.verifiers import VERIFIERS

    formats = {name: importlib.import_module(module_of(name)) for name in LOG_FORMATS}
    kinds: dict[str, dict[str, Any]] = {
        "environment": dict(ENVIRONMENTS),
        "verifier": dict(VERIFIERS),
        "simulated user": dict(USERS),
        "log reader": dict(READERS),
        "log format": formats,
    }
    return {sort: dict(sorted(named.items())) for sort, named in kinds.items()}


def _found(kind: str, kinds: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """What has this name, with its sort; `workspace` is an environment and a verifier."""
    from tracewheel.core.kind_table import give, load_class
    from tracewheel.environments.recorded.environment import PREFIX

    name = kind.split(":")[0] if kind.startswith(PREFIX) else kind
    if found := [(sort, named[name]) for sort, named in kinds.items() if name in named]:
        return found
    for sort in kinds:
        if how := how_to_get(sort, name):
            raise ConfigError(f"{sort} '{name}' is {how}")
    give(kind)
    own = load_class(kind, {name: found for named in kinds.values() for name, found in named.items()}, "kind")
    if not isinstance(own, type):
        raise ConfigError(f"kind '{kind}' is no class but a {type(own).__name__}; name a class, as 'module:Class'")
    sorts = [sort for sort, names in METHODS.items() if all(callable(getattr(own, name, None)) for name in names)]
    return [(sorts[0] if sorts else "class", own)]


def _described(sort: str, kind: str, found: Any) -> dict[str, Any]:
    record: dict[str, Any] = {"sort": sort, "kind": kind, "doc": _doc(found), "args": None, "tools": None, "no_tools": ""}
    if isinstance(found, type):
        record["args"] = arguments_of(found)
        if sort == "environment":
            record["tools"], record["no_tools"] = _tools(kind)
            record["offers"] = _offers(found)
    return record


def _offers(found: type) -> dict[str, str]:
    """The optional protocols of an environment, with what each says of itself."""
    from tracewheel.environments import base

    opening = "Optional protocol: an environment "
    optional = {name: one for name, one in vars(base).items() if isinstance(one, type) and _doc(one).startswith(opening)}
    return {
        name: _summary(one).removeprefix(opening)
        for name, one in optional.items()
        if all(callable(getattr(found, method, None)) for method in vars(one) if not method.startswith("_"))
    }


def _doc(found: Any) -> str:
    """The docstring that is its own: a class without one would show its base's."""
    return inspect.cleandoc(found.__doc__ or "")


def _summary(found: Any) -> str:
    return _doc(found).partition("\n")[0]


def arguments_of(found: type) -> list[dict[str, Any]] | None:
    """The arguments of a class: name, type, default as text (None: required) and description; None for any keyword."""
    from tracewheel.config.settings import entries_of
    from tracewheel.core.kinds import args_model, keywords_of

    if model := args_model(found):
        return list(_fields(model, ""))
    if (keywords := keywords_of(found)) is None:
        return None
    says = entries_of(found, found.__init__)  # type: ignore[misc]
    empty = inspect.Parameter.empty
    return [
        {
            "name": name,
            "type": "" if parameter.annotation is empty else _type(parameter.annotation),
            "default": None if parameter.default is empty else _value(parameter.default),
            "description": says.get(name, ""),
        }
        for name, parameter in keywords.items()
    ]


def _fields(model: Any, prefix: str) -> Iterator[dict[str, Any]]:
    """The fields of a pydantic model, and those of a model within it by their path."""
    import pydantic

    from tracewheel.config.settings import entries_of

    says = entries_of(*reversed(model.__mro__))
    for own_name, field in model.model_fields.items():
        name = f"{prefix}{field.alias or own_name}"
        limits = ", ".join(re.sub(r"^\w+\((.*)\)$", r"\1", str(limit)) for limit in field.metadata)
        yield {
            "name": name,
            "type": _type(field.annotation) + (f" ({limits})" if limits else ""),
            "default": None if field.is_required() else _value(field.get_default(call_default_factory=True)),
            "description": field.description or says.get(own_name, ""),
        }
        if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel):
            yield from _fields(field.annotation, f"{name}.")


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"(?:\w+\.)+(\w+)", r"\1", text)


def _value(value: Any) -> str:
    import pydantic

    if isinstance(value, pydantic.BaseModel):
        value = value.model_dump(mode="json")
    return json.dumps(value, default=repr, ensure_ascii=False)


def _tools(kind: str) -> tuple[list[dict[str, Any]] | None, str]:
    """The tools of an environment that is made without arguments, or why they are not known."""
    from tracewheel.environments import close_environment, make_environment

    try:
        environment = make_environment(kind)
        try:
            tools = environment.tools()
            return (tools, "") if tools else (None, "known once an episode begins")
        finally:
            close_environment(environment)
    except Exception as error:  # a class of the user's own may raise anything; its description is wanted all the same
        return None, f"not known without its arguments ({error or type(error).__name__})"


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    if "settings" in result:
        settings = [(one["name"], one["type"], _default(one), _meaning(one)) for one in result["settings"]]
        return Card("Settings of a profile", parts=[Grid(("setting", "type", "default", ""), settings, False)])
    parts: list[Grid | Block] = []
    if kinds := result.get("kinds"):
        for sort in dict.fromkeys(record["sort"] for record in kinds):
            rows = [(one["kind"], one["summary"]) for one in kinds if one["sort"] == sort]
            parts.append(Grid((f"{sort}s", ""), rows, False))
        says = "Kinds that a profile may name; your own as module:Class"
        return Card(says, parts=parts, next=["tracewheel describe KIND", "tracewheel describe profile"])
    for record in result["described"]:
        parts.append(Block(f"{record['kind']}: {record['sort']}", _unwrapped(record["doc"] or "(no docstring)")))
        if record["args"]:
            arguments = [(one["name"], one["type"], _default(one), one["description"]) for one in record["args"]]
            parts.append(Grid(("argument", "type", "default", ""), arguments, False))
        elif record["sort"] != "log format":
            parts.append(Block("Arguments", ["no arguments" if record["args"] == [] else "any keyword"]))
        if record["sort"] == "environment":
            parts.append(_tools_part(record))
            if record["offers"]:
                parts.append(Grid(("offers", "an environment"), list(record["offers"].items()), False))
    return Card("", parts=parts)


def _default(one: Mapping[str, Any]) -> str:
    return "required" if one["default"] is None else str(one["default"])


def _meaning(one: Mapping[str, Any]) -> str:
    return f"{', '.join(one['kinds'])}: {one['meaning']}" if one["kinds"] else str(one["meaning"])


def _unwrapped(doc: str) -> list[str]:
    """The lines of a docstring, those of a paragraph as one, so that the terminal may break it."""
    lines: list[str] = []
    fenced = joins = False
    for line in doc.splitlines():
        fence = line.startswith("```")
        plain = bool(line) and not fenced and not fence and not line.startswith((" ", "- ", ">>> "))
        if plain and joins:
            lines[-1] += f" {line}"
        else:
            lines.append(line or " ")
        fenced ^= fence
        joins = plain
    return lines


def _tools_part(record: Mapping[str, Any]) -> Grid | Block:
    if record["tools"] is None:
        return Block("Tools", [record["no_tools"]])
    rows = []
    for tool in record["tools"]:
        function = tool.get("function", tool)
        taken = ", ".join(function.get("parameters", {}).get("properties", {}))
        rows.append((f"{function['name']}({taken})", function.get("description", "")))
    return Grid(("tool", ""), rows, False)


COMMAND = Command(
    "describe",
    "the kinds of environments, verifiers, users and readers, or one of them; or the settings of a profile",
    add_options,
    run,
    card,
)
