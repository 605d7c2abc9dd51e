"""Classes by built-in name or by `module:Class`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping

from tracewheel.core.errors import ConfigError
from tracewheel.core.given_kinds import is_given, may_import
from tracewheel.core.wheels import how_to_get


def search_working_folder() -> None:
    """Let Python import modules of the working folder too, after all others: an installed `tracewheel` would not."""
    folder = os.getcwd()
    if "" not in sys.path and folder not in sys.path:
        sys.path.append(folder)


def load_class(name: str, built_in: Mapping[str, type], what: str) -> type:
    """Find a class by name.

    Args:
        name: A key of `built_in`, or `module:Class` to import, if the user named it (`core.given_kinds`).
        built_in: The classes that ship with Tracewheel.
        what: The kind of class, for the error message.

    Raises:
        ConfigError: `name` is neither, or only data names it.
    """
    if name in built_in:
        return built_in[name]
    if ":" not in name:
        if how := how_to_get(what, name):
            raise ConfigError(f"{what} '{name}' is {how}")
        raise ConfigError(
            f"no {what} is called '{name}'; built in: {', '.join(sorted(built_in))}; name your own as 'module:Class'"
        )
    if not may_import(name):
        raise ConfigError(
            f"{what} '{name}' is not named in the profile, and data imports nothing: if you trust it, name it there (a task's "
            "verifier in environment.verifiers)"
        )
    found = import_class(name, what)
    # Of a package that the user named, data may choose among its classes, not among all that its modules import.
    if not is_given(name) and not (isinstance(found, type) and may_import(f"{found.__module__}:{found.__name__}")):
        raise ConfigError(f"{what} '{name}' is no class of that module: if you trust it, name it in the profile")
    return found


def import_class(name: str, what: str) -> type:
    """Import `module:Class`, a name from our own code or one that the user gave.

    Raises:
        ConfigError: there is no such class.
    """
    module_name, _, class_name = name.partition(":")
    search_working_folder()
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"{what} '{name}' cannot be imported: {error}. Modules of your own are found in installed packages, in PYTHONPATH "
            f"and in the folder that you start from, here {os.getcwd()}"
        ) from error
    try:
        found: type = getattr(module, class_name)
    except AttributeError as error:
        place = getattr(module, "__file__", None) or "a module without a file"
        raise ConfigError(f"{what} '{name}' cannot be imported: {error} ({place})") from error
    return found
