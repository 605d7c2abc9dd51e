"""A project around a program that is an agent already: its tasks, the check of what it says, and the profile that starts it."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

from tracewheel.core.errors import InputError
from tracewheel.projects.project import Project
from tracewheel.projects.sample_logs import KINDS, STEMS

AROUND = Path(__file__).parent / "around"
TASKS = 48


def around_files(project: Project, command: str) -> dict[str, str]:
    """The files of the project, by their paths in its folder.

    Args:
        project: The project.
        command: The program with its arguments, as a shell would read it; paths in it are from the project's folder.

    Raises:
        InputError: the command is empty, or has a quote without its end.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--harness {command}: {error}") from error
    if not words:
        raise InputError("--harness: give the program's command, as in 'python agent.py'")
    package = {
        f"{project.package}/{file.name}": file.read_text(encoding="utf-8").replace(
            "tracewheel.projects.around", project.package
        )
        for file in sorted(AROUND.glob("*.py"))
    }
    return {
        "README.md": project.fill("around_README.md", COMMAND=command),
        "profile.yaml": project.fill("around_profile.yaml", COMMAND=json.dumps(words)),
        "tasks.jsonl": task_lines(f"{project.package}.tasks:Questions"),
        ".gitignore": "runs/\ndata/\n__pycache__/\n",
        **package,
    }


def task_lines(kind: str, seed: int = 0) -> str:
    """Sample tasks, in words of the tiny base: each once with a right and once with a wrong reply. Equal calls, equal bytes."""
    rng, lines = random.Random(f"around-{seed}"), []
    for _ in range(TASKS):
        names = [stem + rng.choice(KINDS) for stem in rng.sample(STEMS, 3)]
        for said in (names, names[:-1]):
            messages = [
                {"role": "user", "content": f"Repeat: {', '.join(names)}"},
                {"role": "assistant", "content": ", ".join(said)},
            ]
            lines.append(json.dumps({"messages": messages, "environment": {"kind": kind, "answer": ", ".join(names)}}))
    return "\n".join(lines) + "\n"
