"""Tables of kinds: a name to the place of its class, imported when it is named. Wheels add theirs by entry points."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tracewheel.core.errors import ConfigError
from tracewheel.core.plugins import import_class


class KindTable(MutableMapping[str, Any]):
    """The kinds of one sort by name: those of the core, and those of installed wheels.

    Example:
        >>> table = KindTable("tracewheel.verifiers", {"format": "tracewheel.scoring.verifiers.format:FormatVerifier"})
        >>> table["format"].__name__
        'FormatVerifier'

    Args:
        group: The group of entry points in which wheels name theirs, each as `NAME = "module:Class"`.
        core: Name to `module:Class`, of the kinds that the core holds.
    """

    def __init__(self, group: str, core: Mapping[str, str]) -> None:
        self.group = group
        self._core = dict(core)
        self._set: dict[str, type] = {}

    @functools.cached_property
    def wheels(self) -> dict[str, EntryPoint]:
        """The kinds of installed wheels.

        Raises:
            ConfigError: two name the same kind, or one that the core holds.
        """
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            taken = "the core" if point.name in self._core else _package(found[point.name]) if point.name in found else None
            if taken and (taken == "the core" or found[point.name].value != point.value):
                raise ConfigError(
                    f"{self.group}: '{point.name}' of {_package(point)} is already a kind of {taken}; uninstall one of them"
                )
            found[point.name] = point
        return found

    def place(self, name: str) -> str:
        """Where a kind's class lies, as `module:Class`.

        Raises:
            KeyError: there is no such kind.
        """
        if name in self._set:
            return f"{self._set[name].__module__}:{self._set[name].__qualname__}"
        return self._core[name] if name in self._core else self.wheels[name].value

    def __getitem__(self, name: str) -> Any:
        if name in self._set:
            return self._set[name]
        return import_class(self.place(name), self.group.rpartition(".")[2].removesuffix("s"))

    def __setitem__(self, name: str, found: type) -> None:
        self._set[name] = found

    def __delitem__(self, name: str) -> None:
        del self._set[name]

    def __contains__(self, name: object) -> bool:  # without importing the class
        return name in self._set or name in self._core or name in self.wheels

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._core, *self._set, *self.wheels}))

    def __len__(self) -> int:
        return len({*self._core, *self._set, *self.wheels})


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
