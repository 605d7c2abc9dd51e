"""mini-swe-agent's sessions on the tasks of `coding_agent_tasks.py`: a world that replays them, logs, and text for a base.

What the program itself says (its system prompt, what stands around the request, its tool) is read from `PROGRAM`, which
`coding_agent.py` writes from the program's own first request.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from coding_agent_tasks import COLUMNS, ENDINGS, FAMILIES, FOLDERS, FRAGMENTS, OUTS, STEMS, WORDS, Files, Work

from tracewheel.core.types import Task, content_hash
from tracewheel.environments import Observation
from tracewheel.environments.base import turn_messages
from tracewheel_projects import World, chat_pieces
from tracewheel_worlds.box_state import box_files, stored_file
from tracewheel_worlds.sandbox import SandboxConfig, make_sandbox

PROGRAM = Path("runs/coding-agent/program.json")
KIND = "coding_agent_world:Shell"
REQUEST = "THE-REQUEST"  # in what stands around it
UNSAFE_LOCAL = "TRACEWHEEL_UNSAFE_LOCAL"
SHORT = "short_"
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SAYS = '{\n  "returncode": '
FOUND = ',\n  "output": '
# Shares of the hasty way, and of sessions that submit before they have done anything: in the base's text, and in the logs.
BASE, LOGGED = (0.6, 0.03), (0.8, 0.1)


@cache
def program() -> dict[str, Any]:
    """`system`, `around` (with `REQUEST`) and `tools` of the program's first request."""
    read: dict[str, Any] = json.loads(PROGRAM.read_text())
    return read


def task_of(prompt: str, files: Files, goal: dict[str, Any]) -> Task:
    """The task of a request, a folder and a goal."""
    fingerprint = content_hash({"files": files, "goal": goal})
    name = f"coding-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}"
    return Task(name, KIND, goal["family"], 1, prompt, {"files": files}, goal, "final_files", fingerprint)


class Shell:
    """The program's one tool, each command in a box of its own, with results as the program writes them."""

    kind = KIND
    verifiers = ("final_files",)

    @property
    def system_prompt(self) -> str:
        return str(program()["system"])

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        return task_of(prompt, logged["initial_state"]["files"], logged["goal"])

    def tools(self) -> list[dict[str, Any]]:
        return list(program()["tools"])

    def reset(self, task: Task) -> None:
        self._files: Files = dict(task.initial_state["files"])

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        # The sessions are our own script's: `coding_agent.py --unsafe-local` replays them without boxes, ten times as fast.
        run = unboxed if os.environ.get(UNSAFE_LOCAL) else boxed
        code, said, files = run(args["command"], tuple(sorted(self._files.items())))
        self._files = dict(files)
        return Observation(result(said, code), error=bool(code), done=said.strip() == SUBMIT)

    def snapshot(self) -> dict[str, Any]:
        return {"files": dict(self._files)}


@cache
def boxed(command: str, files: tuple[tuple[str, str], ...]) -> tuple[int, str, Files]:
    """Exit status and output of a command in a box, and the files after it."""
    words = ["sh", "-c", 'exec 2>&1; exec sh -c "$1"', "sh", command]
    run = make_sandbox(SandboxConfig()).run(words, box_files(dict(files)), keep=True, env={"LC_ALL": "C.UTF-8"})
    left = {path: str(stored_file(file)) for path, file in run.files.items() if not file.folder}
    return run.exit_code or 0, run.stdout.decode(errors="replace"), left


@cache
def unboxed(command: str, files: tuple[tuple[str, str], ...]) -> tuple[int, str, Files]:
    """The same as our own user."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for path, text in files:
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
        run = subprocess.run(["sh", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        left = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
        return run.returncode, run.stdout.decode(errors="replace"), left


def result(said: str, code: int = 0) -> str:
    """What the program tells the model of a command."""
    text = json.dumps(said, ensure_ascii=False)
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f"{SAYS}{code}{FOUND}{text}\n}}"


def steps(work: Work, rng: random.Random, hasty: float, early: float) -> Iterator[tuple[str, str | None]]:
    """The commands of a session with what each says; None for the last, which submits."""
    way = work.hasty if rng.random() < hasty else work.careful
    yield "ls", _listed(work.files)
    if way.looks:
        yield work.look, _said(work.look, work.files)
    if rng.random() >= early:
        yield way.command, ""
        yield work.check, _said(work.check, way.after)
    yield f"echo {SUBMIT}", None


def _listed(files: Files, folder: str = "") -> str:
    inside = [path.removeprefix(folder) for path in files if path.startswith(folder)]
    return "".join(f"{name}\n" for name in sorted({path.split("/")[0] for path in inside}))


def _said(command: str, files: Files) -> str:
    match command.split():
        case ["cat", name]:
            return files[name]
        case ["grep", word, _]:
            texts = [(name, line) for name in sorted(files) for line in files[name].splitlines() if name.endswith(".txt")]
            return "".join(f"{name}:{line}\n" for name, line in texts if word in line)
        case ["ls", folder]:
            return _listed(files, f"{folder}/")
        case _:
            return _listed(files)


def session(work: Work, rng: random.Random, shares: tuple[float, float], around: str = "") -> list[dict[str, Any]]:
    """A session as messages; `around` is what stands around the request, by default what the program writes."""
    said = program()
    messages = [
        {"role": "system", "content": said["system"]},
        {"role": "user", "content": (around or said["around"]).replace(REQUEST, work.prompt)},
    ]
    for number, (command, answer) in enumerate(steps(work, rng, *shares)):
        messages += turn_messages(number, "bash", {"command": command}, None if answer is None else result(answer))
    return messages


def log_records(tasks: int, attempts: int, seed: int) -> Iterator[dict[str, Any]]:
    """Records of a deployed agent in OpenAI's chat format: `attempts` sessions of each of `tasks` tasks."""
    rng = random.Random(f"coding-agent-logs-{seed}")
    made: dict[str, Work] = {}
    while len(made) < tasks:
        work = list(FAMILIES.values())[len(made) % len(FAMILIES)](rng)
        made.setdefault(content_hash([work.prompt, work.files]), work)
    for number, work in enumerate(work for _ in range(attempts) for work in made.values()):
        goal = {"family": work.family, "tier": 1, "files": work.goal}
        yield {
            "id": f"session-{number:05}",
            "session": f"session-{number:05}",
            "messages": session(work, rng, LOGGED),
            "tools": program()["tools"],
            "environment": {"kind": KIND, "prompt": work.prompt, "initial_state": {"files": work.files}, "goal": goal},
        }


def pieces() -> set[str]:
    """The strings that are one token each: lines of the program's own text, words, and parts of commands."""
    said = program()
    fixed = [line for part in said["around"].split(REQUEST) for line in re.findall(r"[^\n]+\n*|\n+", part)]
    names = [*STEMS, *(f"{stem}.{ending}" for stem in STEMS for ending in (*ENDINGS, "csv")), *(f"{out}.txt" for out in OUTS)]
    words = [*WORDS, *(f" {word}" for word in WORDS), *(f"{word}s" for word in WORDS), *(f" {word}s" for word in WORDS)]
    numbers = [str(number) for number in range(150)]
    signs = [f'{SAYS}0{FOUND}"', f"{SAYS}1{FOUND}", '\\n"\n}', '""\n}', '"\n}', "\\n", *",:/ \n", "\\u0026", "\\u003e"]
    calls = ["<tool_call>", "</tool_call>", '"}}\n</tool_call>', '"', "{", "}"]
    own = {*fixed, *names, *words, *numbers, *signs, *calls, *COLUMNS, *FOLDERS, *FRAGMENTS.split("|")} - {""}
    return own | set(chat_pieces(said["system"], said["tools"], (), "command"))


class _Sessions(World):
    """The base's text: sessions of all families, right and wrong ones; `short_` ones without the program's instructions."""

    def conversation(self, rng: random.Random, skills: Any, complete_share: float, complete_families: Any) -> Any:
        (skill,) = rng.choices(list(skills), weights=list(skills.values()))
        family = skill.removeprefix(SHORT)
        return session(FAMILIES[family](rng), rng, BASE, "" if skill == family else REQUEST), list(program()["tools"])


SKILLS: dict[str, Any] = {f"{kind}{family}": FAMILIES[family] for kind in ("", SHORT) for family in FAMILIES}
WORLD = _Sessions([], pieces, SKILLS, lambda rng, families: [])
