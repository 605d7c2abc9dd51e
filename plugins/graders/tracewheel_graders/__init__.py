"""Models as judges, and the audit of graders. For verifiers of your own: `ask_about`, `JudgeSettings`, `JudgeFailure`."""

from __future__ import annotations

import importlib
from typing import Any

PUBLIC = {
    "JudgeFailure": "tracewheel_graders.judges.asking",
    "JudgeSettings": "tracewheel_graders.judges.criteria",
    "ask_about": "tracewheel_graders.judges.asking",
}


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line's help needs none of them."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'tracewheel_graders' has no attribute '{name}'")
    return getattr(importlib.import_module(PUBLIC[name]), name)
