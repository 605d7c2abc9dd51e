"""Calls into a user's own classes: each result is checked, and a failure names the class, the method and the user's line.

`guard` is the one place: whoever makes an instance of a `module:Class` passes it through here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError, TracewheelError
from tracewheel.core.tracebacks import short_name

Check = Callable[[Any], str]  # what was expected, where a result is something else; "" where it is right
LONGEST = 80  # characters of a line that a message shows
_MARK, _PLACE = "_tracewheel_call", "_tracewheel_place"


class OwnCodeError(DataError):
    """A user's class returned something else than its method is to return."""


def guard(instance: Any, kind: str, what: str, checks: Mapping[str, Check]) -> None:
    """Check what an instance's methods return from now on, and mark what they raise for `described`.

    Args:
        instance: Of a user's class.
        kind: Its `module:Class`.
        what: "environment" or "verifier", for messages.
        checks: A check for each method that has one; methods that the class lacks are left out.
    """
    for name, check in checks.items():
        method = getattr(instance, name, None)
        if callable(method):
            with contextlib.suppress(AttributeError):  # a class with slots
                setattr(instance, name, _guarded(method, f"{what} '{kind}'", name, check))


def _guarded(method: Callable[..., Any], label: str, name: str, check: Check) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*given: Any, **more: Any) -> Any:
        try:
            value = method(*given, **more)
        except TracewheelError:
            raise
        except Exception as error:
            if not hasattr(error, _MARK):
                setattr(error, _PLACE, _last_line(error, method))
                setattr(error, _MARK, f"{label}: {name} raises {type(error).__name__}: {error} ({place_of(error, method)})")
            raise
        if expected := check(value):
            where = _definition(method)
            raise OwnCodeError(f"{label}: {name} returns {shown(value)}; it is to return {expected} ({where})")
        return value

    return call


def described(error: BaseException) -> str | None:
    """The class, the method and the line that raised an exception; None where no user's class did."""
    said = str(error) if isinstance(error, OwnCodeError) else getattr(error, _MARK, None)
    return str(said) if said else None


def reason(error: Exception) -> str:
    """What data or a user's class have done wrong, in words. Any other exception is raised again."""
    said = str(error) if isinstance(error, DataError) else described(error)
    if said is None:
        raise error
    return said


def named(error: BaseException) -> str:
    """An exception in words: by `described` where a user's class raised it, else its type and text."""
    return described(error) or f"{type(error).__name__}: {error}"


def shown(value: Any) -> str:
    """What a value is: equal mistakes give equal messages, so only what has few values is shown itself."""
    if value is None or isinstance(value, bool):
        return repr(value)
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def place(error: BaseException) -> str:
    """The user's line that raised an exception, as `my_agent/environment.py:66`; "" where no user's class did."""
    return str(getattr(error, _PLACE, ""))


def _last_line(error: BaseException, method: Callable[..., Any]) -> str:
    file = file_of(method)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == file]
    return f"{short_name(file)}:{lines[-1]}" if file and lines else ""


def place_of(error: BaseException, method: Callable[..., Any]) -> str:
    """The last line of the user's own file in a traceback, with its text; the method's definition where there is none."""
    file = file_of(method)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == file]
    if not frames:
        return _definition(method)
    last = frames[-1]
    text = (last.line or "").strip()[:LONGEST]
    return (
        f"{Path(last.filename).name}, line {last.lineno}: {text}" if text else f"{Path(last.filename).name}, line {last.lineno}"
    )


def _definition(method: Callable[..., Any]) -> str:
    file = file_of(method)
    code = getattr(inspect.unwrap(method), "__code__", None)
    if not file or code is None:
        return "its source is not known"
    linecache.checkcache(file)
    return f"{Path(file).name}, line {code.co_firstlineno}"


def file_of(method: Callable[..., Any]) -> str | None:
    """The file of a method's source; None where it has none."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    return code.co_filename if code else None
