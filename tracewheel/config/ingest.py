"""Which logs are read, and what is taken out of them before anything is stored."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from tracewheel.config.base import Strict
from tracewheel.config.curation import RedactionConfig
from tracewheel.core.log_formats import AUTO, FORMAT_NAMES


def _format(name: str) -> str:
    if name not in FORMAT_NAMES:
        raise ValueError(f"no log format is called '{name}'; known: {', '.join(FORMAT_NAMES)}")
    return name


class IngestConfig(Strict):
    """Which logs to read: files, folders or globs, in a given format or with the format of each record detected.

    Of a record larger than `largest_record_mib` MiB only the beginning is kept, in quarantine.
    """

    paths: tuple[str, ...] = ()
    format: Annotated[str, AfterValidator(_format)] = AUTO
    redaction: RedactionConfig = RedactionConfig()
    largest_record_mib: Annotated[int, Field(ge=1, le=1024)] = 64
