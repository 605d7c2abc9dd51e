"""Hidden test files in several variants, in each of which other tests are wrong on purpose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tracewheel import InfrastructureError, parse_json
from tracewheel_worlds.sandbox import BoxRun, Limits, Sandbox

RUNNER = Path(__file__).parent / "box" / "unittests.py"
READY = b"ready\n"
LIMITS = Limits(seconds=60.0, memory_mb=1024, output_bytes=1 << 20)


def passed_tests(
    sandbox: Sandbox, files: Mapping[str, str], tests: Mapping[str, str], folders: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Run test files with unittest in a fresh box.

    Args:
        sandbox: Where it runs.
        files: The repository.
        tests: The test files with what they need, which replace those of the repository.
        folders: Where modules are imported from, as `.` or `src`.

    Raises:
        InfrastructureError: the box did not come as far as the tests.

    Returns:
        What the box says of each test by its id, and what was odd about the run.
    """
    modules = [str(PurePosixPath(path).with_suffix("")).replace("/", ".") for path in sorted(tests) if is_test(path)]
    given = {f"repository/{path}": text.encode() for path, text in {**files, **tests}.items()}
    command = ["/bin/sh", "-c", "mkdir -p repository && cd repository && exec python3 -I -S ../unittests.py"]
    asked = json.dumps({"folders": list(folders), "modules": modules}).encode()
    run = sandbox.run(command, {**given, "unittests.py": RUNNER.read_bytes()}, asked, LIMITS)
    try:
        said = parse_json(after_ready(run).decode())
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return {}, list(run.findings) or ["ended before all tests were run"]
    return said, list(run.findings)


def after_ready(run: BoxRun) -> bytes:
    """What a box wrote after its first line, which says that it started, and comes before any of an agent's code.

    Raises:
        InfrastructureError: there is no such line.
    """
    if not run.stdout.startswith(READY):
        raise InfrastructureError(f"the box of the tests did not start ({run.exit_code}): {run.text[:200]}")
    return run.stdout[len(READY) :]


def is_test(path: str) -> bool:
    """Whether a path is that of a file with tests."""
    return PurePosixPath(path).suffix == ".py" and PurePosixPath(path).name.startswith("test")


def belongs_to_tests(path: str) -> bool:
    """Whether a path is that of a test file, or of something that tests use."""
    return is_test(path) or bool({"test", "tests"} & set(PurePosixPath(path).parts[:-1]))
