"""Tasks from real repositories: a git repository, an issue, a commit to start from, and one that fixes it.

A task's folder:

    issue.md        what the agent is asked
    task.toml       base = "COMMIT", fix = "COMMIT", test_command = [...], and perhaps folders = [".", "src"]; a commit is
                    its hexadecimal name, whole or at least seven digits of it
    repository/     a git repository, also a bare one

The agent gets the text files of `base`, without history. The test files that `fix` changes are hidden; its other changes are
the known solution. Tests run with unittest, without packages beside Python's own.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tracewheel import DataError, ForeignFolder, Strict, Task, content_hash
from tracewheel_worlds.patch.decoys import Decoy, changed, decoys_of
from tracewheel_worlds.patch.git_objects import git_objects
from tracewheel_worlds.patch.grading import steers
from tracewheel_worlds.patch.paths import clean_path
from tracewheel_worlds.patch.tasks import patch_task
from tracewheel_worlds.patch.variants import belongs_to_tests, is_test, passed_tests
from tracewheel_worlds.sandbox import Sandbox
from tracewheel_worlds.task_folders import load_each, read_settings

GUESSES = 8  # a forger has to guess at least so many times which test is the wrong one
ROUNDS = 3
MARK = "task.toml"
MOST_HIDDEN = 1 << 20  # of the test files that a fix changes


Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")]
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class RepositoryTask(Strict):
    """What `task.toml` holds."""

    base: Commit
    fix: Commit
    test_command: Annotated[list[Word], Field(min_length=1)]
    folders: tuple[Word, ...] = (".", "src")


def tasks_from(path: Path, sandbox: Sandbox) -> list[Task]:
    """The task of a folder, or those of its subfolders; those that cannot be used are logged with the reason.

    Raises:
        DataError: none can be used; the message says why.
    """
    return load_each(path, (MARK,), lambda folder: repository_task(folder, sandbox)).tasks


def repository_task(folder: ForeignFolder, sandbox: Sandbox) -> Task:
    """The task of a folder. Its known fix is tried: it must pass the hidden tests, and the start must not.

    Raises:
        DataError, ValueError: it makes no task; the message says why.
    """
    given = read_settings(folder, MARK, RepositoryTask, tomllib.loads)
    issue = folder.text("issue.md").strip()
    with git_objects(folder.sub("repository")) as objects:
        before, after = (_texts(objects.files(commit)) for commit in (given.base, given.fix))
    paths = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    hidden = {path: after[path] for path in paths if path in after and belongs_to_tests(path)}
    if sum(map(len, hidden.values())) > MOST_HIDDEN:
        raise DataError(f"the test files that the fix changes take more than {MOST_HIDDEN >> 20} MB")
    source = [path for path in paths if not belongs_to_tests(path) and not steers(path, before)]
    if gone := [path for path in source if path not in after]:
        raise DataError(f"the fix deletes {gone[0]}, which an edit cannot")
    if not source or not any(map(is_test, hidden)):
        raise DataError("the fix is to change a source file and a file test*.py")
    fixed = {**before, **{path: after[path] for path in source}}
    variants = _variants(sandbox, before, fixed, hidden, list(given.folders))
    goal = {
        "family": "repository",
        "tier": 1,
        "edits": [{"path": path, "old": before.get(path, ""), "new": after[path]} for path in source],
        "protected": [path for path in before if belongs_to_tests(path)],
        "variants": variants,
        "folders": list(given.folders),
    }
    return patch_task(issue, before, goal, given.test_command)


def _variants(
    sandbox: Sandbox, before: dict[str, str], fixed: dict[str, str], hidden: dict[str, str], folders: list[str]
) -> list[dict[str, Any]]:
    """The hidden tests in variants, each with the outcomes that right code has."""

    def passing(files: Mapping[str, str], tests: Mapping[str, str]) -> set[str]:
        return {test for test, passed in passed_tests(sandbox, files, tests, folders)[0].items() if passed is True}

    right = passing(fixed, hidden)
    if not right - passing(before, hidden):
        raise DataError("no test of the fix fails before it and passes after it, run with unittest in the sandbox")
    decoys = _working_decoys(hidden, right, lambda tests: passing(fixed, tests))
    if not decoys.keys() & (right - passing(before, hidden)):
        raise DataError("no test that shows the fix compares with a constant, so none can be made wrong on purpose")
    rng = random.Random(content_hash(hidden))
    variants: list[dict[str, Any]] = []
    while len(variants) < 2 or len(variants) * len(decoys) < GUESSES:
        wrong = {test for test in sorted(decoys) if rng.random() < 0.5}
        for chosen in (wrong, decoys.keys() - wrong):
            tests = _with(hidden, [decoys[test] for test in sorted(chosen)])
            variants.append({"files": tests, "expected": {test: test not in chosen for test in sorted(right)}})
    for variant in variants:
        if not variant["expected"].items() <= passed_tests(sandbox, fixed, variant["files"], folders)[0].items():
            raise DataError("the hidden tests depend on each other or on chance, so a pass proves nothing")
    return variants


def _working_decoys(hidden: dict[str, str], right: set[str], passing: Any) -> dict[str, tuple[str, Decoy]]:
    """For each test that can be made wrong, the path and the change that does it."""
    waiting: dict[str, list[tuple[str, Decoy]]] = {}
    for path in filter(is_test, sorted(hidden)):
        for decoy in decoys_of(hidden[path]):
            test = f"{path.removesuffix('.py').replace('/', '.')}.{decoy.test}"
            if test in right:
                waiting.setdefault(test, []).append((path, decoy))
    found: dict[str, tuple[str, Decoy]] = {}
    for _ in range(ROUNDS):
        tried = {test: choices.pop(0) for test, choices in waiting.items() if test not in found and choices}
        passed = passing(_with(hidden, list(tried.values())))
        found |= {test: choice for test, choice in tried.items() if test not in passed}
    return found


def _with(hidden: dict[str, str], decoys: list[tuple[str, Decoy]]) -> dict[str, str]:
    """The hidden files with some tests made wrong."""
    by_path: dict[str, list[Decoy]] = {}
    for path, decoy in decoys:
        by_path.setdefault(path, []).append(decoy)
    return {path: changed(text, by_path.get(path, [])) for path, text in hidden.items()}


def _texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """Those of a commit's files that are text."""
    texts = {path: text for path, content in files.items() if (text := _text(content)) is not None}
    if wrong := [path for path in texts if clean_path(path) != path]:
        raise DataError(f"the commit holds {wrong[0][:100]!r}, which is no plain path of less than 200 characters")
    return texts


def _text(content: bytes) -> str | None:
    try:
        return content.decode() if b"\0" not in content else None
    except UnicodeDecodeError:
        return None
