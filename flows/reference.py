"""The reference page, made from the code: `python -m flows.reference > docs/reference.md`. A test compares."""

from __future__ import annotations

import argparse
import inspect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import tracewheel
from flows.cli import EXIT_CODES
from flows.commands.command import Command, own_commands
from flows.console.arguments import profile_options
from tracewheel.config.settings import Setting, settings

HEAD = """# Reference

Made from the code by `python -m flows.reference > docs/reference.md`; a test compares.

## Commands

Every command has `--json` (one JSON object on standard output) and `--debug` (stack traces, the libraries' logs). Commands of
a profile take `CONFIG`, a YAML file; `--set a.b=c` overrides one setting, `--run-dir DIR` puts everything there instead of the
profile's `work_dir`, and `--unsafe-local` allows agents' code as this user. `--out` replaces only what the command wrote.
"""
SETTINGS = """
## Settings

Of a profile, by section; `tracewheel describe profile` prints the same. Where a section has kinds, those that take a setting
stand in front of its meaning.
"""
NAMES = """
## Public names

Import them from `tracewheel`; all other modules may move. [public.md](public.md) groups them by use.
"""


def reference() -> str:
    """The page."""
    parts = [HEAD, *map(_command, own_commands()), SETTINGS]
    headings, first = ("setting", "type", "default", "meaning", "since"), dict[tuple[str, str], str]()
    for section, listed in itertools.groupby(settings(), lambda one: one.name.partition(".")[0] if "." in one.name else ""):
        rows = [_setting(one, first.setdefault(one.of, one.name)) for one in listed]
        parts.append(f"\n### {section or 'Top level'}\n\n{_table(headings, rows)}")
    parts += [NAMES, "\n", _table(("name", "what it is"), _names())]
    codes = [(str(code), meaning) for code, meaning in sorted(EXIT_CODES.items())]
    return "".join([*parts, "\n## Exit codes\n\n", _table(("code", "meaning"), codes)])


def _command(command: Command) -> str:
    parser, common = argparse.ArgumentParser(add_help=False), argparse.ArgumentParser(add_help=False)
    command.options(parser)
    profile_options(common)
    known = {(tuple(action.option_strings), action.help) for action in common._actions}
    own = [action for action in parser._actions if (tuple(action.option_strings), action.help) not in known]
    takes = " CONFIG" if any(action.dest == "config" and action not in own for action in parser._actions) else ""
    rows = [(_typed(action), str(action.help or "")) for action in own]
    return f"\n### `tracewheel {command.name}{takes}`\n\n{command.help}.\n" + (
        f"\n{_table(('option', ''), rows)}" if rows else ""
    )


def _typed(action: argparse.Action) -> str:
    """An option as it is typed: `--split SPLIT`, or the word of a position."""
    choices = "|".join(map(str, action.choices)) if action.choices else ""
    takes = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    word = " ".join([*action.option_strings[-1:], *([takes] if takes else [])])
    many = " …" if action.nargs in ("+", "*") else ""
    return f"`{word}{many}`" + (", required" if action.required and action.option_strings else "")


def _setting(one: Setting, first: str) -> tuple[str, ...]:
    """A row; one that several sections have is explained where it stands first."""
    kinds = f"{', '.join(one.kinds)}: " if one.kinds else ""
    default = "required" if one.default is None else f"`{one.default}`"
    if first != one.name:
        return (f"`{one.name}`", "", default, f"{kinds}as `{first}`", one.since)
    return (f"`{one.name}`", one.type, default, f"{kinds}{one.meaning}", one.since)


def _names() -> Iterator[tuple[str, str]]:
    for name in sorted(itertools.chain.from_iterable(tracewheel.PUBLIC.values()), key=str.lower):
        found: Any = getattr(tracewheel, name)
        described = inspect.isclass(found) or inspect.isroutine(found)
        yield f"`{name}`", (inspect.getdoc(found) or "").partition("\n")[0] if described else f"`{found!r}`"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


if __name__ == "__main__":
    print(reference(), end="")
