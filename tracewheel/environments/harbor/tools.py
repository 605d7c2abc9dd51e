"""Tools for the boxes of a task's tests: pytest of this machine, and stand-ins for programs that would install it.

A box has no network. Test scripts begin with the installation of pytest, so these programs say that it is done for what is
there, and fail for anything else. They are not in the agent's box.
"""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tracewheel.environments.harbor.directory import Refused
from tracewheel.sandbox import BoxFile

PATH = "/box/.tools/bin:/usr/local/bin:/usr/bin:/bin"
SCRIPT = Path(__file__).parent / "box" / "tools.py"
NAMES = ("apt-get", "apt", "pip", "pip3", "uv", "uvx", "curl", "pytest")
PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging")


@functools.cache
def tool_files() -> dict[str, BoxFile]:
    """The tools by their path in a box.

    Raises:
        Refused: pytest is not installed here.
    """
    files = {".tools/tools.py": BoxFile(SCRIPT.read_bytes())}
    for name in NAMES:
        files[f".tools/bin/{name}"] = BoxFile(f'#!/bin/sh\nexec python3 /box/.tools/tools.py {name} "$@"\n'.encode(), 0o755)
    try:
        parts = [part for name in PACKAGES for part in distribution(name).files or []]
    except PackageNotFoundError as error:
        raise Refused(f"its tests may need pytest, and {error.name} is not installed: pip install 'tracewheel[dev]'") from error
    for part in parts:
        if ".." not in part.parts and (part.suffix == ".py" or part.name == "METADATA"):
            files[f".tools/site/{part}"] = BoxFile(Path(str(part.locate())).read_bytes())
    return files
