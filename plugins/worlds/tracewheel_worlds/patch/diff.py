"""Applies unified diffs to text files."""

from __future__ import annotations

import re
from collections.abc import Mapping

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NOWHERE = "/dev/null"


class DiffError(ValueError):
    """A diff that cannot be read or does not fit; the message says where."""


def apply_diff(files: Mapping[str, str], diff: str) -> dict[str, str]:
    r"""The files after a unified diff, as `git diff` or `diff -u` writes it. All of it fits, or nothing is changed.

    A hunk is put where its old lines are found, nearest to its line number; there is no fuzz.

    >>> apply_diff({"a.py": "x = 1\n"}, "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n")
    {'a.py': 'x = 2\n'}

    Raises:
        DiffError: a hunk is broken or does not fit, or a file is not there.
    """
    after, lines, place = dict(files), diff.splitlines(), 0
    found = False
    while place < len(lines):
        if not (lines[place].startswith("--- ") and place + 1 < len(lines) and lines[place + 1].startswith("+++ ")):
            place += 1
            continue
        old, new = _name(lines[place][4:]), _name(lines[place + 1][4:])
        if old == NOWHERE and new in after:
            raise DiffError(f"{new} exists already")
        if old != NOWHERE and old not in after:
            raise DiffError(f"no file {old}")
        place, hunks = _hunks(lines, place + 2)
        text = _changed("" if old == NOWHERE else after[old], hunks, old)
        if old != NOWHERE:
            del after[old]
        if new != NOWHERE:
            after[new] = text
        found = True
    if not found:
        raise DiffError("no file in it: each needs lines --- a/PATH and +++ b/PATH")
    return after


Hunk = tuple[int, list[str]]


def _name(line: str) -> str:
    name = line.split("\t")[0].strip()
    return name if name == NOWHERE else re.sub(r"^[ab]/", "", name)


def _hunks(lines: list[str], place: int) -> tuple[int, list[Hunk]]:
    """The hunks of a file from `place` on, and the place after them."""
    hunks: list[Hunk] = []
    while place < len(lines) and (head := HUNK.match(lines[place])):
        olds, news = (int(head[number] or 1) if head[number] != "0" else 0 for number in (2, 4))
        body: list[str] = []
        place += 1
        while place < len(lines) and (olds > 0 or news > 0 or lines[place].startswith("\\")):
            line = lines[place] or " "
            if line[0] not in " +-\\":
                break
            olds -= line[0] in " -"
            news -= line[0] in " +"
            body.append(line)
            place += 1
        if olds or news:
            raise DiffError(f"hunk {head[0]} has other lines than it counts")
        hunks.append((int(head[1]), body))
    if not hunks:
        raise DiffError("a file without a hunk: each begins with @@ -LINE,COUNT +LINE,COUNT @@")
    return place, hunks


def _changed(text: str, hunks: list[Hunk], path: str) -> str:
    lines, moved = text.splitlines(keepends=True), 0
    for number, body in hunks:
        old, new = _side(body, "-"), _side(body, "+")
        wanted = max(0, number - 1 if old else number) + moved
        places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        if not places:
            raise DiffError(f"the hunk at line {number} does not fit {path}")
        at = min(places, key=lambda place: abs(place - wanted))
        lines[at : at + len(old)] = new
        moved += len(new) - len(old)
    return "".join(lines)


def _side(body: list[str], sign: str) -> list[str]:
    """The lines of a hunk before (`-`) or after (`+`) it."""
    found: list[str] = []
    last = ""
    for line in body:
        if line[0] == "\\":  # "No newline at end of file", about the line before
            if found and last in (" ", sign):
                found[-1] = found[-1].removesuffix("\n")
            continue
        last = line[0]
        if last in (" ", sign):
            found.append(line[1:] + "\n")
    return found
