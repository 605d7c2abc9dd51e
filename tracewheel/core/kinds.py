"""What a profile or a task names: a kind, which is a built-in name or `module:Class`, with arguments for its class.

As text, as a task's `environment` and `verifier` hold it, a kind without arguments is its name, and one with arguments is the
canonical JSON of `{"args": {...}, "kind": "..."}`.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import OWN_CLASS, inner_kinds, is_given, load_class
from tracewheel.core.types import canonical_json

# The methods that a class must have, by sort: all of one of these. Other classes are not made, whoever names them.
METHODS: dict[str, tuple[tuple[str, ...], ...]] = {
    "environment": (("step",),),
    "verifier": (("verify",), ("verify_episode",), ("verify_group",)),
    "user": (("begin", "reply"),),
    "reader": (("recognises", "read"),),
}
# Methods that most environments have: one that is missing beside another of nearly its name is misspelt.
USUAL = {"environment": ("tools", "task_from_log", "reset", "step", "snapshot")}
REACHING = ("endpoint", "unsafe_local")  # a simulated user, a sandbox


class Kind(NamedTuple):
    """A kind and its arguments, JSON values by name."""

    kind: str
    args: dict[str, Any]

    @property
    def text(self) -> str:
        """The kind as text."""
        return canonical_json({"kind": self.kind, "args": self.args}) if self.args else self.kind


def kind_text(kind: str, args: Mapping[str, Any] | None = None) -> str:
    """A kind with arguments as text, as for a task's `verifier`."""
    return Kind(kind, dict(args or {})).text


def parse_kind(text: str) -> Kind:
    """Read a kind from its text.

    Raises:
        ConfigError: it begins as JSON and is not `{"kind": ..., "args": {...}}`.
    """
    if not text.startswith("{"):
        return Kind(text, {})
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    kind, args = (value.get("kind"), value.get("args", {})) if isinstance(value, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(args, dict) or value.keys() - {"kind", "args"}:
        raise ConfigError(f'a kind with arguments is {{"kind": "...", "args": {{...}}}}, not {text[:80]}')
    return Kind(kind, args)


def own_classes(text: str) -> Iterator[str]:
    """The names `module:Class` in a kind's text: the kind itself, and every `kind` within its arguments."""
    yield from filter(OWN_CLASS.fullmatch, dict.fromkeys([parse_kind(text).kind, *inner_kinds(text)]))


def check_reach(text: str, built_in: Mapping[str, type], what: str) -> None:
    """Check that no data decides what is reached: programs, paths and addresses are named by the user.

    A class whose arguments name such things has `reaches = True`. A kind with arguments for it is made if the user named just
    these arguments; so are `recorded:PATH`, a user behind an endpoint, and `unsafe_local`.

    Raises:
        ConfigError: only data names them.
    """
    waiting: list[Any] = [parse_kind(text)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, Kind) and not is_given(value.text):
            reaches = getattr(built_in.get(value.kind), "reaches", False) and value.args
            if reaches or value.kind in REACHING or value.kind.startswith("recorded:"):
                raise ConfigError(
                    f"{what} '{value.kind}' is named by data, with a program, path or address of its own: if you trust it, "
                    "name it in the profile with the same arguments"
                )
            waiting += value.args.values()
        elif isinstance(value, dict):
            kind, args = value.get("kind"), value.get("args")
            if isinstance(kind, str):
                waiting.append(Kind(kind, args if isinstance(args, dict) else {}))
            waiting += [inner for key, inner in value.items() if key != "args" or not isinstance(kind, str)]


def build(kind: Kind, built_in: Mapping[str, type], what: str) -> Any:
    """Make an instance of a kind's class.

    A class with a pydantic model `Args` is made with one of it (`Class(args)`), or with none where no arguments are given and
    its constructor needs none. Any other class takes its arguments as keywords.

    Args:
        kind: The kind.
        built_in: The classes that ship with Tracewheel.
        what: The sort of class, for error messages.

    Raises:
        ConfigError: there is no such class, it lacks the methods of its sort, or it does not take these arguments; the message
            names the key and those allowed.
        Exception: whatever the class raises when it is made.
    """
    found = load_class(kind.kind, built_in, what)
    label = f"{what} '{kind.kind}'"
    if (model := args_model(found)) is None:
        _check_keywords(found, kind.args, label)
    args = [checked_args(model, kind.args, label)] if model and (kind.args or _needs_arguments(found)) else []
    _check_methods(found, what, label)
    return found(*args, **({} if model else kind.args))


def args_model(found: type) -> Any:
    """The pydantic model of a class's arguments, None where it has none."""
    import pydantic

    model = getattr(found, "Args", None)
    return model if isinstance(model, type) and issubclass(model, pydantic.BaseModel) else None


def checked_args(model: Any, args: Mapping[str, Any], label: str) -> Any:
    """Arguments as an instance of their model.

    Raises:
        ConfigError: one is unknown, missing or wrong.
    """
    import pydantic

    names = {field.alias or name for name, field in model.model_fields.items()}
    if model.model_config.get("extra") != "allow":
        _check_names(args, names | set(model.model_fields), label)
    try:
        return model.model_validate(dict(args))
    except pydantic.ValidationError as error:
        problems = "; ".join(
            f"args.{'.'.join(map(str, problem['loc']))}: {problem['msg']}".replace("args.: ", "") for problem in error.errors()
        )
        raise ConfigError(f"{label}: {problems}") from error


@lru_cache(maxsize=256)  # curation makes an environment and a verifier for every episode
def keywords_of(found: type) -> dict[str, inspect.Parameter] | None:
    """The parameters of a class's constructor; None where it takes any keyword."""
    try:
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return None
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    return {name: parameter for name, parameter in parameters.items() if parameter.kind not in positional}


def _check_methods(found: Any, what: str, label: str) -> None:
    if not isinstance(found, type):
        raise ConfigError(f"{label} is no class but a {type(found).__name__}; name a class, as 'module:Class'")
    missing = [[name for name in names if not callable(getattr(found, name, None))] for names in METHODS.get(what, ())]
    near_misses = [(name, near) for name in USUAL.get(what, ()) if (near := _near_miss(found, name))]
    if near_misses:
        raise ConfigError(f"{label} has no method {', '.join(f'{name} (there is {near})' for name, near in near_misses)}")
    if missing and all(missing):
        raise ConfigError(f"{label} has no method {' or '.join(dict.fromkeys(name for names in missing for name in names))}")


def _near_miss(found: type, name: str) -> str | None:
    """The method that was meant, where a class lacks one and has another with nearly its name."""
    near = [] if callable(getattr(found, name, None)) else difflib.get_close_matches(name, dir(found), n=1, cutoff=0.85)
    return near[0] if near else None


def _needs_arguments(found: type) -> bool:
    parameters = keywords_of(found) or {}
    return any(parameter.default is inspect.Parameter.empty for parameter in parameters.values())


def _check_keywords(found: type, args: Mapping[str, Any], label: str) -> None:
    parameters = keywords_of(found)
    if parameters is None:
        return
    _check_names(args, set(parameters), label)
    missing = [
        name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty and name not in args
    ]
    if missing:
        raise ConfigError(f"{label}: args.{missing[0]}: missing; it takes {', '.join(parameters)}")


def _check_names(args: Mapping[str, Any], allowed: set[str], label: str) -> None:
    if unknown := sorted(args.keys() - allowed):
        takes = f"it takes {', '.join(sorted(allowed))}" if allowed else "it takes no arguments"
        raise ConfigError(f"{label}: args.{unknown[0]}: no such argument; {takes}")
