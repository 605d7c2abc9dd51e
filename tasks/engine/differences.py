"""Why a stage would run again: what it depends on now, and what a stored result of it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.engine.stage import StageTask
from tracewheel.config import RetrainConfig
from tracewheel.core.store import Store
from tracewheel.core.types import content_hash


def differences(made: Mapping[str, Any], task: StageTask[Any], config: RetrainConfig, store: Store) -> list[str]:
    """What differs between a stored result and one that would be made now, a line each: settings, code and packages.

    Args:
        made: What the stored result was made from and with (`StageTask.facts`).
        task: Its stage.
        config: The profile of now.
        store: Holds the result, and the settings and code that it was made with.
    """
    now = {"settings": task.settings(config), "code": task.code_parts(config), "packages": task.package_versions()}
    before = {"settings": store.kept(made["settings"]), "code": store.kept(made["code"]), "packages": made["packages"]}
    found: list[str] = []
    for what, new in now.items():
        old = before[what]
        if old is None:
            if made[what] != content_hash(new):
                found.append(f"{what} of the stored result: not known, but not those of now")
        elif what == "code":
            for module, one, other in _changed(old, new):
                found.append(f"code: {module} {'is new' if one is None else 'is gone' if other is None else 'has changed'}")
        else:
            name = "package " if what == "packages" else ""
            found += [f"{name}{key}: {_shown(one)} then, {_shown(other)} now" for key, one, other in _changed(old, new)]
    return found


def _changed(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places where two JSON values differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            yield from _changed(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path, old, new


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)[:60]
