"""The reference page, made from the code: `python -m tests.reference > docs/reference.md`. A test compares."""

from __future__ import annotations

import argparse
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import tracewheel
from flows.cli import EXIT_CODES
from flows.commands.command import Command, own_commands
from flows.console.arguments import profile_options
from tracewheel.config.settings import SENTENCE, Setting, settings

LONG = 5  # words
PLAIN = {"number", "whole number", "text", "true | false"}  # types that a default shows
MARKS = (
    " (default",
    ". ",
    "; ",
    ", which",
    ", where",
    ", because",
    ", so that",
    ", as ",
    ", with ",
    ", and ",
    ", or ",
    ", if ",
    ", for ",
    " (",
)
HEAD = """# Reference

Made from the code by `python -m tests.reference > docs/reference.md`; a test compares.

## Commands

Every command has `--json` (one JSON object on standard output) and `--debug` (stack traces, the libraries' logs). Commands of
a profile take `CONFIG`, a YAML file; `--set a.b=c` overrides one setting, `--run-dir DIR` puts everything there instead of the
profile's `work_dir`, and `--unsafe-local` allows agents' code as this user. `--out` replaces only what the command wrote.
"""
SETTINGS = """
## Settings

Of a profile, by section: type (unless the default shows it), default and meaning; `tracewheel describe profile` says more.
Where few kinds of a section take a setting, they stand in front of its meaning. What a line tells of several settings is said
once. `evaluation.rubric` is as `rubric`, `baseline` as `teacher`.
"""
NAMES = """
## Public names

Import them from `tracewheel`; all other modules may move. [public.md](public.md) groups them by use.
"""


def reference() -> str:
    """The page."""
    parts = [HEAD, *map(_command, own_commands()), SETTINGS]
    first = dict[tuple[str, str], str]()
    for section, listed in itertools.groupby(settings(), lambda one: one.name.partition(".")[0] if "." in one.name else ""):
        own = [one for one in listed if first.setdefault(one.of, one.name) == one.name]
        rows = [_setting(one, before) for one, before in zip(own, [None, *own], strict=False)]
        parts.append(f"\n### {section or 'Top level'}\n\n{''.join(rows)}" if rows else "")
    parts += [NAMES, "\n", *_names()]
    codes = [(str(code), meaning) for code, meaning in sorted(EXIT_CODES.items())]
    return "".join([*parts, "\n## Exit codes\n\n", _table(("code", "meaning"), codes)])


def _command(command: Command) -> str:
    parser, common = argparse.ArgumentParser(add_help=False), argparse.ArgumentParser(add_help=False)
    command.options(parser)
    profile_options(common)
    known = {(tuple(action.option_strings), action.help) for action in common._actions}
    own = [action for action in parser._actions if (tuple(action.option_strings), action.help) not in known]
    takes = " CONFIG" if any(action.dest == "config" and action not in own for action in parser._actions) else ""
    rows = [f"- {_typed(action)}: {_short(str(action.help or ''))}\n" for action in own]
    return f"\n### `tracewheel {command.name}{takes}`\n\n{command.help}.\n" + ("\n" + "".join(rows) if rows else "")


def _typed(action: argparse.Action) -> str:
    """An option as it is typed: `--split SPLIT`, or the word of a position."""
    choices = "|".join(map(str, action.choices)) if action.choices else ""
    takes = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    word = " ".join([*action.option_strings[-1:], *([takes] if takes else [])])
    many = " …" if action.nargs in ("+", "*") else ""
    return f"`{word}{many}`" + (", required" if action.required and action.option_strings else "")


def _setting(one: Setting, before: Setting | None) -> str:
    """A line; without a meaning where the one before has the same."""
    kinds = f"({', '.join(one.kinds)}) " if 0 < len(one.kinds) < 4 else ""
    default = "required" if one.default is None else f"`{one.default}`"
    takes = re.sub(r" \(.*\)$", "", one.type)
    shown = takes in PLAIN and one.default is not None
    line = f"- `{one.name}`, " + ("" if shown else f"{takes.replace(' | ', '|')}, ") + default.replace(", ", ",")
    same = before is not None and before.meaning == one.meaning
    return (
        f"{line}\n"
        if same or (one.name.endswith(".kind") and "`: " in one.meaning)
        else f"{line}: {kinds}{_short(one.meaning)}\n"
    )


def _short(text: str) -> str:
    """The first sentence of a text, up to where it begins to explain if it is long."""
    said = re.sub(r"^`\w+`(:| is| are) ", "", " ".join(SENTENCE.split(text)[0].split()).rstrip("."))
    while len(said.split()) > LONG and (cut := max(said.rfind(mark) for mark in MARKS)) > 0:
        said = said[:cut]
    return said


def _names() -> Iterator[str]:
    for name in sorted(itertools.chain.from_iterable(tracewheel.PUBLIC.values()), key=str.lower):
        found: Any = getattr(tracewheel, name)
        described = inspect.isclass(found) or inspect.isroutine(found)
        says = _short((inspect.getdoc(found) or "").partition("\n")[0]) if described else _value(found)
        yield f"- `{name}`: {says}\n"


def _value(found: Any) -> str:
    """A constant, or the limits of a number's type."""
    return f"`{', '.join(map(str, found.__metadata__[0].metadata)) if hasattr(found, '__metadata__') else repr(found)}`"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


if __name__ == "__main__":
    print(reference(), end="")
