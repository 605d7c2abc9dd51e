"""The harbor environment: a shell over the files of a task directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tracewheel import Count, DataError, InfrastructureError, Observation, Task, function_tool, kind_text
from tracewheel_worlds.box_state import box_files, stored_file
from tracewheel_worlds.boxed import BOXED_THREADS, BoxedArgs, BoxedFolder, failed, wrong_call
from tracewheel_worlds.harbor.attacks import attacks
from tracewheel_worlds.harbor.image import with_folders
from tracewheel_worlds.harbor.loading import harbor_task, load_tasks, solution_command
from tracewheel_worlds.sandbox import SandboxConfig

SYSTEM_PROMPT = "You work in a shell on Linux. Do what you are asked to, then submit."
STATE = {"files": dict, "folders": list, "workdir": str, "env": dict}
GOAL = {"tests": dict, "run": str, "solution": dict, "by_exit_code": bool, "seconds": float, "family": str, "tier": int}
TOOLS = [
    function_tool(
        "shell",
        "Run a command with bash and get its output. Files stay from call to call; processes, variables and /tmp do not.",
        {"command": {"type": "string", "description": "as in ls -l"}},
    ),
    function_tool("submit", "End the work: the files are judged as they are.", {}),
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}


class HarborEnvironment:
    """Task directories of Harbor and terminal-bench, with the sandbox in the place of a container.

    >>> from tracewheel_worlds.harbor.loading import harbor_task
    >>> goal = {"tests": {}, "run": "test.sh", "solution": {}, "by_exit_code": False, "seconds": 60.0, "family": "a", "tier": 1}
    >>> start = {"files": {"app/a.txt": "hello"}, "folders": ["app"], "workdir": "/app", "env": {}}
    >>> harbor = HarborEnvironment()
    >>> harbor.reset(harbor_task("Say hello.", start, goal))
    >>> harbor.step("submit", {}).done
    True

    State: `{"files": {path from the root: text or object}, "findings": [names], "submitted": bool}`. The task's tests and its
    solution are in its goal; they are never in the agent's box. The verifier `harbor` runs the tests.
    """

    class Args(BoxedArgs):
        """How code is run, and how much an episode may keep."""

        state_bytes: Count = 8_388_608
        state_files: Count = 2048

    kind = "harbor"
    verifiers = ("harbor",)
    tool_threads = BOXED_THREADS
    system_prompt = SYSTEM_PROMPT

    def __init__(self, args: Args | None = None) -> None:
        self._args = args or self.Args()
        self._folder = BoxedFolder(self._args, plain=False, variables={})
        self._workdir = "/"
        self._submitted = False

    def tasks_from(self, path: Path) -> list[Task]:
        """The tasks of a task directory or a folder of them; those that cannot be used are logged with the reason.

        Raises:
            DataError: there is no task directory.
        """
        return [self._named(task) for task in load_tasks(path, self._args.sandbox).tasks]

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        state, goal = logged.get("initial_state"), logged.get("goal")
        for name, value, wanted in (("initial_state", state, STATE), ("goal", goal, GOAL)):
            if not isinstance(value, dict) or not all(type(value.get(key)) is kind for key, kind in wanted.items()):
                raise DataError(f"'{name}' needs {', '.join(wanted)}")
        assert isinstance(state, dict) and isinstance(goal, dict)
        try:
            for files in (state["files"], goal["tests"], goal["solution"]):
                box_files(files)
        except ValueError as error:
            raise DataError(f"a file of the task: {error}") from None
        self._args.sandbox.with_folders(state["folders"])
        if not goal["seconds"] > 0 or not all(isinstance(text, str) for text in state["env"].values()):
            raise DataError("'goal.seconds' is above 0, and the values of 'initial_state.env' are text")
        return self._named(harbor_task(prompt, state, goal))

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The task's own solution, as one command."""
        return [("shell", {"command": solution_command(task)}), ("submit", {})]

    def attacks(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """What is left for the tests in the place of the work, and attempts to leave the box before it."""
        return attacks(task)

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        start = task.initial_state
        sandbox = self._args.sandbox.with_folders(start["folders"])
        args = self._args.model_copy(update={"sandbox": sandbox})
        self._folder = BoxedFolder(args, plain=False, variables={**start["env"], "HOME": "/root"})
        files = with_folders(box_files(start["files"]), set(start["folders"]))
        self._folder.begin({path: stored_file(file) for path, file in files.items()})
        self._workdir, self._submitted = start["workdir"], False

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        self.reset(task)
        self._submitted = self._folder.restore(self.kind, state)

    def snapshot(self) -> dict[str, Any]:
        return self._folder.snapshot(self._submitted)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if problem := wrong_call(tool, args, PARAMETERS):
            return failed(problem)
        if tool == "submit":
            self._submitted = True
            return Observation("submitted", done=True)
        try:
            return self._folder.run(["bash", "-c", 'cd "$0" && exec bash -c "$1"', self._workdir, args["command"]])
        except InfrastructureError as error:
            return Observation(f"the sandbox failed: {error}", error=True, fault="machine")

    def _named(self, task: Task) -> Task:
        """The task with a verifier in the same sandbox."""
        if self._args.sandbox == SandboxConfig():
            return task
        return replace(task, verifier=kind_text("harbor", {"sandbox": self._args.sandbox.model_dump(exclude_defaults=True)}))
