"""Models as judges, and the audit of graders. For verifiers of your own: `ask_about`, `JudgeSettings`, `JudgeFailure`."""

from __future__ import annotations

import importlib
from typing import Any

PUBLIC = {
    "tracewheel_graders.judges.asking": ("JudgeFailure", "ask_about"),
    "tracewheel_graders.judges.criteria": ("JudgeSettings",),
}


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line's help needs none of them."""
    module = next((module for module, names in PUBLIC.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'tracewheel_graders' has no attribute '{name}'")
    return getattr(importlib.import_module(module), name)
