"""A module of a generated package, and a bug that may be planted in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FAMILIES = ("boundary", "condition", "missing_case", "interplay")

# Makes the arguments of a random call.
Inputs = Callable[[random.Random], list[Any]]


@dataclass(frozen=True)
class Bug:
    """A change that breaks a module.

    Attributes:
        family: One of `FAMILIES`; an `interplay` bug is a misunderstanding between two modules.
        right: A part of the module's source, found there once.
        wrong: What stands there instead.
        issue: What a user notices.
    """

    family: str
    right: str
    wrong: str
    issue: str


@dataclass(frozen=True)
class Module:
    """A module.

    Attributes:
        name: Its name in the package.
        source: Its text, with `PACKAGE` for the package's name.
        inputs: The functions that checks call, with how to make their arguments.
        bugs: The bugs that may be planted.
        imports: The modules that it imports.
    """

    name: str
    source: str
    inputs: Mapping[str, Inputs]
    bugs: tuple[Bug, ...]
    imports: tuple[str, ...] = ()
