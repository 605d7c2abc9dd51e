"""Readers of one's own: classes named as `module:Class`, and mappings in YAML (`ingest.readers`, `--reader`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Protocol, cast

from tracewheel.config import IngestConfig, ReaderConfig
from tracewheel.core.errors import ConfigError
from tracewheel.core.fingerprint import own_modules, plugin_digests
from tracewheel.core.kinds import Kind, build
from tracewheel.core.log_formats import READERS
from tracewheel.core.strict_json import check_json
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import REASONS, InvalidRecord
from tracewheel.traces.readers.building import build_trace
from tracewheel.traces.readers.dialects import tie_calls
from tracewheel.traces.readers.reader import Place, RawTrace, Reader, Signs

GATHERS = ("record", "list", "group")
TEXTS = ("id", "session", "user", "created", "model", "task")


class TraceReader(Protocol):
    """A reader of your own, named as `ingest.readers: [{kind: module:Class, args: {...}}]` or `--reader module:Class`.

    ```python
    class DeskReader:
        name = "desk"

        def recognises(self, value):
            return isinstance(value, dict) and "dialogue" in value

        def read(self, value, place):
            messages = [{"role": turn["who"], "content": turn["said"]} for turn in value["dialogue"]]
            return RawTrace(messages, id=value["number"], outcome=value["solved"])
    ```

    It is tried before the built-in readers, in the order given, and made once for an ingest, with `args` as its arguments.
    An exception in it puts the record in quarantine, with the reader's name. Optional is `gathers = "list"`: a JSON list
    is one trace; `recognises` gets its first element, and `read` the list. With `gathers = "group"`, `parts(value)` returns
    pairs of a conversation's id and a part of it, and `read` gets the list of a conversation's parts, from all files.

    Attributes:
        name: The format's name, stored with each trace.
    """

    name: str

    def recognises(self, value: Any) -> bool:
        """Whether this JSON value is a record of the format."""
        ...

    def read(self, value: Any, place: Place) -> RawTrace:
        """What the record holds. Messages are in OpenAI's form; missing call ids are made, and text, ids and times checked.

        Raises:
            InvalidRecord: it cannot be read; the reason is one of `tracewheel.traces.quarantine.REASONS`.
        """
        ...


def own_readers(configs: Iterable[ReaderConfig]) -> tuple[Reader, ...]:
    """The readers that a config names.

    Raises:
        ConfigError: a class cannot be imported, or does not take its arguments.
    """
    return tuple(_own(config) for config in configs)


def readers_digest(config: IngestConfig) -> dict[str, Any]:
    """What own readers and fields do to the result: their settings and their code. Empty without any."""
    digest: dict[str, Any] = {"fields": dict(config.fields)} if config.fields else {}
    if config.readers:
        digest["readers"] = [reader.model_dump(mode="json") for reader in config.readers]
        digest["readers' code"] = plugin_digests(own_modules(reader.kind for reader in config.readers))
    return digest


def _own(config: ReaderConfig) -> Reader:
    try:
        own = cast(TraceReader, build(Kind(config.kind, config.args), READERS, "reader"))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"reader '{config.kind}' cannot be made with {config.args}: {type(error).__name__}: {error}"
        ) from error
    gathers = getattr(own, "gathers", "record")
    if gathers not in GATHERS:
        raise ConfigError(f"reader '{config.kind}': gathers is {gathers!r}; known: {', '.join(GATHERS)}")
    name = getattr(own, "name", None)
    return _Guarded(own, config.kind, name if isinstance(name, str) and name else type(own).__name__).reader(gathers)


class _Guarded:
    """A reader of one's own, whose mistakes only put records in quarantine."""

    def __init__(self, own: TraceReader, kind: str, name: str) -> None:
        self._own, self._kind, self._name = own, kind, name

    def reader(self, gathers: Any) -> Reader:
        return Reader(
            self._name,
            self._recognises,
            self._read,
            gathers,
            Signs.OWN,
            parts=self._parts if gathers == "group" else None,
            why_not=getattr(self._own, "why_not", None),
        )

    def _recognises(self, value: Any) -> bool:
        try:
            return bool(self._own.recognises(value))
        except Exception as error:
            raise InvalidRecord("message unreadable", f"reader '{self._kind}', recognises: {_shown(error)}") from error

    def _parts(self, value: Any) -> list[tuple[str, Any]]:
        try:
            return [(str(group), part) for group, part in self._own.parts(value)]  # type: ignore[attr-defined]
        except Exception as error:
            raise InvalidRecord("message unreadable", f"reader '{self._kind}', parts: {_shown(error)}") from error

    def _read(self, value: Any, place: Place) -> Trace:
        try:
            found = self._own.read(value, place)
            if not isinstance(found, RawTrace):
                raise TypeError(f"read is to return a RawTrace, this is a {type(found).__name__}")
            trace = build_trace(self._name, place, _checked(found))
            check_json(json.loads(json.dumps([trace.messages, trace.tools, trace.environment, trace.tokens, trace.info])))
            return trace
        except InvalidRecord as error:
            known = error.reason if error.reason in REASONS else "message unreadable"
            said = error.detail if known == error.reason else f"{error.reason}: {error.detail}"
            raise InvalidRecord(known, f"reader '{self._kind}': {said}") from error
        except Exception as error:
            raise InvalidRecord("message unreadable", f"reader '{self._kind}': {_shown(error)}") from error


def _checked(found: RawTrace) -> RawTrace:
    """With texts as text, the outcome as a number, and ids for calls without one."""
    values: dict[str, Any] = {}
    for name in TEXTS:
        value = getattr(found, name)
        if isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise InvalidRecord("field unreadable", f"'{name}' is to be text, this is a {type(value).__name__}")
        values[name] = None if value is None else str(value)
    outcome = found.outcome
    if outcome is not None:
        if not isinstance(outcome, int | float) or not math.isfinite(outcome):
            raise InvalidRecord("reward is not a number", f"'outcome' is {outcome!r:.40}")
        outcome = float(outcome)
    return RawTrace(
        tie_calls(found.messages), tools=found.tools, environment=found.environment, tokens=found.tokens, info=found.info,
        outcome=outcome, **values,
    )  # fmt: skip


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
