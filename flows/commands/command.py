"""A command is one file: its options, its work, what it says and what it writes, together in a `Command`."""

from __future__ import annotations

import importlib
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.out_folder import Writes as Writes
from tracewheel.core.out_folder import check_out_folder

if TYPE_CHECKING:
    from flows.console.look import Card

FOLDER = Path(__file__).parent
WHEELS = "tracewheel.commands"
HOLDS_ONE = re.compile(r"^COMMAND\b", re.MULTILINE)
FILES = ("show", "splits")  # options that name a file to write


@dataclass(frozen=True)
class FileOut:
    """That `--out` is a file.

    Attributes:
        what: What it is, as in "page".
        endings: Of files that it may replace; the first is the usual one.
    """

    what: str
    endings: tuple[str, ...]


def no_options(parser: ArgumentParser) -> None:
    """For commands without options of their own."""


@dataclass(frozen=True)
class Command:
    """A command of `tracewheel`. Its file imports nothing heavy at the top: the command line is parsed first.

    Example:
        >>> def run(options):
        ...     return {"runs": 3}
        >>> COMMAND = Command("count", "count the runs", no_options, run)

    Attributes:
        name: As it is typed: `doctor`, or `champion promote` for one of a group, whose help is the package's docstring.
        help: What it does, in a line.
        options: Adds its options to the parser, which has `--json` and `--debug` already.
        run: Does the work. Its result is what `--json` prints, without "show", if it has that: a card or a text for people.
        card: What people see of the result, unless it has a "show"; None shows its figures.
        writes: What `--out` gets, so that nothing else is ever replaced; None for commands without `--out`.
    """

    name: str
    help: str
    options: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], dict[str, Any]]
    card: Callable[[Namespace, Mapping[str, Any]], Card] | None = None
    writes: Writes | FileOut | None = None

    def add_to(self, commands: Any, name: str, epilog: str) -> None:
        """Add the command to the command line, under the last word of its name."""
        parser = commands.add_parser(name, help=self.help, description=f"{self.help}.", epilog=epilog)
        parser.set_defaults(command=self)
        self.options(parser)
        parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
        parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")

    def check_out(self, options: Namespace) -> None:
        """Check what the command would write to, before anything is computed.

        Raises:
            DataError: `--out` cannot be written, or holds what the command did not write; or a folder is named as a file.
        """
        for option in FILES:
            file = getattr(options, option, None)
            if isinstance(file, str) and Path(file).is_dir():
                raise DataError(f"--{option} {file}: is a folder; give the name of a file")
        out = getattr(options, "out", None)
        if out is None:
            return
        if isinstance(self.writes, Writes):
            check_out_folder(Path(out), self.writes, by=self.name)
        elif self.writes:
            _check_file(Path(out), self.writes)


def _check_file(path: Path, kind: FileOut) -> None:
    what, ending = kind.what, kind.endings[0]
    if path.is_dir():
        raise DataError(f"--out {path}: is a folder; give the name of the {what} to write, as in {path / f'{what}{ending}'}")
    if path.is_file() and path.suffix not in kind.endings:
        raise DataError(f"--out {path}: exists and is no {what}; give another name, as in {path.with_suffix(ending)}")


def find_commands(first: str | None = None) -> list[Command]:
    """The commands by name: the core's, and those of installed wheels.

    Args:
        first: The first word that was typed: where it is one of the core's, only its files are read, and of a group what wheels
            add to it (entry points `GROUP-…`).
    """
    own = own_commands(first.replace("-", "_")) if first else []
    if own and own[0].name == first:
        return own
    points = [point for point in entry_points(group=WHEELS) if not own or point.name.startswith(f"{first}-")]
    found = {command.name: command for command in own or own_commands()}
    for point in points:
        wheel = f"the wheel {point.dist.name}" if point.dist else "a wheel"
        try:
            command: Command = point.load()
        except Exception as error:  # anyone's code; the other commands stay
            print(f"tracewheel: command '{point.name}' of {wheel} cannot be loaded: {error}", file=sys.stderr)
            continue
        if command.name in found:
            print(f"tracewheel: command '{command.name}' of {wheel} is left out: there is one of this name", file=sys.stderr)
            continue
        found[command.name] = command
    return [found[name] for name in sorted(found)]


def own_commands(stem: str = "*") -> list[Command]:
    """The commands of this folder: one a file, those of a group in a folder of its name.

    Args:
        stem: Of the file or the folder.
    """
    found = []
    for path in [*FOLDER.glob(f"{stem}.py"), *FOLDER.glob(f"{stem}/*.py")]:
        if HOLDS_ONE.search(path.read_text(encoding="utf-8")):  # others are parts of commands, and may be heavy
            module = ".".join(("flows.commands", *path.relative_to(FOLDER).with_suffix("").parts))
            found.append(importlib.import_module(module).COMMAND)
    return sorted(found, key=lambda command: command.name)


def group_help(group: str) -> str:
    """What a group of commands is for: the docstring of its package."""
    text = (getattr(sys.modules.get(f"flows.commands.{group}"), "__doc__", None) or "").strip().rstrip(".")
    return text[:1].lower() + text[1:]
