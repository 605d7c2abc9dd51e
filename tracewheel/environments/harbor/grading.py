"""Runs a task's own tests on what an agent left, in a box of their own, and reads the reward."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from tracewheel.environments.box_state import StoredFile, box_files
from tracewheel.environments.harbor.image import with_folders
from tracewheel.environments.harbor.tools import PATH, tool_files
from tracewheel.sandbox import BoxFile, Limits, SandboxConfig, make_sandbox

# What an agent may not bring into the box of the tests.
OURS = ("tests", "solution", ".tools", "logs/verifier")
NUMBER = re.compile(r"[01](\.\d*)?([eE][+-]?\d+)?|\.\d+")
MOST_SECONDS = 300.0


def graded(
    files: Mapping[str, StoredFile], start: Mapping[str, Any], goal: Mapping[str, Any], sandbox: SandboxConfig
) -> tuple[float, str]:
    """The reward of what an agent left, and why.

    Args:
        files: The files at the end.
        start: The task's initial state.
        goal: Its goal.
        sandbox: How code is run.

    Raises:
        InfrastructureError: the box could not be made.
    """
    left = {path: file for path, file in box_files(files).items() if not _under(path, OURS)}
    tests = {f"tests/{path}": file for path, file in box_files(goal["tests"]).items()}
    given = {**left, **tests, **tool_files(), "logs/verifier": BoxFile(mode=0o755, folder=True)}
    given = {
        path: file for path, file in given.items() if not (file.folder and any(one.startswith(f"{path}/") for one in given))
    }
    for home in ("root/.local/bin/env",):
        given.setdefault(home, BoxFile())
    config = sandbox.model_copy(update={"folders": tuple(start["folders"])})
    limits = Limits(seconds=min(goal["seconds"], MOST_SECONDS), memory_mb=2048)
    env = {**start["env"], "PATH": PATH, "HOME": "/root", "TEST_DIR": "/tests"}
    command = ["bash", "-c", 'cd "$0" && exec bash "$1"', start["workdir"], f"/tests/{goal['run']}"]
    run = make_sandbox(config).run(command, with_folders(given, set(start["folders"])), limits=limits, keep=True, env=env)
    if run.exit_code is None:
        return 0.0, f"the tests were ended: {', '.join(run.findings)}"
    if goal["by_exit_code"]:
        return float(run.exit_code == 0), f"the tests ended with exit status {run.exit_code}"
    return read_reward(run.files)


def read_reward(files: Mapping[str, BoxFile]) -> tuple[float, str]:
    """The reward that tests wrote, and where; 0 where they wrote none that counts."""
    for name in ("logs/verifier/reward.txt", "logs/verifier/reward.json"):
        if name not in files:
            continue
        text = files[name].content.decode(errors="replace").strip()
        value = _number(text) if name.endswith("txt") else _json_number(text)
        if value is None:
            return 0.0, f"/{name} holds no number from 0 to 1: {text[:60]!r}"
        return value, f"/{name}"
    return 0.0, "the tests wrote neither /logs/verifier/reward.txt nor reward.json"


def _number(text: str) -> float | None:
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    return value if 0.0 <= value <= 1.0 else None


def _json_number(text: str) -> float | None:
    """The number `reward` of an object, or its only number."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value = value.get("reward", next(iter(value.values())) if len(value) == 1 else None)
    if type(value) not in (int, float) or not 0.0 <= value <= 1.0:
        return None
    return float(value)


def _under(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
