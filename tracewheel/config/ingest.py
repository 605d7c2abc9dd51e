"""Which logs are read, and what is taken out of them before anything is stored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tracewheel.config.base import Strict
from tracewheel.config.curation import RedactionConfig
from tracewheel.core.log_formats import AUTO, FORMAT_NAMES
from tracewheel.core.paths import JsonPath

OWN_READERS = ("mapping",)


def _format(name: str) -> str:
    if name not in FORMAT_NAMES:
        raise ValueError(f"no log format is called '{name}'; known: {', '.join(FORMAT_NAMES)}")
    return name


def _reader_kind(name: str) -> str:
    if name not in OWN_READERS and ":" not in name:
        raise ValueError(f"a reader of your own is 'module:Class' or one of {', '.join(OWN_READERS)}, not '{name}'")
    return name


def _path(text: str) -> str:
    if not text.startswith("="):
        JsonPath(text)
    return text


class ReaderConfig(Strict):
    """A reader of one's own: `module:Class`, made with `args`; or `mapping`, whose `args` say where things are in a record."""

    kind: Annotated[str, AfterValidator(_reader_kind)]
    args: dict[str, Any] = Field(default_factory=dict)


class IngestConfig(Strict):
    """Which logs to read: files, folders or globs, in a given format or with the format of each record detected.

    `readers` are tried before the built-in ones, in their order. `fields` says where in a record a
    field of a trace is (a path as in `result.scores[0]`, or `=` and a constant); other names go to `info`.

    Of a record larger than `largest_record_mib` MiB only the beginning is kept, in quarantine.
    """

    paths: tuple[str, ...] = ()
    format: Annotated[str, AfterValidator(_format)] = AUTO
    readers: tuple[ReaderConfig, ...] = ()
    fields: dict[str, Annotated[str, AfterValidator(_path)]] = Field(default_factory=dict)
    redaction: RedactionConfig = RedactionConfig()
    largest_record_mib: Annotated[int, Field(ge=1, le=1024)] = 64
