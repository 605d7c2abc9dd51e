"""Runs a task's own tests on what an agent left, in a box of their own, and reads the reward.

The agent's files are data there. Nothing that bash, Python or pytest reads by itself is the agent's: home, programs, settings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from tracewheel import InfrastructureError
from tracewheel_worlds.box_state import StoredFile, box_files
from tracewheel_worlds.harbor.image import with_folders
from tracewheel_worlds.harbor.tools import PATH, tool_files
from tracewheel_worlds.sandbox import BoxFile, BoxRun, Limits, SandboxConfig, make_sandbox

HOME = ".home"
LOGS = "logs/verifier"
# What an agent may not bring into the box of the tests. Test scripts put `/root/.local/bin` first in their PATH.
PROGRAMS = ("root/.local/bin", "root/.local/lib")
OURS = ("tests", "solution", LOGS, *PROGRAMS)
# Variables of a task's image by which bash, Python, pytest or the loader would run a file of the agent's before the tests.
LOADING = re.compile(
    r"BASH_ENV|ENV|BASHOPTS|SHELLOPTS|PROMPT_COMMAND|CDPATH|IFS|PYTEST_\w+|LD_\w+|GCONV_PATH|"
    r"PYTHON(PATH|HOME|STARTUP|USERBASE|PLATLIBDIR|EXECUTABLE|INSPECT|BREAKPOINT|PYCACHEPREFIX|WARNINGS)"
)
NUMBER = re.compile(r"[01](\.\d*)?([eE][+-]?\d+)?|\.\d+")
REWARDS = (f"{LOGS}/reward.txt", f"{LOGS}/reward.json")
OVERWRITTEN = "the reward was written more than once, and the tests' script was not the last process to end"
MOST_SECONDS = 300.0
MOST_OUTPUT = 1 << 20
# What `box/run.py` says and ends with.
READY = b"ready\n"  # alone, where nothing outlived the script, and no process another that had started it
FINE, FAILED, KILLED = 40, 41, 42


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
        InfrastructureError: the box could not be made, or did not come as far as the tests.
    """
    ours = _ours(box_files(start["files"]), goal)
    given = with_folders({**_left(box_files(files), set(start["folders"]), ours), **ours}, set(start["folders"]))
    config = sandbox.with_folders(start["folders"])
    limits = Limits(seconds=min(goal["seconds"], MOST_SECONDS), memory_mb=2048, output_bytes=MOST_OUTPUT)
    command = ["python3", "-I", "-B", "-c", _runner(), start["workdir"], f"/tests/{goal['run']}"]
    run = make_sandbox(config).run(command, given, limits=limits, keep=True, env=_variables(start["env"]), counted=LOGS)
    if not run.stdout.startswith(READY):
        raise InfrastructureError(f"the box of the tests did not start ({run.exit_code}): {run.text[-200:]}")
    if run.exit_code not in (FINE, FAILED):
        why = ", ".join(run.findings) or ("their script was killed" if run.exit_code == KILLED else "what ran them was killed")
        return 0.0, f"the tests were ended: {why}"
    if changed := [path for path, file in ours.items() if not file.folder and run.files.get(path) != file]:
        return 0.0, f"a file of the tests was changed while they ran: {changed[0]}"
    if run.exit_code != FINE:
        return 0.0, "the tests' script ended with another exit status than 0"
    if goal["by_exit_code"]:
        return 1.0, "the tests' script ended with exit status 0"
    # A server may outlive the script, and a script may begin with a 0; but the last word must be the script's.
    if run.stdout != READY and _written_again(run):
        return 0.0, OVERWRITTEN
    return read_reward(run.files)


def read_reward(files: Mapping[str, BoxFile]) -> tuple[float, str]:
    """The reward that tests wrote, and where; 0 where they wrote none that counts."""
    for name in REWARDS:
        if name not in files:
            continue
        value = _reward(name, files[name])
        if value is None:
            return 0.0, f"/{name} holds no number from 0 to 1: {files[name].content[:60]!r}"
        return value, f"/{name}"
    return 0.0, "the tests wrote neither /logs/verifier/reward.txt nor reward.json"


def _written_again(run: BoxRun) -> bool:
    """Whether a reward was written more than once, or two files hold two."""
    found = {_reward(name, run.files[name]) for name in REWARDS if name in run.files}
    writes = max(run.writes.get(name.removeprefix(f"{LOGS}/"), 0) for name in (*REWARDS, ""))
    return len(found) > 1 or writes > 1


def _reward(name: str, file: BoxFile) -> float | None:
    text = file.content.decode(errors="replace").strip()
    return _number(text) if name.endswith("txt") else _json_number(text)


@cache
def _runner() -> str:
    """The program that runs the tests' script."""
    return Path(__file__).parent.joinpath("box", "run.py").read_text(encoding="utf-8")


def _ours(start: Mapping[str, BoxFile], goal: Mapping[str, Any]) -> dict[str, BoxFile]:
    """The files of the tests, the tools, and a home without anything of the agent's, by their path in the box."""
    tests = {f"tests/{path}": file for path, file in box_files(goal["tests"]).items()}
    # What the task itself put into its home. A link could lead to what the agent can write.
    own = {path: file for path, file in start.items() if path.startswith("root/.") and not file.link}
    programs = {path: file for path, file in own.items() if _under(path, PROGRAMS)}
    home = {f"{HOME}/{path.removeprefix('root/')}": file for path, file in own.items()}
    env = {f"{HOME}/.local/bin/env": BoxFile(), "root/.local/bin/env": BoxFile()}
    ours = {**programs, **home, **env, **tests, **tool_files(), LOGS: BoxFile(mode=0o755, folder=True)}
    above = _above(ours)
    return {path: file for path, file in ours.items() if path not in above}


def _left(files: Mapping[str, BoxFile], folders: set[str], ours: Mapping[str, BoxFile]) -> dict[str, BoxFile]:
    """What of an agent's files comes into the box: those in the task's folders, where none of ours is or has to be.

    Files of its home that do not begin with a dot are found in ours, too, by links.
    """
    above = _above(ours)
    left = {
        path: file
        for path, file in files.items()
        if path.partition("/")[0] in folders and not _under(path, OURS) and path not in above and path not in ours
    }
    names = {PurePosixPath(path).parts[1] for path in left if path.startswith("root/") and not path.startswith("root/.")}
    return left | {f"{HOME}/{name}": BoxFile(mode=0o777, link=f"/root/{name}") for name in names}


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of the tests' script."""
    kept = {name: value for name, value in env.items() if not LOADING.fullmatch(name)}
    if path := env.get("PYTHONPATH"):
        kept["TESTS_PYTHONPATH"] = path  # for pytest, behind its own
    ours = {"PATH": PATH, "HOME": f"/box/{HOME}", "TEST_DIR": "/tests", "PYTHONNOUSERSITE": "1"}
    return {"LANG": "C.UTF-8", **kept, **ours}


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


def _above(files: Mapping[str, BoxFile]) -> set[str]:
    """All folders that files lie in."""
    return {str(parent) for path in files for parent in PurePosixPath(path).parents}
