"""Runs the modules of generated packages in this process, to learn what is right. Only our own sources run here."""

from __future__ import annotations

import builtins
import copy
import types
from collections.abc import Mapping
from typing import Any

ENCODED = (bool, int, float, str, type(None))


class Package:
    r"""The modules of a package by their file's text; nothing enters `sys.modules`.

    >>> Package({"shop/tax.py": "def tax(x):\n    return x // 5"}).outcome("shop.tax:tax", [10])
    {'value': 2}
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._modules: dict[str, types.ModuleType] = {}

    def outcome(self, call: str, args: list[Any]) -> dict[str, Any]:
        """What came of a call `package.module:function`: `{"value": ...}`, tuples as lists, or `{"raises": class name}`."""
        name, _, function = call.partition(":")
        try:
            return {"value": plain(getattr(self._load(name), function)(*copy.deepcopy(args)))}
        except Exception as error:  # a planted bug may raise anything
            return {"raises": type(error).__name__}

    def _load(self, name: str) -> types.ModuleType:
        if name not in self._modules:
            module = self._modules[name] = types.ModuleType(name)
            vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._import}
            exec(compile(self._files[name.replace(".", "/") + ".py"], name, "exec"), vars(module))
        return self._modules[name]

    def _import(self, name: str, *rest: Any) -> Any:
        if name.replace(".", "/") + ".py" in self._files:
            return self._load(name)
        return builtins.__import__(name, *rest)


def plain(value: Any) -> Any:
    """A value as JSON types, tuples as lists.

    Raises:
        TypeError: it holds anything else.
    """
    if type(value) in ENCODED:
        return value
    if type(value) in (list, tuple):
        return [plain(part) for part in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: plain(part) for key, part in value.items()}
    raise TypeError(f"a {type(value).__name__} is no JSON type")
