"""Tools for the boxes of a task's tests: pytest of this machine, and stand-ins for programs that would install it.

A box has no network. Test scripts begin with the installation of pytest, so these programs say that it is done for what is
there, and fail for anything else. They are not in the agent's box.
"""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tracewheel import DataError
from tracewheel_worlds.sandbox import BoxFile

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PATH = f"/box/.tools/bin:{SYSTEM_PATH}"
SCRIPT = Path(__file__).parent / "box" / "tools.py"
NAMES = ("apt-get", "apt", "pip", "pip3", "uv", "uvx", "curl", "pytest")
# Isolated: no file of an agent's, in its home or in the folder that the tests are run in, is loaded by a stand-in.
STAND_IN = '#!/bin/sh\nexec "$(PATH={path} command -v python3)" -I /box/.tools/tools.py {name} "$@"\n'
# `-m pytest` would take a `pytest.py` of the current folder.
PYTHON = (
    '#!/bin/sh\n[ "$1 $2" = "-m pytest" ] && shift 2 && exec /box/.tools/bin/pytest "$@"\n'
    'exec "$(PATH={path} command -v python3)" "$@"\n'
)
PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging")


@functools.cache
def tool_files() -> dict[str, BoxFile]:
    """The tools by their path in a box.

    Raises:
        DataError: pytest is not installed here.
    """
    files = {".tools/tools.py": BoxFile(SCRIPT.read_bytes())}
    for name in NAMES:
        files[f".tools/bin/{name}"] = BoxFile(STAND_IN.format(path=SYSTEM_PATH, name=name).encode(), 0o755)
    for name in ("python", "python3"):
        files[f".tools/bin/{name}"] = BoxFile(PYTHON.format(path=SYSTEM_PATH).encode(), 0o755)
    try:
        parts = [part for name in PACKAGES for part in distribution(name).files or []]
    except PackageNotFoundError as error:
        raise DataError(f"its tests may need pytest, and {error.name} is not installed: pip install pytest") from error
    for part in parts:
        if ".." not in part.parts and (part.suffix == ".py" or part.name == "METADATA"):
            files[f".tools/site/{part}"] = BoxFile(Path(str(part.locate())).read_bytes())
    return files
