"""The patch environment: an agent that looks at a repository, changes it, runs its tests and submits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

from tracewheel import DataError, InfrastructureError, Observation, Strict, Task, function_tool, kind_text
from tracewheel_worlds.boxed import BOXED_THREADS
from tracewheel_worlds.patch.agent import near_misses, solution
from tracewheel_worlds.patch.attacks import attacks
from tracewheel_worlds.patch.diff import DiffError, apply_diff
from tracewheel_worlds.patch.library import FAMILIES
from tracewheel_worlds.patch.paths import clean_path, is_text
from tracewheel_worlds.patch.repository import tasks_from
from tracewheel_worlds.patch.tasks import TIERS, make_tasks, patch_task
from tracewheel_worlds.sandbox import Limits, Sandbox, SandboxConfig, make_sandbox

SYSTEM_PROMPT = (
    "You fix bugs in a Python repository. Change only source files: a changed or deleted test, or a changed setting of the "
    "tests or of Python, fails the task. Call submit when you are done."
)
ECHO_LIMIT = 64
OUTPUT_LIMIT = 4000
LINES_LIMIT = 400
FOUND_LIMIT = 60
FILE_LIMIT = 400_000  # characters
FILES_LIMIT = 3000
ALL_LIMIT = 8_000_000  # characters, so that the files fit into a box
SECONDS = 60.0
TEST_LIMITS = Limits(seconds=SECONDS, memory_mb=1024)
TIMES = re.compile(r"\bin \d+\.\d+ ?s")


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    return function_tool(name, description, {key: {"type": kind} for key, kind in parameters.items()})


TOOLS = [
    _tool("list_files", "List all files."),
    _tool("read_file", "Read lines of a file; 1 and 0 give all of it.", path="string", start="integer", end="integer"),
    _tool("search", "Find the lines of all files that contain a text.", text="string"),
    _tool(
        "edit",
        "Replace a text, which a file holds exactly once. An empty old text makes a new file.",
        path="string",
        old="string",
        new="string",
    ),
    _tool("apply_patch", "Apply a unified diff.", diff="string"),
    _tool("run_tests", "Run the visible tests."),
    _tool("submit", "End the work."),
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}
TYPES = {"string": str, "integer": int}


class PatchEnvironment:
    r"""A repository as text files, with tools to look, to change and to run the visible tests in a sandbox.

    >>> from tracewheel_worlds.patch.tasks import patch_task
    >>> goal = {"family": "condition", "tier": 1}
    >>> patch = PatchEnvironment()
    >>> patch.reset(patch_task("double(2) should be 4.", {"a.py": "def double(x):\n    return x\n"}, goal))
    >>> patch.step("edit", {"path": "a.py", "old": "return x", "new": "return 2 * x"}).text
    'ok'
    >>> patch.snapshot()["files"]["a.py"]
    'def double(x):\n    return 2 * x\n'

    State: `{"files": {path: text}, "findings": [...], "submitted": bool}`; findings are those of the sandbox. There is no git
    history, and no hidden test: those are in the task's goal, for the verifier `patch_tests`. Each run of the tests begins with
    the files alone, in a fresh box.
    """

    class Args(Strict):
        """How code is run; the tasks' verifier runs it alike."""

        sandbox: SandboxConfig = SandboxConfig()

    kind = "patch"
    verifiers = ("patch_tests",)
    tool_threads = BOXED_THREADS
    system_prompt = SYSTEM_PROMPT
    families = FAMILIES
    tiers = TIERS

    def __init__(self, args: Args | None = None) -> None:
        self._config = (args or self.Args()).sandbox
        self._made: Sandbox | None = None
        self._files: dict[str, str] = {}
        self._command: list[str] = []
        self._findings: list[str] = []
        self._submitted = False

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        state, goal = logged.get("initial_state"), logged.get("goal")
        files = state.get("files") if isinstance(state, dict) else None
        if not _are_files(files):
            raise DataError("'initial_state.files' needs the text of each file by its path")
        command = state.get("test_command") if isinstance(state, dict) else None
        if command is not None and not (isinstance(command, list) and command and all(isinstance(one, str) for one in command)):
            raise DataError("'initial_state.test_command' needs a list of texts")
        if not isinstance(goal, dict) or not isinstance(goal.get("family"), str) or type(goal.get("tier")) is not int:
            raise DataError("'goal' needs 'family', 'tier' and what the verifier patch_tests checks")
        return self._own(patch_task(prompt, files, goal, command))

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Generated packages with planted bugs; see `patch.tasks`."""
        return [self._own(task) for task in make_tasks(n, seed)]

    def tasks_from(self, path: Path) -> list[Task]:
        """The tasks of real repositories in a folder; see `patch.repository`.

        Raises:
            DataError: one cannot be used; the message says why.
        """
        return [self._own(task) for task in tasks_from(path, make_sandbox(self._config))]

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The edits that take the bugs out; for a repository those of the known fix."""
        return solution(task)

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        return near_misses(task)

    def attacks(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Source that exits or lies, and files that steer the tests."""
        return attacks(task)

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._files = dict(task.initial_state["files"])
        self._command = list(task.initial_state["test_command"])
        self._findings, self._submitted = [], False

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        files, findings = state.get("files"), state.get("findings")
        if not _are_files(files) or not isinstance(findings, list) or not all(isinstance(one, str) for one in findings):
            raise DataError("a state of the patch environment has 'files' (path to text) and 'findings' (a list of texts)")
        if type(state.get("submitted", False)) is not bool:
            raise DataError("'submitted' of a state of the patch environment is true or false")
        self.reset(task)
        self._files, self._findings = dict(files), list(findings)
        self._submitted = bool(state.get("submitted"))

    def snapshot(self) -> dict[str, Any]:
        return {"files": dict(sorted(self._files.items())), "findings": list(self._findings), "submitted": self._submitted}

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        parameters = PARAMETERS.get(tool)
        if parameters is None:
            return _error(f"no tool named {tool[:ECHO_LIMIT]}")
        if args.keys() != parameters.keys():
            return _error(f"arguments must be {', '.join(parameters) or 'none'}")
        for name, schema in parameters.items():
            if type(args[name]) is not TYPES[schema["type"]]:
                return _error(f"{name} must be {'text' if schema['type'] == 'string' else 'a whole number'}")
            if isinstance(args[name], str) and not is_text(args[name]):
                return _error(f"{name} is no text that a file can hold")
        found: Observation = getattr(self, f"_{tool}")(**args)
        return found

    def _list_files(self) -> Observation:
        return Observation("\n".join(sorted(self._files)))

    def _read_file(self, path: str, start: int, end: int) -> Observation:
        if (text := self._files.get(clean_path(path))) is None:
            return _error(f"no file {path[:ECHO_LIMIT]}")
        lines = text.splitlines()
        last = min(len(lines) if end < 1 else end, max(1, start) + LINES_LIMIT - 1)
        return Observation(
            "\n".join(f"{number}: {lines[number - 1]}" for number in range(max(1, start), min(last, len(lines)) + 1))
        )

    def _search(self, text: str) -> Observation:
        if not text:
            return _error("text is empty")
        found = [
            f"{path}:{number}: {line}"
            for path, content in sorted(self._files.items())
            for number, line in enumerate(content.splitlines(), 1)
            if text in line
        ]
        return Observation("\n".join(found[:FOUND_LIMIT]) or "nothing found")

    def _edit(self, path: str, old: str, new: str) -> Observation:
        name = clean_path(path)
        if old == "":
            if name in self._files:
                return _error(f"{path[:ECHO_LIMIT]} exists: give the text to replace")
            return self._take({**self._files, name: new})
        if name not in self._files:
            return _error(f"no file {path[:ECHO_LIMIT]}")
        if (count := self._files[name].count(old)) != 1:
            return _error(f"the old text is in {name[:ECHO_LIMIT]} {count} times, not once")
        return self._take({**self._files, name: self._files[name].replace(old, new)})

    def _apply_patch(self, diff: str) -> Observation:
        try:
            return self._take(apply_diff(self._files, diff))
        except DiffError as error:
            return _error(str(error)[: 4 * ECHO_LIMIT])

    def _take(self, files: dict[str, str]) -> Observation:
        """Take changed files, if they can lie in a folder."""
        if len(files) > FILES_LIMIT or sum(map(len, files.values())) > ALL_LIMIT:
            return _error("the repository would be too large")
        for path, text in files.items():
            if self._files.get(path) == text:
                continue
            if not clean_path(path) or clean_path(path) != path:
                return _error(f"{path[:ECHO_LIMIT]!r} is no path within the repository")
            if len(text) > FILE_LIMIT:
                return _error(f"{path[:ECHO_LIMIT]} would be larger than {FILE_LIMIT} characters")
            folders = {str(parent) for parent in PurePosixPath(path).parents}
            if folders & files.keys() or any(other.startswith(path + "/") for other in files):
                return _error(f"{path[:ECHO_LIMIT]}: a file cannot be a folder too")
        self._files = files
        return Observation("ok")

    def _run_tests(self) -> Observation:
        try:
            self._made = self._made or make_sandbox(self._config)
            run = self._made.run(self._command, {path: text.encode() for path, text in self._files.items()}, limits=TEST_LIMITS)
        except InfrastructureError as error:
            return Observation(f"the sandbox failed: {error}", error=True, fault="machine")
        self._findings += [finding for finding in run.findings if finding not in self._findings]
        said = (run.stdout + run.stderr).decode(errors="replace")[-OUTPUT_LIMIT:]
        ended = "passed" if run.exit_code == 0 else f"failed{''.join(f', {finding}' for finding in run.findings)}"
        return Observation(f"{TIMES.sub('in some time', said).rstrip()}\ntests {ended}".lstrip())

    def _submit(self) -> Observation:
        self._submitted = True
        return Observation("submitted", done=True)

    def _own(self, task: Task) -> Task:
        """The task, with a verifier that runs code as this environment does."""
        if self._config == SandboxConfig():
            return task
        given = self._config.model_dump(exclude_defaults=True)
        return replace(task, verifier=kind_text("patch_tests", {"sandbox": given}))


def _are_files(files: Any) -> TypeGuard[dict[str, str]]:
    """Whether it is files by their paths in the repository."""
    return isinstance(files, dict) and all(
        isinstance(path, str) and isinstance(text, str) and is_text(text) and clean_path(path) == path != ""
        for path, text in files.items()
    )


def _error(text: str) -> Observation:
    return Observation(f"error: {text}", error=True)
