"""What the results of a trace and of a task depend on besides themselves, as one hash."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tracewheel.config import CurateSections
from tracewheel.core.fingerprint import (
    CURATION_PACKAGES,
    NUMERIC_PACKAGES,
    code_version,
    digest_file,
    package_versions,
    plugin_modules,
)
from tracewheel.core.plugins import search_working_folder
from tracewheel.core.types import content_hash

CODE = "tracewheel.curation.replayed_traces"
UNKNOWN = "?"  # the hash of code whose source is not found


def depends_on(config: CurateSections) -> str:
    """Hash of the settings that replays, probes, sketches and overlaps read, their code, and the packages it uses.

    Of the user's own environment it covers the module and what that imports, except installed packages. It does not cover
    files that an environment reads.
    """
    duplicates, benchmarks = config.curation.duplicates, config.curation.decontamination
    return content_hash(
        {
            "environment": config.environment.kind,
            "sketches": [duplicates.permutations, duplicates.longest, duplicates.near],
            "benchmarks": [
                benchmarks.model_dump(mode="json", exclude={"benchmarks"}),
                *([Path(path).name, digest_file(Path(path))] for path in benchmarks.benchmarks if Path(path).is_file()),
            ],
            "code": code_version(CODE),
            "own_code": own_code(config.environment.kind),
            "packages": package_versions(NUMERIC_PACKAGES + CURATION_PACKAGES),
        }
    )


def own_code(kind: str) -> str:
    """Hash of the module in a name `module:Class` and of the modules that it imports.

    Of those, installed packages count only if the module is one of theirs. Returns "" for built-in names, and `UNKNOWN` where
    a module has no source.
    """
    modules = plugin_modules([kind])
    if not modules:
        return ""
    search_working_folder()
    package = modules[0].partition(".")[0]
    digests: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = None if name in digests else _source(name)
        if path is not None and (name.partition(".")[0] == package or not _is_installed(path)):
            digests[name] = digest_file(path)
            waiting += _imported(ast.parse(path.read_bytes()), name, path.name == "__init__.py")
    return content_hash(sorted(digests.items())) if modules[0] in digests else UNKNOWN


@functools.cache
def _installed() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_installed(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _installed())


def _source(module: str) -> Path | None:
    """The source of a module, None for one of Tracewheel's and for one without a file of Python."""
    if module.partition(".")[0] == CODE.partition(".")[0]:
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    path = Path(spec.origin).resolve() if spec and spec.origin and spec.has_location else None
    return path if path is not None and path.suffix == ".py" else None


def _imported(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """The modules that a module may import."""
    parts = module.split(".")
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = parts[: len(parts) - node.level + is_package] if node.level else []
                origin = ".".join([*base, *([node.module] if node.module else [])])
                yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))
