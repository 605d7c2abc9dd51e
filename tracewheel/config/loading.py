"""Read YAML profiles, apply overrides, and report what is invalid by its key.

`--set` takes a few lines here. pydantic-settings and tyro would make a flag of every key, and would need the models for
`--help`, which takes five and ten times as long with them.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from tracewheel.config.base import Strict
from tracewheel.config.history import removed, without_removed
from tracewheel.config.ingest import IngestConfig, ReaderConfig
from tracewheel.config.profile import RetrainConfig
from tracewheel.config.wheel_sections import how_to_read
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import naming_nothing
from tracewheel.core.run_record import CONFIG_FILE

T = TypeVar("T", bound=Strict)
# What pydantic says of a value where a section should be.
NO_SECTION = ("model_attributes_type", "model_type", "dict_type", "union_tag_not_found")


class _Loader(yaml.SafeLoader):
    """YAML in which each key is a text: YAML 1.1 would read `on:` as true. As values, `on` and `yes` are true."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:bool":
                    key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep=deep)


def load_config(path: str | Path, overrides: list[str] | None = None) -> RetrainConfig:
    """Read a profile and apply `a.b=value` overrides (values are YAML). Without a `name` it has that of its file.

    Raises:
        ConfigError: the file is missing, not YAML, or invalid; the message names the key.
    """
    return load_as(RetrainConfig, path, overrides)


def load_stored_config(run: Path) -> RetrainConfig:
    """The profile that is stored with a run, without settings that are gone since.

    The kinds in it are not named by the user: opening a run imports nothing.

    Raises:
        ConfigError: as for `load_config`; a run of another version may have other keys.
    """
    values = read_values(run / CONFIG_FILE)
    with naming_nothing():
        return _checked(RetrainConfig, run / CONFIG_FILE, without_removed(values))


def load_ingest_config(
    paths: tuple[str, ...],
    format: str | None,
    overrides: list[str] | None = None,
    readers: Sequence[str] = (),
    outcomes: Sequence[str] = (),
) -> IngestConfig:
    """The settings of an ingest without a profile.

    Args:
        paths: `ingest.paths`.
        format: `ingest.format`, unless None.
        overrides: `ingest.a=value` settings.
        readers: Readers before those of `ingest.readers`: `module:Class`, or files with the `args` of a mapping.
        outcomes: `ingest.outcomes.paths`, unless it is empty.

    Raises:
        ConfigError: an override is invalid; the message names the key.
    """
    values: dict[str, Any] = {}
    for override in overrides or []:
        _apply(values, override)
    others = sorted(values.keys() - {"ingest"})
    if others:
        raise ConfigError(f"--set {others[0]}: without a profile only ingest settings can be set, as in ingest.format=openai")
    section = values.get("ingest", {})
    if not isinstance(section, dict):
        raise ConfigError("--set ingest: 'ingest' holds keys, not a value")
    section |= {"paths": paths} | ({"format": format} if format else {})
    if outcomes:
        given = section.get("outcomes")
        section["outcomes"] = (given if isinstance(given, dict) else {}) | {"paths": tuple(outcomes)}
    if readers:
        others = section.get("readers") or []
        section["readers"] = [*readers, *(others if isinstance(others, list) else [others])]
    section = _with_mappings(section)
    try:
        return IngestConfig.model_validate(section)
    except ValidationError as error:
        problems = "; ".join(_describe(problem, section, IngestConfig) for problem in error.errors())
        raise ConfigError(f"--set ingest: {problems}") from error


def _with_mappings(section: Any) -> Any:
    """A section `ingest` whose readers by name are `module:Class` or files, read into their places."""
    if isinstance(section, dict) and isinstance(readers := section.get("readers"), list):
        return section | {"readers": [_reader(reader) if isinstance(reader, str) else reader for reader in readers]}
    return section


def is_mapping(reader: str) -> bool:
    """Whether a reader's name is that of a file with the `args` of a mapping."""
    return reader.endswith((".yaml", ".yml"))


def _reader(name: str) -> dict[str, Any]:
    if not is_mapping(name):
        return {"kind": name}
    values = _read_yaml(Path(name), "a mapping reader")
    try:
        ReaderConfig(kind="mapping", args=values)
    except ValidationError as error:
        raise ConfigError(f"{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    return {"kind": "mapping", "args": values}


def _read_yaml(path: Path, what: str) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(), _Loader)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such config file") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: is a folder; {what} is a YAML file") from error
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: {what} is a mapping of keys to values")
    return values


def read_values(path: str | Path, overrides: list[str] | None = None) -> dict[str, Any]:
    """The values of a profile as they are written, with overrides and its mappings' files, unchecked and without defaults.

    Raises:
        ConfigError: the file is missing or not YAML, or an override cannot be applied.
    """
    values = _read_yaml(Path(path), "a profile")
    for override in overrides or []:
        _apply(values, override)
    if "ingest" in values:
        values["ingest"] = _with_mappings(values["ingest"])
    return values


def load_as(model: type[T], path: str | Path, overrides: list[str] | None = None) -> T:
    """Read a YAML file as a config model and apply `a.b=value` overrides.

    Raises:
        ConfigError: the file is missing, not YAML, or invalid for the model; the message names the key.
    """
    path = Path(path)
    return _checked(model, path, read_values(path, overrides))


def _checked(model: type[T], path: Path, values: dict[str, Any]) -> T:
    if "name" in model.model_fields:
        values = {"name": path.stem, **values}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_describe(problem, values, model) for problem in error.errors())
        raise ConfigError(f"{path}: {problems}") from error


def _describe(problem: Any, values: Any, model: type[Strict]) -> str:
    where = ".".join(_keys(problem, values)) or "profile"
    if problem["type"] == "extra_forbidden":
        if how := how_to_read(where):
            return f"section {where} is {how}"
        return f"{where} {removed(where)}" if removed(where) else f"{where}: no such key{_near(where, model)}"
    if problem["type"] in NO_SECTION and isinstance(problem["input"], str | int | float) and _has_kind(where, model):
        return f"{where} holds keys, not a value: did you mean {where}.kind={problem['input']}?"
    gone = removed(f"{where}={problem['input']}") if problem["type"] == "literal_error" else ""
    return f"{where}: '{problem['input']}' {gone}" if gone else f"{where}: {problem['msg']}"


def _has_kind(section: str, model: type[Strict]) -> bool:
    from tracewheel.config.settings import settings

    return any(one.name == f"{section}.kind" for one in settings(model))


def _near(where: str, model: type[Strict]) -> str:
    """The settings that a misspelt key may mean."""
    from tracewheel.config.settings import settings

    section, _, key = where.rpartition(".")
    begins, depth = f"{section}." if section else "", where.count(".")
    beside = sorted({one.name.split(".")[depth] for one in settings(model) if one.name.startswith(begins)})
    if key in beside:
        return f": another {section}.kind has it"
    near = difflib.get_close_matches(key, beside, n=1)
    return f"; did you mean {begins}{near[0]}?" if near else "; `tracewheel describe profile` lists all"


def _keys(problem: Any, values: Any) -> list[str]:
    """The path of a problem as written in the profile, without the tags that pydantic adds for unions."""
    keys, node = [], values
    for number, part in enumerate(problem["loc"]):
        if isinstance(node, str | int | float):
            break  # below a value there are tags alone
        last = number + 1 == len(problem["loc"])
        if isinstance(node, dict) and part not in node and not (last and problem["type"] == "missing"):
            continue
        keys.append(str(part))
        node = node.get(part) if isinstance(node, dict) else None
    return keys


def _apply(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set {override}: expected key=value, as in --set training.iterations=4")
    *parents, last = key.split(".")
    node = values
    for part in parents:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise ConfigError(f"--set {override}: '{part}' holds a value, not keys")
    try:
        node[last] = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: the value is not YAML: {error}") from error
