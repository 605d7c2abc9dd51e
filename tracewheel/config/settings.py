"""All settings of a profile: name, type, default and meaning."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tracewheel.config.base import Strict
from tracewheel.config.profile import RetrainConfig

SECTION = re.compile(r"^(?:Attributes|Args):\n((?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
SENTENCE = re.compile(r"(?<=[.])\s+(?=[A-Z`])|\n\n|\n(?=- )")
ENTRY = re.compile(r"^    (\w+)(?: \([^)]*\))?: ")


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: Its path in a profile, as in `learner.kl.weight`.
        type: What it takes, in words.
        default: As in a profile; None where the section needs it.
        meaning: What it does.
        of: The class and the field that declare it: the same for a setting that several sections have.
        kinds: The kinds of the section that have it, where not all do.
    """

    name: str
    type: str
    default: str | None
    meaning: str
    of: tuple[str, str]
    kinds: tuple[str, ...] = ()


def settings(model: type[BaseModel] = RetrainConfig) -> list[Setting]:
    """All settings of a profile in its order, with those of every arm of a union.

    A setting is a field that holds a value and no section. One that the sections `rubric` and `evaluation.rubric` have is
    listed in each; several kinds of a section that have one setting share its line, and its `kind` is one setting.
    """
    found: dict[tuple[str, tuple[str, str]], Setting] = {}
    for one in _of(model, "", ()):
        known = found.setdefault((one.name, one.of), one)
        if known is not one:
            found[one.name, one.of] = replace(known, kinds=(*known.kinds, *one.kinds))
    return list(found.values())


def declared(listed: list[Setting]) -> int:
    """How many settings there are: a field counts once, where its class declares it, however many sections have it."""
    return len({one.of for one in listed})


def _of(model: type[BaseModel], prefix: str, kinds: tuple[str, ...]) -> Iterator[Setting]:
    says = meanings(model)
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        owner = next(base for base in model.__mro__ if name in inspect.get_annotations(base))
        if arms := _sections(field.annotation):
            several = len(arms) > 1
            of_arms = [one for arm in arms for one in _of(arm, f"{path}.", _kinds(arm) if several else ())]
            if several:
                yield _kind(f"{path}.kind", of_arms, field, (owner.__name__, f"{name}.kind"))
            yield from (one for one in of_arms if not several or one.name != f"{path}.kind")
            continue
        yield Setting(path, _type(field), _default(field), says.get(name, ""), (owner.__name__, name), kinds)


def _kind(path: str, of_arms: list[Setting], field: FieldInfo, of: tuple[str, str]) -> Setting:
    """The `kind` of a union as one setting: which kinds there are, and what each is."""
    arms = [one for one in of_arms if one.name == path]
    says = " ".join(f"`{', '.join(one.kinds) or 'module:name'}`: {one.meaning}" for one in arms)
    default = None if field.is_required() else getattr(field.get_default(call_default_factory=True), "kind", None)
    text = json.dumps(default) if default else None
    return Setting(path, " | ".join(one.type for one in arms), text, says, of)


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each field.

    That is its entry under `Attributes:`, else the sentences that name it, else the class's first sentence.
    """
    classes = [base for base in model.__mro__ if base.__doc__ and issubclass(base, Strict) and base is not Strict]
    told: dict[str, str] = {}
    for base in reversed(classes):
        text = SECTION.sub("", inspect.cleandoc(base.__doc__ or ""))
        sentences = [" ".join(one.lstrip("- ").split()) for one in SENTENCE.split(text) if one.strip()]
        for name in inspect.get_annotations(base):
            told[name] = " ".join([one for one in sentences if f"`{name}`" in one or f"`{name}:" in one] or sentences[:1])
    return told | entries_of(*reversed(model.__mro__))


def entries_of(*described: Any) -> dict[str, str]:
    """What docstrings say of each name under `Attributes:` or `Args:`; a later one replaces what an earlier one says."""
    says: dict[str, list[str]] = {}
    for one in described:
        name = ""
        for section in SECTION.findall(inspect.cleandoc(getattr(one, "__doc__", None) or "") + "\n"):
            for line in section.splitlines():
                if entry := ENTRY.match(line):
                    name = entry[1]
                    says[name] = [line[entry.end() :]]
                elif name:
                    says[name].append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in says.items()}


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The models in a type: the arms of a union, or the elements of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for inner in get_args(annotation) for section in _sections(inner)]


def _kinds(section: type[BaseModel]) -> tuple[str, ...]:
    return get_args(section.model_fields["kind"].annotation) if "kind" in section.model_fields else ()


def _type(field: FieldInfo) -> str:
    limits = [re.sub(r"^\w+\((.*)\)$", r"\1", str(limit)) for limit in field.metadata if "function" not in str(limit)]
    return _name(field.annotation) + (f" ({', '.join(limits)})" if limits else "")


def _name(annotation: Any) -> str:
    """A type in words of a profile: `number`, `text`, `a | b` for names to choose from."""
    known = {float: "number", int: "whole number", str: "text", bool: "true | false", type(None): "null", Any: "anything"}
    if annotation in known:
        return known[annotation]
    if hasattr(annotation, "__metadata__"):
        return _name(annotation.__origin__)
    inner = [one for one in get_args(annotation) if one is not ...]
    names = list(dict.fromkeys(json.dumps(one).strip('"') if _is_choice(annotation) else _name(one) for one in inner))
    if get_origin(annotation) is tuple:
        return f"list of {' | '.join(names)}"
    if get_origin(annotation) is dict:
        return f"mapping of {names[0]} to {names[-1]}"
    return " | ".join(names) or getattr(annotation, "__name__", str(annotation))


def _is_choice(annotation: Any) -> bool:
    return str(get_origin(annotation)) == "typing.Literal"


def _default(field: FieldInfo) -> str | None:
    return (
        None
        if field.is_required()
        else json.dumps(field.get_default(call_default_factory=True), default=str, ensure_ascii=False)
    )
