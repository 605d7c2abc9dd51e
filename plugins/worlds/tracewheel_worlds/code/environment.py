"""The code environment: files that an agent writes, and Python that runs in a box."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tracewheel import ConfigError, DataError, Observation, Task, function_tool, kind_text
from tracewheel_worlds.box_state import box_files, check_path
from tracewheel_worlds.boxed import BOXED_THREADS, ECHO_LIMIT, BoxedArgs, BoxedFolder, failed, wrong_call
from tracewheel_worlds.code.agent import near_misses, solution
from tracewheel_worlds.code.attacks import attacks
from tracewheel_worlds.code.goals import check_goal
from tracewheel_worlds.code.loading import tasks_from_file
from tracewheel_worlds.code.tasks import FAMILIES, TIERS, code_task, make_task
from tracewheel_worlds.sandbox import BoxFile

SYSTEM_PROMPT = "You write Python 3 with the standard library alone. Write files, run them, and submit when they are right."
TRIES = 400
# The same run gives the same output, and leaves no compiled files, which hold times.
RUN_VARIABLES = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    return function_tool(name, description, {key: {"type": "string", "description": text} for key, text in parameters.items()})


TOOLS = [
    _tool("write_file", "Write a file, in place of what was there.", path="as in solution.py", content="the whole file"),
    _tool("read_file", "Read a file.", path="as in solution.py"),
    _tool(
        "run", "Run a Python file in the working folder and get its output.", path="the file", stdin="its input, often empty"
    ),
    _tool("submit", "End the work: the files are tested as they are."),
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}


class CodeEnvironment:
    """Files that an agent writes, and Python that runs in a box; the tests are hidden and run elsewhere.

    >>> import random
    >>> from tracewheel_worlds.code.tasks import make_task
    >>> code = CodeEnvironment()
    >>> code.reset(make_task("function", 1, random.Random(0)))
    >>> code.step("write_file", {"path": "solution.py", "content": "print('hello')"}).text
    'wrote solution.py (14 bytes)'

    State: `{"files": {path: text or object}, "findings": [names], "submitted": bool}` (files as in
    `box_state.py`). Each run is a box of its own that begins with the files; what they are at its end is the
    new state, unless the run was killed or left too much. `findings` are what the agent's runs did that an honest one does
    not (see `BoxRun`). Links, empty folders and permissions are not kept.
    """

    kind = "code"
    verifiers = ("unit_tests",)
    tool_threads = BOXED_THREADS
    system_prompt = SYSTEM_PROMPT
    Args = BoxedArgs
    families = FAMILIES
    tiers = TIERS

    def __init__(self, args: BoxedArgs | None = None) -> None:
        self._args = args or BoxedArgs()
        self._folder = BoxedFolder(self._args, plain=True, variables=RUN_VARIABLES)
        self._submitted = False

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        state, goal = logged.get("initial_state"), logged.get("goal")
        files = state.get("files") if isinstance(state, dict) else None
        if not isinstance(files, dict):
            raise DataError("'initial_state.files' needs the files by path")
        try:
            box_files(files)
        except ValueError as error:
            raise DataError(f"'initial_state.files': {error}") from None
        check_goal(goal)
        return code_task(prompt, {"files": files}, goal, self._verifier)  # type: ignore[arg-type]  # checked above

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """`n` different tasks, spread evenly over families and tiers."""
        strata = [(family, tier) for tier in self.tiers for family in self.families]
        sources = [random.Random(f"code-{seed}-{family}-{tier}") for family, tier in strata]
        tasks: dict[str, Task] = {}
        for number in range(n):
            (family, tier), rng = strata[number % len(strata)], sources[number % len(strata)]
            drawn = (make_task(family, tier, rng, self._verifier) for _ in range(TRIES))
            task = next((task for task in drawn if task.fingerprint not in tasks), None)
            if task is None:
                raise ConfigError(f"there are not {n} different tasks of {self.kind}; ask for fewer than {number}")
            tasks[task.fingerprint] = task
        return list(tasks.values())

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family, of the same tier or the one below; none for a task of a file."""
        rng = random.Random(f"variants-{task.id}-{seed}")
        if task.family not in self.families:
            return []
        return [make_task(task.family, rng.randint(max(1, task.tier - 1), task.tier), rng, self._verifier) for _ in range(n)]

    def tasks_from(self, path: Path) -> list[Task]:
        """The tasks of a file in the form of HumanEval or MBPP.

        Raises:
            DataError: it is no such file, or none of its tasks can be taken.
        """
        return tasks_from_file(path, self._args.sandbox, self._verifier).tasks

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The calls that solve the task in the most direct way."""
        return solution(task)

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Almost right: in another file, of another type, half done, for the shown cases alone."""
        return near_misses(task)

    def attacks(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Files that exit, lie, or reach for their tests."""
        return attacks(task)

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._folder.begin(task.initial_state["files"])
        self._submitted = False

    def snapshot(self) -> dict[str, Any]:
        return self._folder.snapshot(self._submitted)

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        self._submitted = self._folder.restore(self.kind, state)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if problem := wrong_call(tool, args, PARAMETERS):
            return failed(problem)
        if tool == "submit":
            self._submitted = True
            return Observation("submitted", done=True)
        try:
            check_path(args["path"])
        except ValueError as error:
            return failed(str(error))
        path, files = args["path"], self._folder.files
        if tool == "write_file":
            return self._write(path, args["content"])
        if path not in files:
            return failed(f"no file {path[:ECHO_LIMIT]}; there are: {', '.join(sorted(files)) or 'none'}")
        if tool == "read_file":
            return Observation(self._folder.shown(files[path].content.decode(errors="replace")))
        return self._folder.run(["python3", path], args["stdin"])

    def _write(self, path: str, text: str) -> Observation:
        files = self._folder.files
        parents = {path[:place] for place, letter in enumerate(path) if letter == "/"}
        if parents & files.keys() or any(other.startswith(f"{path}/") for other in files):
            return failed(f"{path[:ECHO_LIMIT]}: a file and a folder cannot have one path")
        file = BoxFile(text.encode())
        if problem := self._folder.change({**files, path: file}):
            return failed(problem)
        return Observation(f"wrote {path} ({len(file.content)} bytes)")

    @property
    def _verifier(self) -> str:
        """The verifier of its tasks, in the same sandbox."""
        sandbox = self._args.sandbox.model_dump(exclude_defaults=True)
        return kind_text("unit_tests", {"sandbox": sandbox} if sandbox else {})
