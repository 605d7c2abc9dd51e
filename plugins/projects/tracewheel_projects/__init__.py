"""What a project begins with: its folder, from nothing, around a program or from a log; tasks where there are no logs; the tiny
base of a world of your own and the logs of an agent in it.

For wheels and scripts that make bases and logs of their worlds: the names in `PUBLIC`.
"""

from __future__ import annotations

import importlib
from typing import Any

PUBLIC = {
    "tracewheel_projects.demo.base_policy": ("train_base_policy",),
    "tracewheel_projects.demo.base_tokenizer": ("build_tokenizer", "chat_pieces", "fixed_text"),
    "tracewheel_projects.demo.config": ("BasePolicyConfig", "load_base_config"),
    "tracewheel_projects.demo.deployed_logs": (
        "FIRST_EPISODE",
        "Deployment",
        "log_line",
        "logged_episodes",
        "played_record",
        "with_broken_lines",
        "with_call_ids",
    ),
    "tracewheel_projects.demo.worlds": ("World", "world_of"),
}


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line's help needs none of them."""
    module = next((module for module, names in PUBLIC.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'tracewheel_projects' has no attribute '{name}'")
    return getattr(importlib.import_module(module), name)
