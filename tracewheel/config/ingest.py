"""Which logs are read, and what is taken out of them before anything is stored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tracewheel.config.base import Strict
from tracewheel.config.curation import RedactionConfig

TraceFormat = Literal[
    "auto",
    "openai",
    "anthropic",
    "tau_bench",
    "langfuse",
    "otel",
    "openinference",
    "mlflow",
    "sweagent",
    "mini_swe_agent",
    "openhands",
    "atif",
    "sharegpt",
    "tracewheel",
]


class IngestConfig(Strict):
    """Which logs to read: files, folders or globs, in a given format or with the format of each record detected.

    Of a record larger than `largest_record_mib` MiB only the beginning is kept, in quarantine.
    """

    paths: tuple[str, ...] = ()
    format: TraceFormat = "auto"
    redaction: RedactionConfig = RedactionConfig()
    largest_record_mib: Annotated[int, Field(ge=1, le=1024)] = 64
