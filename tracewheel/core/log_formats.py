"""The log formats: light tables, as the config and the command line's help need the names without the readers.

To add a format to the core: write `tracewheel/traces/readers/NAME.py` with its `READERS`, and add its line here. A wheel names
its own by entry points of these tables' groups (`plugins/logs`).
"""

from __future__ import annotations

from typing import Any

from tracewheel.core.kind_table import LOGS, WHEELS, KindTable, how_to_get

AUTO = "auto"
REQUESTS = "requests"
_READERS = "tracewheel.traces.readers"
LOG_FORMATS = KindTable(
    "tracewheel.log_formats",
    {
        "openai": f"{_READERS}.openai:READERS",
        "tracewheel": f"{_READERS}.tracewheel:READERS",
    },
)
# Providers whose requests have bodies of their own shape, besides those that `requests` reads itself.
REQUEST_BODIES = KindTable("tracewheel.request_bodies", {})
PROVIDERS = ("anthropic", "openai", "openai_responses")
# What cuts files of one suffix into records.
LOG_FILES = KindTable("tracewheel.log_files", {"parquet": f"{_READERS}.tracewheel:parquet_pieces"})
# Readers that `ingest.readers` names beside `module:Class`.
READERS = KindTable("tracewheel.readers", {})
# Of readers whose signs are equally specific, the earlier here is tried first; formats that are not here come last, by name.
TRIED = (
    "otel", "qwen_code", "anthropic", "atif", "claude_code", "codex", "gemini_cli", "inspect", "langfuse", "mini_swe_agent",
    "mlflow", "openai", "openai_agents", "openai_responses", "openhands", "openinference", "requests", "sharegpt", "smolagents",
    "sweagent", "table", "tau_bench", "toolbench", "vercel_ai", "langchain", "langgraph", "pydantic_ai", "gemini", "bedrock",
    "tau2", "langsmith", "google_adk", "autogen", "weave", "tracewheel", "xlam", "agentdojo", "amp",
    "antigravity", "braintrust", "chatgpt", "codex_exec", "copilot_cli", "droid", "droid_stream", "grok", "hermes", "kimi",
    "opencode", "opencode_run", "strands", "cursor", "pi", "goose", "chat_lines",
)  # fmt: skip


def request_bodies() -> tuple[Any, ...]:
    """The `RequestBodies` of installed wheels, by name."""
    return tuple(REQUEST_BODIES.values())


def format_names() -> tuple[str, ...]:
    """The names of formats that can be read here."""
    return (AUTO, *LOG_FORMATS)


def checked_format(name: str) -> str:
    """The name of a format that can be read here.

    Raises:
        ValueError: there is none of this name, or its wheel is not installed.
    """
    if name != AUTO and name not in LOG_FORMATS:
        how = how_to_get("log format", name)
        raise ValueError(
            f"log format '{name}' is {how}" if how else f"no log format is called '{name}'; known: {', '.join(format_names())}"
        )
    return name


def formats_read(format: str) -> tuple[str, ...]:
    """The formats whose readers take part, in the order of `TRIED`; a provider's bodies are read in logs of requests, too."""
    if format == AUTO:
        return tuple(sorted(LOG_FORMATS, key=lambda name: (TRIED.index(name) if name in TRIED else len(TRIED), name)))
    with_requests = REQUESTS in LOG_FORMATS and (format in PROVIDERS or format in REQUEST_BODIES)
    return (format, REQUESTS) if with_requests else (format,)


def reading_places(format: str) -> tuple[str, ...]:
    """Where the code lies that reads a format, each as `module:NAME`: its readers, and what they find by name."""
    formats = formats_read(format)
    named = [(LOG_FORMATS, name) for name in formats] + [(LOG_FILES, name) for name in LOG_FILES]
    named += [(REQUEST_BODIES, name) for name in REQUEST_BODIES if REQUESTS in formats]
    return tuple(table.place(name) for table, name in named)


def module_of(format: str) -> str:
    """The module that reads a format."""
    return LOG_FORMATS.place(format).partition(":")[0]


def hint() -> str:
    """For what no reader here knows: which wheel reads the logs of other programs, if it is not installed."""
    if LOG_FORMATS.keys() & WHEELS["log format"].keys():
        return ""
    return f"; {LOGS}, which reads the formats of other programs, is {how_to_get('log format', 'langfuse')}"
