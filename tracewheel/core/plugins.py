"""Classes by built-in name or by `module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from tracewheel.core.errors import ConfigError


def load_class(name: str, built_in: Mapping[str, type], what: str) -> type:
    """Find a class by name.

    Args:
        name: A key of `built_in`, or `module:Class` to import.
        built_in: The classes that ship with Tracewheel.
        what: The kind of class, for the error message.

    Raises:
        ConfigError: `name` is neither.
    """
    if name in built_in:
        return built_in[name]
    module_name, separator, class_name = name.partition(":")
    if not separator:
        raise ConfigError(
            f"no {what} is called '{name}'; built in: {', '.join(sorted(built_in))}; name your own as 'module:Class'"
        )
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{what} '{name}' cannot be imported: {error}") from error
