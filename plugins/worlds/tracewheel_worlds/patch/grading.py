"""What of an agent's files is graded, and what it changed that it should not."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

# Files that steer Python or its test runners, wherever they lie.
STEERING = (
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
    "sitecustomize.py",
    "usercustomize.py",
)
RUNNERS = ("pytest", "_pytest", "pluggy", "nose", "hypothesis", "tracewheel_test")


def graded_files(
    before: Mapping[str, str], after: Mapping[str, str], protected: Iterable[str]
) -> tuple[dict[str, str], list[str]]:
    """The files to grade, and the flags.

    Protected files (tests) and those that steer Python or its test runners are as they were before. New ones that steer, or
    that stand before a module of Python's own, are left out.

    Args:
        before: The files at the start, by path.
        after: The files at the end.
        protected: The paths that may not change.

    Returns:
        The files by path, and the changes that were undone, as `changed tests/test_a.py`.
    """
    kept = {*protected, *(path for path in before if steers(path, before))}
    files, flags = dict(after), []
    for path in sorted(kept):
        if path in before and after.get(path) != before[path]:
            files[path] = before[path]
            flags.append(f"{'changed' if path in after else 'deleted'} {path}")
    for path in sorted(after.keys() - before.keys()):
        if path in kept or steers(path, before):
            del files[path]
            flags.append(f"added {path}")
    # A restored file comes before what now lies under it, or above it, as a folder.
    for path in list(files):
        if any(str(parent) in files for parent in PurePosixPath(path).parents):
            del files[path]
    return files, flags


def steers(path: str, before: Mapping[str, str]) -> bool:
    """Whether a file may change how Python or a test runner works, beside being imported by what the repository holds."""
    pure = PurePosixPath(path)
    if pure.name in STEERING or pure.suffix in (".pth", ".so", ".pyd"):
        return True
    top = pure.parts[0].removesuffix(".py")
    known = {PurePosixPath(other).parts[0].removesuffix(".py") for other in before}
    return top not in known and (top in sys.stdlib_module_names or top in RUNNERS)
