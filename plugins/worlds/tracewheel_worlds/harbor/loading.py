"""Loads task directories: each is built, and its own solution and no solution are tried, before it is used."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path

from tracewheel import DataError, ForeignFolder, Task, content_hash
from tracewheel_worlds.box_state import box_files, stored_file
from tracewheel_worlds.harbor.directory import MARKS, TaskDirectory, read_directory
from tracewheel_worlds.harbor.grading import graded
from tracewheel_worlds.harbor.image import image_of, with_folders
from tracewheel_worlds.sandbox import Limits, SandboxConfig, make_sandbox
from tracewheel_worlds.task_folders import Loaded, load_each

SOLUTION_LIMITS = Limits(seconds=120.0, memory_mb=2048)


def load_tasks(path: Path, sandbox: SandboxConfig) -> Loaded:
    """Load a task directory, or all that lie in a folder.

    Raises:
        DataError: there is none that can be used.
    """

    def make(folder: ForeignFolder) -> Task:
        task = make_task(read_directory(folder))
        validate(task, sandbox)
        return task

    return load_each(path, MARKS, make)


def make_task(directory: TaskDirectory) -> Task:
    """A task from its directory.

    Raises:
        DataError: it needs an image, and Docker cannot build it.
    """
    image = image_of(directory.dockerfile, directory.context)
    state: dict[str, object] = {
        "files": image.stored,
        "folders": sorted(image.folders),
        "workdir": image.workdir,
        "env": image.env,
    }
    goal: dict[str, object] = {
        "family": directory.family,
        "tier": directory.tier,
        "tests": directory.tests,
        "run": directory.run,
        "solution": directory.solution,
        "by_exit_code": directory.by_exit_code,
        "seconds": directory.seconds,
    }
    return harbor_task(directory.instruction.strip(), state, goal)


def harbor_task(prompt: str, state: dict[str, object], goal: dict[str, object]) -> Task:
    """Make a task from its parts."""
    fingerprint = content_hash({"state": state, "goal": goal})
    return Task(
        id=f"harbor-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment="harbor",
        family=str(goal["family"]),
        tier=int(str(goal["tier"])),
        prompt=prompt,
        initial_state=state,
        goal=goal,
        verifier="harbor",
        fingerprint=fingerprint,
    )


def validate(task: Task, sandbox: SandboxConfig) -> None:
    """Try a task: what its own solution leaves must be worth 1, and what it begins with 0.

    Raises:
        DataError: it is not so.
        InfrastructureError: the box could not be made.
    """
    start = task.initial_state
    nothing, why = graded(start["files"], start, task.goal, sandbox)
    if nothing != 0.0:
        raise DataError(f"doing nothing is worth {nothing:g} ({why})")
    config = sandbox.with_folders(start["folders"])
    files = with_folders(box_files(start["files"]), set(start["folders"]))
    command = ["bash", "-c", 'cd "$0" && eval "$1"', start["workdir"], solution_command(task)]
    run = make_sandbox(config).run(command, files, limits=SOLUTION_LIMITS, keep=True, env={**start["env"], "HOME": "/root"})
    if run.exit_code is None:
        raise DataError(f"its solution was ended: {', '.join(run.findings)}")
    if "escape" in run.findings:
        raise DataError("its solution tries to leave its box, as by a call to the network, which costs an agent the reward")
    left = {path: stored_file(file) for path, file in run.files.items()}
    worth, why = graded(left, start, task.goal, sandbox)
    if worth != 1.0:
        said = run.text.strip().splitlines()
        raise DataError(
            f"its own solution is worth {worth:g} ({why}); it ended with {run.exit_code}: {said[-1][:120] if said else ''}"
        )


def solution_command(task: Task) -> str:
    """The command that unpacks a task's solution and runs it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for path, file in sorted(box_files(task.goal["solution"]).items()):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(file.content), file.mode
            archive.addfile(member, io.BytesIO(file.content))
    text = base64.b64encode(packed.getvalue()).decode()
    return f"echo {text} | base64 -d | tar -xJ -C /solution && bash /solution/solve.sh"
