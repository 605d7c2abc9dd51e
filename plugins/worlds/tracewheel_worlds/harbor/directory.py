"""A task directory as it lies on disk: Harbor's layout, or the older one of terminal-bench."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tracewheel import DataError, ForeignFile, ForeignFolder
from tracewheel_worlds.box_state import StoredFile, check_path, stored_file
from tracewheel_worlds.sandbox import BoxFile
from tracewheel_worlds.task_folders import MOST_SETTINGS, read_settings

TIERS = {"easy": 1, "medium": 2, "hard": 3}
HARBOR, TERMINAL_BENCH = MARKS = ("task.toml", "task.yaml")
Seconds = Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)]
Label = Annotated[str | None, Field(max_length=100, pattern=r"^[^\p{C}]*$")]


@dataclass(frozen=True)
class TaskDirectory:
    """A task directory.

    Attributes:
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

    instruction: str
    dockerfile: str
    context: ForeignFolder
    tests: dict[str, StoredFile]
    run: str
    solution: dict[str, StoredFile]
    by_exit_code: bool
    seconds: float
    family: str
    tier: int


class _Section(BaseModel):
    """What is read of a section of a foreign file; its other keys are left alone."""

    model_config = ConfigDict(frozen=True, strict=True)


class _Environment(_Section):
    docker_image: Label = None
    gpus: Any = None


class _Metadata(_Section):
    category: Label = None
    difficulty: Any = None


class _Verifier(_Section):
    timeout_sec: Seconds = 600.0


class _TaskToml(_Section):
    environment: _Environment = _Environment()
    metadata: _Metadata = _Metadata()
    verifier: _Verifier = _Verifier()


class _TaskYaml(_Metadata):
    instruction: str
    max_test_timeout_sec: Seconds = 180.0


def read_directory(folder: ForeignFolder) -> TaskDirectory:
    """Read a task directory.

    Raises:
        DataError, ValueError: it is incomplete or broken.
    """
    return _harbor(folder) if folder.holds(HARBOR) else _terminal_bench(folder)


def files_in(folder: ForeignFolder) -> dict[str, StoredFile]:
    """The files of a folder by relative path.

    Raises:
        DataError: they are too large, or one is a link or no file.
        ValueError: one has a name that a box cannot hold.
    """
    files = folder.files()
    for name in files:
        check_path(name)
    return {name: stored_file(for_box(file)) for name, file in files.items()}


def for_box(file: ForeignFile) -> BoxFile:
    """A file as it comes into a box."""
    return BoxFile(file.content, 0o755 if file.executable else 0o644)


def _harbor(folder: ForeignFolder) -> TaskDirectory:
    config = read_settings(folder, HARBOR, _TaskToml, tomllib.loads)
    if folder.holds("environment/docker-compose.yaml"):
        raise DataError("it needs several containers (docker-compose.yaml)")
    if config.environment.docker_image:
        raise DataError(f"it needs the image {config.environment.docker_image}")
    if config.environment.gpus:
        raise DataError("it needs a GPU")
    for name, why in (("tests/test.sh", ""), ("solution/solve.sh", ", so that it cannot be validated")):
        if not folder.holds(name):
            raise DataError(f"it has no {name}{why}")
    return TaskDirectory(
        folder.text("instruction.md"),
        _dockerfile(folder.sub("environment")),
        folder.sub("environment"),
        files_in(folder.sub("tests")),
        "test.sh",
        files_in(folder.sub("solution")),
        False,
        config.verifier.timeout_sec,
        "harbor" if config.metadata.category is None else config.metadata.category,
        TIERS.get(str(config.metadata.difficulty), 1),
    )


def _terminal_bench(folder: ForeignFolder) -> TaskDirectory:
    config = read_settings(folder, TERMINAL_BENCH, _TaskYaml, _yaml)
    for name, why in (("solution.sh", ", so that it cannot be validated"), ("run-tests.sh", "")):
        if not folder.holds(name):
            raise DataError(f"it has no {name}{why}")
    tests = files_in(folder.sub("tests")) if folder.holds("tests") else {}
    return TaskDirectory(
        config.instruction.strip(),
        _dockerfile(folder),
        folder,
        {**tests, "run-tests.sh": folder.text("run-tests.sh")},
        "run-tests.sh",
        {"solve.sh": folder.text("solution.sh")},
        True,
        config.max_test_timeout_sec,
        "terminal-bench" if config.category is None else config.category,
        TIERS.get(str(config.difficulty), 1),
    )


def _dockerfile(folder: ForeignFolder) -> str:
    return folder.text("Dockerfile", MOST_SETTINGS) if folder.holds("Dockerfile") else ""


def _yaml(text: str) -> Any:
    """YAML without aliases: a few of them stand for more than a memory holds.

    Raises:
        ValueError: it is no YAML.
    """
    import yaml

    class Plain(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not read")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Plain)  # as safe as SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
