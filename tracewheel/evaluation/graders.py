"""The audit of graders: that of the wheel `graders`, found by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracewheel.core.kind_table import KindTable, load_class

AUDIT_FILE = "audit.json"
AUDITS = KindTable("tracewheel.audits", {})


def auditor() -> Callable[..., dict[str, Any]]:
    """The audit of a profile's graders on tasks, into a folder: its `verdict`, and `exploitable`, for the gate.

    Raises:
        ConfigError: the wheel is not installed.
    """
    return load_class("graders", AUDITS, "audit")
