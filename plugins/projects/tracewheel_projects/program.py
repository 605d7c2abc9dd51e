"""A project around a program that is an agent: its files, and a look at what the program asks for."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shlex
import shutil
from pathlib import Path

from tracewheel import ConfigError, InputError, Task
from tracewheel_projects import smollm2
from tracewheel_projects.project import KINDS, STEMS, Base, Project, ignored

RECIPES = Path(__file__).parent / "recipes"
AROUND = Path(__file__).parent / "around"
PROGRAM_TASKS = 48
AROUND_FIT = smollm2.Fit(demonstrations=20, iterations=4, tasks=16)
PROGRAM = re.compile(r"command: \[([\w.-]+)")  # in a recipe
PYTHON = "python"  # a recipe's program that is a package's module: which Python has the package is not known
BY_RECIPE = "in an empty folder, with the request as its prompt"
BY_US = "in this folder, with the task as JSON on its standard input, and `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL` set"


def _recipe(command: str) -> str:
    """The text of a recipe that ships, by its name; "" where there is none."""
    recipe = RECIPES / f"{command}.yaml"
    return recipe.read_text(encoding="utf-8") if recipe in RECIPES.glob("*.yaml") else ""


def _harness(command: str) -> str:
    """The value of `rollout.harness`: of a recipe that ships, or around a command."""
    if recipe := _recipe(command):
        lines = recipe.splitlines()
        return "\n".join([lines[0], *(f"  {line}" for line in lines[2:]), "    concurrency: 8"])
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--harness {command}: {error}") from error
    if not words:
        raise InputError("--harness: give the program's command, as in 'python agent.py'")
    return f"{{ command: {json.dumps(words)}, tools: none, concurrency: 8, seconds: 120 }}"


def look_at_program(project: Project, command: str) -> tuple[list[str], list[str]]:
    """Start the program of a new project once, and write the caps that it needs into the profile.

    Returns:
        What it asked for, and what is in the way: it is not installed, does not come to ask, or needs another base.
    """
    from tracewheel import RolloutSections, load_config, probe_program

    profile = project.folder / "profile.yaml"
    first = json.loads((project.folder / "tasks.jsonl").read_text(encoding="utf-8").split("\n", 1)[0])
    task = Task("probe", "workspace", "", 1, first["messages"][0]["content"], {}, {}, "", "")  # no environment is made
    found: list[str] = []
    with contextlib.chdir(project.folder):
        try:
            config = RolloutSections.of(load_config(profile))
            probed = probe_program(config, task)
            found.append(f"program: {probed.says()}")
            caps = probed.caps(config)
        except ConfigError as error:
            missing = "" if found else _missing(command)
            return found, [f"{error}{missing}; then: tracewheel check profile.yaml"]
    text = profile.read_text(encoding="utf-8")
    for name, value in caps.items():
        text = text.replace(f"\n  {name}: {getattr(config.rollout, name)}", f"\n  {name}: {value}", 1)
        found.append(f"rollout.{name}: {value}, so that it finds room; written into profile.yaml")
    profile.write_text(text, encoding="utf-8")
    return found, []


def _missing(command: str) -> str:
    """How a recipe's program is installed, where it is not, or may not be."""
    recipe = _recipe(command)
    named = PROGRAM.search(recipe)
    if named is None or (named[1] != PYTHON and shutil.which(named[1])):
        return ""
    return f": {recipe.splitlines()[0].lstrip('# ')}"


def around_files(project: Project, command: str, base: Base) -> dict[str, str]:
    """The files of the project, by their paths in its folder.

    Args:
        project: The project.
        command: The program with its arguments, as a shell would read it; paths in it are from the project's folder.
        base: The model to train.

    Raises:
        InputError: the command is empty, or has a quote without its end.
    """
    harness, given = _harness(command), BY_RECIPE if _recipe(command) else BY_US
    package = {
        f"{project.package}/{file.name}": file.read_text(encoding="utf-8").replace(
            "tracewheel_projects.around", project.package
        )
        for file in sorted(AROUND.glob("*.py"))
    }
    return {
        "README.md": project.fill("around_README.md", COMMAND=command, GIVEN=given, ABOUT_BASE=base.about),
        "profile.yaml": project.fill(
            "around_profile.yaml", SETTINGS_OF_BASE=base.settings(project, "around_tiny.yaml", harness)
        ),
        "tasks.jsonl": task_lines(f"{project.package}.tasks:Questions"),
        ".gitignore": ignored(base),
        **package,
    }


def task_lines(kind: str, seed: int = 0) -> str:
    """Sample tasks, in words of the tiny base: each once with a right and once with a wrong reply. Equal calls, equal bytes."""
    rng, lines = random.Random(f"around-{seed}"), []
    for _ in range(PROGRAM_TASKS):
        names = [stem + rng.choice(KINDS) for stem in rng.sample(STEMS, 3)]
        for said in (names, names[:-1]):
            messages = [
                {"role": "user", "content": f"Repeat: {', '.join(names)}"},
                {"role": "assistant", "content": ", ".join(said)},
            ]
            lines.append(json.dumps({"messages": messages, "environment": {"kind": kind, "answer": ", ".join(names)}}))
    return "\n".join(lines) + "\n"
