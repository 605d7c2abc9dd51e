"""A task directory as it lies on disk: Harbor's layout, or the older one of terminal-bench."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.environments.box_state import StoredFile, check_path, stored_file
from tracewheel.sandbox import BoxFile

MOST_BYTES = 16 << 20
TIERS = {"easy": 1, "medium": 2, "hard": 3}


class Refused(Exception):
    """A directory that cannot be used here; the message is the reason."""


@dataclass(frozen=True)
class TaskDirectory:
    """A task directory.

    Attributes:
        name: The folder's name.
        instruction: What the agent is asked.
        dockerfile: The text of its Dockerfile; "" without one.
        context: The folder that the Dockerfile copies from.
        tests: The files of `/tests`, by their path in it.
        run: Which of them is run.
        solution: The files of `/solution`; the script is `solve.sh`.
        by_exit_code: Whether the tests' exit status is the reward, as in the older layout.
        seconds: How long the tests may take.
        family: The category.
        tier: Its difficulty.
    """

    name: str
    instruction: str
    dockerfile: str
    context: Path
    tests: dict[str, StoredFile]
    run: str
    solution: dict[str, StoredFile]
    by_exit_code: bool
    seconds: float
    family: str
    tier: int


def is_task(folder: Path) -> bool:
    """Whether a folder is a task directory of one of the layouts."""
    return (folder / "task.toml").is_file() or (folder / "task.yaml").is_file()


def read_directory(folder: Path) -> TaskDirectory:
    """Read a task directory.

    Raises:
        Refused: it is incomplete or broken.
    """
    try:
        return _harbor(folder) if (folder / "task.toml").is_file() else _terminal_bench(folder)
    except (OSError, UnicodeDecodeError, ValueError, TypeError, AttributeError) as error:
        raise Refused(f"cannot be read: {type(error).__name__}: {error}") from error


def files_in(folder: Path) -> dict[str, StoredFile]:
    """The files of a folder by relative path.

    Raises:
        Refused: they are too large, or one has a name that a box cannot hold.
    """
    found: dict[str, StoredFile] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise Refused(f"{name} is a link or no file")
        size += path.stat().st_size if path.is_file() else 0
        if size > MOST_BYTES:
            raise Refused(f"its files take more than {MOST_BYTES >> 20} MB")
        check_path(name)
        if path.is_file():
            found[name] = stored_file(BoxFile(path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644))
    return found


def _harbor(folder: Path) -> TaskDirectory:
    config = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    environment, metadata = config.get("environment", {}), config.get("metadata", {})
    if (folder / "environment" / "docker-compose.yaml").exists():
        raise Refused("it needs several containers (docker-compose.yaml)")
    if environment.get("docker_image"):
        raise Refused(f"it needs the image {environment['docker_image']}")
    if environment.get("gpus"):
        raise Refused("it needs a GPU")
    tests, solution = files_in(folder / "tests"), files_in(folder / "solution")
    if "test.sh" not in tests:
        raise Refused("it has no tests/test.sh")
    if "solve.sh" not in solution:
        raise Refused("it has no solution/solve.sh, so that it cannot be validated")
    return TaskDirectory(
        folder.name,
        _words(folder / "instruction.md"),
        _words(folder / "environment" / "Dockerfile", ""),
        folder / "environment",
        tests,
        "test.sh",
        solution,
        False,
        float(config.get("verifier", {}).get("timeout_sec", 600.0)),
        str(metadata.get("category", "harbor")),
        TIERS.get(str(metadata.get("difficulty")), 1),
    )


def _terminal_bench(folder: Path) -> TaskDirectory:
    import yaml

    config: dict[str, Any] = yaml.safe_load((folder / "task.yaml").read_text(encoding="utf-8"))
    if not (folder / "solution.sh").is_file():
        raise Refused("it has no solution.sh, so that it cannot be validated")
    if not (folder / "run-tests.sh").is_file():
        raise Refused("it has no run-tests.sh")
    script = {"run-tests.sh": _words(folder / "run-tests.sh")}
    return TaskDirectory(
        folder.name,
        str(config["instruction"]).strip(),
        _words(folder / "Dockerfile", ""),
        folder,
        {**files_in(folder / "tests"), **script},
        "run-tests.sh",
        {"solve.sh": _words(folder / "solution.sh")},
        True,
        float(config.get("max_test_timeout_sec", 180.0)),
        str(config.get("category", "terminal-bench")),
        TIERS.get(str(config.get("difficulty")), 1),
    )


def _words(path: Path, missing: str | None = None) -> str:
    if missing is not None and not path.exists():
        return missing
    return path.read_text(encoding="utf-8")
