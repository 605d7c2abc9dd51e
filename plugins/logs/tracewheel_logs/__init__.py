"""Readers of other programs' logs: agents, frameworks, tracers, providers and data sets.

For readers of your own: the names in `PUBLIC`.
"""

from __future__ import annotations

import importlib
from typing import Any

PUBLIC = {
    "tracewheel_logs.dialogue": ("Dialogue", "unreadable"),
    "tracewheel_logs.logged_request": ("LoggedRequest", "RequestBodies"),
    "tracewheel_logs.model_calls": ("Conversation", "ModelCall", "ToolRun", "join_calls"),
    "tracewheel_logs.otel": ("identity_keys", "of_agent"),
    "tracewheel_logs.scores": ("LoggedScore", "judge_of", "judged_of", "outcome_of", "scores_info"),
    "tracewheel_logs.spans": ("Span", "SpanConventions", "is_event", "is_span", "span_reader"),
}


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line's help needs none of them."""
    module = next((module for module, names in PUBLIC.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'tracewheel_logs' has no attribute '{name}'")
    return getattr(importlib.import_module(module), name)
