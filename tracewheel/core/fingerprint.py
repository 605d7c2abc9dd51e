"""Fingerprints of code, packages and files: the parts of a stage's key other than its settings."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tracewheel.core.kinds import own_classes
from tracewheel.core.plugins import search_working_folder
from tracewheel.core.types import SCHEMA_VERSION, content_hash

PACKAGE = Path(__file__).parents[1]
NUMERIC_PACKAGES = (
    "bm25s", "google-re2", "jsonschema", "latex2sympy2_extended", "math-verify", "numpy", "pandas", "peft", "pyarrow",
    "PyStemmer", "sympy", "tokenizers", "torch", "transformers", "trl",
)  # fmt: skip
# Packages that only ingest or only curation depends on: a new version leaves the results of other stages valid.
READING_PACKAGES = ("detect-secrets", "google-re2", "orjson", "phonenumbers", "python-stdnum")
CURATION_PACKAGES = ("jinja2", "markupsafe", "orjson", "rapidfuzz", "rensa", "scipy")
ALL_OF = re.compile(rf"{PACKAGE.name}(\.\w+)+\.\*")  # a text in code: it imports all modules of this package by name
UNKNOWN = "?"  # the hash of code whose source is not found
ASSETS = (".css", ".html", ".jinja", ".js", ".json", ".svg")


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def files_hash(files: Sequence[Path]) -> str:
    """SHA-256 (16 digits) over the bytes of files; computed once while their sizes and times stay the same."""
    return _files_hash(tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files))


@functools.lru_cache(maxsize=64)
def _files_hash(stamps: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, _, _ in stamps:
        with open(name, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


def digest_of(path: Path) -> str:
    """Digest of a file, or of a folder's sorted relative names and file digests.

    It depends neither on the location of the path nor on modification times.
    """
    if path.is_file():
        return digest_file(path)
    names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    return content_hash([[name, digest_file(path / name)] for name in names], length=64)


@functools.cache
def code_version(module: str, plugins: tuple[str, ...] = ()) -> str:
    """Hash of a `tracewheel` module and its imports from `tracewheel`, without comments and docstrings.

    It includes all modules of a package that a module names as in "tracewheel.room.*", and the templates and style sheets
    that it names and that lie in its folder.

    Args:
        module: The stage's module, as in "tracewheel.curation.curate".
        plugins: Modules of the user's own classes, whose source is included.
    """
    hashes: dict[str, str] = {}
    for name, path in code_files(module).items():
        source = _source_module(path, path.stat().st_mtime_ns)
        hashes[name] = source.hash
        hashes |= {f"{name} {asset.name}": digest_file(asset) for asset in _assets(source.assets, path.parent)}
    hashes |= plugin_digests(plugins)
    return content_hash([SCHEMA_VERSION, sorted(hashes.items())])


def code_files(module: str) -> dict[str, Path]:
    """The files of a `tracewheel` module and of what it imports from `tracewheel`, by module; without assets and plugins."""
    found: dict[str, Path] = {}
    waiting, seen = [module], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = _source(name)
        if path is not None:
            found[name] = path
            waiting += _source_module(path, path.stat().st_mtime_ns).imported
    return found


def plugin_digests(plugins: Iterable[str]) -> dict[str, str]:
    """Digests of the source of the user's own modules and of what they import, by module; `UNKNOWN` without a source."""
    return {plugin: own_code(f"{plugin}:") for plugin in plugins}


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
        path = None if name in digests else _own_source(name)
        if path is not None and (name.partition(".")[0] == package or not _is_installed(path)):
            digests[name] = digest_file(path)
            waiting += _imported(ast.parse(path.read_bytes()), name, path.name == "__init__.py")
    return content_hash(sorted(digests.items())) if modules[0] in digests else UNKNOWN


@functools.cache
def _installed() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_installed(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _installed())


def _own_source(module: str) -> Path | None:
    """The source of a module, None for one of Tracewheel's and for one without a file of Python."""
    if module.partition(".")[0] == PACKAGE.name:
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


@functools.cache
def package_versions(names: tuple[str, ...] = NUMERIC_PACKAGES) -> dict[str, str]:
    """Installed versions of packages, without importing them. Packages that are not installed are omitted."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def plugin_modules(names: Iterable[str]) -> tuple[str, ...]:
    """The modules in names of the form `module:Class`, also within the arguments of a kind; built-in names have none."""
    own = (each for name in names for each in (own_classes(name) if name.startswith("{") else [name]))
    return tuple(sorted({name.partition(":")[0] for name in own if ":" in name}))


class _SourceModule(NamedTuple):
    """What a stage's code version takes from one module: its code's hash, what it imports, and the assets that it names."""

    hash: str
    imported: tuple[str, ...]
    assets: tuple[str, ...]


PARSE_TRIES = 20


def _parsed(path: Path) -> ast.Module:
    """The syntax tree of a module.

    CPython 3.11 counts the depth of all threads' parsing in one place: when two parse at once, one fails, and is tried again.
    """
    source = path.read_bytes()
    for left in reversed(range(PARSE_TRIES)):
        try:
            return ast.parse(source)
        except SystemError:
            if not left:
                raise
    raise AssertionError("unreachable")


@functools.cache
def _source_module(path: Path, changed: int) -> _SourceModule:
    """A module of `tracewheel` whose file `changed` then; read once however many stages reach it."""
    tree = _parsed(path)
    imported: list[str] = []
    texts: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                _drop_docstring(node)
            case ast.Import():
                imported += [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(origin), level=0):
                imported += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
            case ast.Constant(value=str(text)):
                texts.append(text)
    imported += [module for text in texts if ALL_OF.fullmatch(text) for module in _modules_of(text)]
    code = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return _SourceModule(code, tuple(dict.fromkeys(imported)), tuple(text for text in texts if text.endswith(ASSETS)))


def _drop_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Remove a docstring in place: rewording one does not change what the code computes."""
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]


def _source(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] != PACKAGE.name:
        return None
    path = PACKAGE.joinpath(*parts[1:])
    candidates = (path.with_suffix(".py"), path / "__init__.py") if len(parts) > 1 else (path / "__init__.py",)
    return next((file for file in candidates if file.is_file()), None)


def _modules_of(text: str) -> Iterator[str]:
    """The modules that a text of the form "tracewheel.room.*" names."""
    folder = PACKAGE.joinpath(*text.split(".")[1:-1])
    yield from (text.replace("*", file.stem) for file in sorted(folder.glob("*.py")))


def _assets(texts: Iterable[str], folder: Path) -> Iterator[Path]:
    """The files in `folder` named by string literals of a module, and the files that those name in turn."""
    waiting = list(texts)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or not name.endswith(ASSETS) or Path(name).name != name or not (folder / name).is_file():
            continue
        seen.add(name)
        yield folder / name
        waiting += re.findall(r"[\w.-]+", (folder / name).read_text(encoding="utf-8"))
