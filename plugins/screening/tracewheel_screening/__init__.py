"""Which new logs may be learnt from, and the screen for texts that speak to whoever trains or judges.

For wheels that screen texts of their own: the names in `PUBLIC`.
"""

from __future__ import annotations

import importlib
from typing import Any

PUBLIC = {
    "tracewheel_screening.injection.rules": ("CHAT_TOKENS", "INVISIBLE"),
    "tracewheel_screening.injection.screen": ("MARK", "suspicions", "without"),
}


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line's help needs none of them."""
    module = next((module for module, names in PUBLIC.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'tracewheel_screening' has no attribute '{name}'")
    return getattr(importlib.import_module(module), name)
