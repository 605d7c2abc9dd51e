"""The terminal environment: a shell over a folder of files."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tracewheel import ConfigError, DataError, Observation, Task, function_tool, kind_text
from tracewheel_worlds.box_state import box_files
from tracewheel_worlds.boxed import BOXED_THREADS, BoxedArgs, BoxedFolder, failed, wrong_call
from tracewheel_worlds.terminal.attacks import attacks
from tracewheel_worlds.terminal.goals import CHECK_SCRIPT, check_goal, terminal_task
from tracewheel_worlds.terminal.parts import typed
from tracewheel_worlds.terminal.tasks import FAMILIES, TIERS, make_task

SYSTEM_PROMPT = (
    "You work in a shell on Linux, in the task's folder. Change what you are asked to and nothing else, then submit."
)
TRIES = 400
VARIABLES = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
TOOLS = [
    function_tool(
        "shell",
        "Run a command with bash and get its output. Files stay from call to call; processes, variables and /tmp do not.",
        {"command": {"type": "string", "description": "as in ls -l"}},
    ),
    function_tool("submit", "End the work: the folder is judged as it is.", {}),
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}


class TerminalEnvironment:
    """A shell over a folder; each command runs in a box of its own that begins with the folder.

    >>> task = TerminalEnvironment().make_tasks(1, seed=0)[0]
    >>> terminal = TerminalEnvironment()
    >>> terminal.reset(task)
    >>> terminal.step("submit", {}).done
    True

    State: `{"files": {path: text or object}, "findings": [names], "submitted": bool}` (files as in
    `box_state.py`, with permissions, links and empty folders; times are not kept). A command that takes too
    long is killed, and the files are as before it; it does not end the episode.
    """

    kind = "terminal"
    verifiers = ("check_script", "final_files")
    tool_threads = BOXED_THREADS
    system_prompt = SYSTEM_PROMPT
    Args = BoxedArgs
    families = FAMILIES
    tiers = TIERS

    def __init__(self, args: BoxedArgs | None = None) -> None:
        self._args = args or BoxedArgs()
        self._folder = BoxedFolder(self._args, plain=False, variables=VARIABLES)
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
        return self._named(terminal_task(prompt, {"files": files}, goal))  # type: ignore[arg-type]  # checked above

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """`n` different tasks, spread evenly over families and tiers."""
        strata = [
            (family, self.tiers[(place + step) % len(self.tiers)])
            for step in range(len(self.tiers))
            for place, family in enumerate(self.families)
        ]
        sources = [random.Random(f"terminal-{seed}-{family}-{tier}") for family, tier in strata]
        tasks: dict[str, Task] = {}
        for number in range(n):
            (family, tier), rng = strata[number % len(strata)], sources[number % len(strata)]
            drawn = (self._named(make_task(family, tier, rng)) for _ in range(TRIES))
            task = next((task for task in drawn if task.fingerprint not in tasks), None)
            if task is None:
                raise ConfigError(f"there are not {n} different tasks of {self.kind}; ask for fewer than {number}")
            tasks[task.fingerprint] = task
        return list(tasks.values())

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Tasks of the same family, of the same tier or the one below; none for a task of another family."""
        rng = random.Random(f"variants-{task.id}-{seed}")
        if task.family not in self.families:
            return []
        return [self._named(make_task(task.family, rng.randint(max(1, task.tier - 1), task.tier), rng)) for _ in range(n)]

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The command that solves the task, where its goal names one."""
        command = task.goal.get("solution")
        return typed(command) if command else None

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Commands that almost solve the task: with one change too many, in another place, half done."""
        return {name: typed(command) for name, command in task.goal.get("near_misses", {}).items()}

    def attacks(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Attempts to leave the box before the work, and claims in its place."""
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
        return self._folder.run(["bash", "-c", args["command"]])

    def _named(self, task: Task) -> Task:
        """The task with a verifier in the same sandbox, where it needs one."""
        sandbox = self._args.sandbox.model_dump(exclude_defaults=True)
        if task.verifier != CHECK_SCRIPT or not sandbox:
            return task
        return replace(task, verifier=kind_text(CHECK_SCRIPT, {"sandbox": sandbox}))
