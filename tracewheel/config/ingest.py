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
    """Which logs to read: files, folders or globs, of a given format or of whatever format each record is found to be.

    A record of more than `largest_record_mib` MiB goes to quarantine with its beginning alone.
    """

    paths: tuple[str, ...] = ()
    format: TraceFormat = "auto"
    redaction: RedactionConfig = RedactionConfig()
    largest_record_mib: Annotated[int, Field(ge=1, le=1024)] = 64
