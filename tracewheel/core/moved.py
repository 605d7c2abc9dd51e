"""Old import paths of the public interface, which still work with a deprecation warning."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "tracewheel.types": "tracewheel.core.types",
    "tracewheel.errors": "tracewheel.core.errors",
    "tracewheel.verifiers": "tracewheel.scoring.verifiers",
    "tracewheel.verifiers.base": "tracewheel.scoring.verifiers.base",
    "tracewheel.traces.reader": "tracewheel.traces.readers.reader",
    "tracewheel.traces.building": "tracewheel.traces.readers.building",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds a module under its old path, as a proxy for the module at the new path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MOVED:
            return None
        return importlib.util.spec_from_loader(
            fullname, self, is_package=any(name.startswith(f"{fullname}.") for name in MOVED)
        )

    def exec_module(self, module: ModuleType) -> None:
        new = importlib.import_module(MOVED[module.__name__])
        warnings.warn(
            f"{module.__name__} has moved: import its names from `tracewheel`, as in `from tracewheel import Task`",
            DeprecationWarning,
            stacklevel=2,
        )
        module.__getattr__ = lambda name: getattr(new, name)  # type: ignore[method-assign]


def install() -> None:
    """Make the old paths importable. Idempotent."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
