"""Tracebacks of a user's code for a record: short, and the same on any machine."""

from __future__ import annotations

import errno
import os
import re
import sysconfig
import traceback
from pathlib import Path

from tracewheel.core.types import FAULTS, Fault

FRAMES = 12
LONGEST = 4000
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
CALLED, FRAME = "In the call of ", re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)
SHOWN = 160  # characters of a cause
PACKAGE = Path(__file__).parents[1]
# The rooms that call a user's code: frames of theirs at the start of a traceback say nothing about it.
CALLERS = ("core", "rollout", "environments", "scoring")
# What runs out on a machine, whoever asks for more.
SCARCE = frozenset((errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EDQUOT))


def fault_of(error: BaseException, otherwise: Fault = "environment") -> Fault:
    """Who is to blame for an exception: its attribute `fault`, the machine where something of it ran out, or `otherwise`."""
    said = getattr(error, "fault", "")
    if said in FAULTS and said:
        return said
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SCARCE):
        return "machine"
    return otherwise


def note_call(error: BaseException, call: str, place: str) -> None:
    """Note for the traceback which call of an environment raised an exception, and the line of its author's code."""
    error.add_note(f"{CALLED}{call}{f' ({place})' if place else ''}")


def cause_of(detail: str, traceback: str) -> str:
    """Why an episode failed, alike for equal causes, as in `KeyError in move_file (my_agent/environment.py:66)`.

    Args:
        detail: What its record says.
        traceback: The record's traceback, "" without one.
    """
    noted = [line.removeprefix(CALLED) for line in traceback.splitlines() if line.startswith(CALLED)]
    if not noted:
        return detail[:SHOWN]
    lines = FRAME.findall(traceback)
    where = "" if noted[-1].endswith(")") or not lines else " ({}:{})".format(*lines[-1])
    return f"{detail.partition(':')[0]} in {noted[-1]}{where}"


def short_traceback(error: BaseException) -> str:
    """The traceback without the frames of the loop that called the code, its last frames, in at most `LONGEST` characters.

    Files are named relative to the working folder or to where packages are installed, others by their name alone, and
    addresses of objects are left out, so that equal failures have equal tracebacks.
    """
    shown = traceback.TracebackException.from_exception(error)
    _shorten(shown, set())
    text = ADDRESS.sub("0x…", "".join(shown.format())).rstrip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n…\n{text[-LONGEST // 2 :]}"


def _shorten(shown: traceback.TracebackException, seen: set[int]) -> None:
    if id(shown) in seen:
        return
    seen.add(id(shown))
    own = [str(PACKAGE / room) + os.sep for room in CALLERS]
    first = next((at for at, frame in enumerate(shown.stack) if not frame.filename.startswith(tuple(own))), 0)
    frames = shown.stack[first:][-FRAMES:]
    for frame in frames:
        _ = frame.line  # read before its file has another name
        frame.filename = short_name(frame.filename)
    shown.stack = traceback.StackSummary.from_list(frames)
    for other in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        if other is not None:
            _shorten(other, seen)


def short_name(file: str) -> str:
    """A file relative to the working folder or to where packages are installed, or its name alone."""
    path = Path(file)
    if not path.is_absolute():
        return file
    folders = [PACKAGE.parent, Path.cwd(), *(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib"))]
    inside = [path.relative_to(folder).as_posix() for folder in folders if path.is_relative_to(folder)]
    return min(inside, key=len, default=path.name)
