"""Why a stage would run again: what it depends on now, and what a stored result of it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.engine.stage import StageTask
from tracewheel.config import RetrainConfig
from tracewheel.core.store import FACTS, Entry, Store, read_metadata


def differences(entry: Entry, task: StageTask[Any], config: RetrainConfig) -> list[str]:
    """What differs between a stored result and one that would be made now, a line each: settings, code and packages.

    Empty where these agree; then an argument of the stage, as an earlier stage's result, is another.
    `Store.newest(stage, label)` finds the result to compare with.

    Args:
        entry: The stored result.
        task: Its stage.
        config: The profile of now.
    """
    store = Store(entry.path.parent)
    made: Mapping[str, Any] = read_metadata(store.root / FACTS / f"{entry.path.name}.json").get("made", {})
    now = {"settings": task.settings(config), "code": task.code_parts(config), "packages": task.package_versions()}
    before = {
        "settings": store.kept(str(made.get("settings"))),
        "code": store.kept(str(made.get("code"))),
        "packages": made.get("packages"),
    }
    found: list[str] = []
    for what, new in now.items():
        old = before[what]
        if old is None:
            found.append(f"{what}: what the stored result was made with is not known")
        elif what == "code":
            found += _code(old, new)
        else:
            name = "package " if what == "packages" else ""
            found += [f"{name}{key}: {_shown(one)} then, {_shown(other)} now" for key, one, other in _changed(old, new)]
    return found


def _code(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for module in sorted(old.keys() | new.keys()):
        if old.get(module) != new.get(module):
            yield f"code: {module} {'is new' if module not in old else 'is gone' if module not in new else 'has changed'}"


def _changed(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places where two JSON values differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            yield from _changed(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path, old, new


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)[:60]
