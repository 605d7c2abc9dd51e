"""The log formats: a light table, as the config and the command line's help need the names without the readers.

To add a format: write `tracewheel/traces/readers/NAME.py` with its `READER` (or `READERS`), and add its line here.
"""

from __future__ import annotations

from tracewheel.core.kind_table import KindTable

AUTO = "auto"
# Format: its module in `tracewheel.traces.readers`.
LOG_FORMATS = {
    "anthropic": "anthropic",
    "atif": "atif",
    "claude_code": "claude_code",
    "codex": "codex",
    "gemini_cli": "gemini_cli",
    "inspect": "inspect_eval",
    "langfuse": "langfuse",
    "mini_swe_agent": "mini_swe_agent",
    "mlflow": "mlflow",
    "openai": "openai",
    "openai_agents": "openai_agents",
    "openai_responses": "openai_responses",
    "openhands": "openhands",
    "openinference": "span_traces",
    "otel": "span_traces",
    "requests": "requests",
    "sharegpt": "sharegpt",
    "smolagents": "smolagents",
    "sweagent": "sweagent",
    "table": "table",
    "tau_bench": "tau_bench",
    "toolbench": "toolbench",
    "vercel_ai": "vercel_ai",
    "langchain": "langchain",
    "langgraph": "langgraph",
    "pydantic_ai": "pydantic_ai",
    "gemini": "gemini",
    "bedrock": "bedrock",
    "tau2": "tau2",
    "langsmith": "langsmith",
    "google_adk": "google_adk",
    "autogen": "autogen",
    "weave": "weave",
    "tracewheel": "tracewheel",
    "xlam": "xlam",
}
FORMAT_NAMES = (AUTO, *LOG_FORMATS)
# Readers that `ingest.readers` names beside `module:Class`.
READERS = KindTable("tracewheel.readers", {"mapping": "tracewheel.traces.readers.mapping:MappingReader"})
