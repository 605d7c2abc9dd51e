"""Fingerprints of code, packages and files: the parts of a stage's key other than its settings."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sysconfig
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from tracewheel.core.kind_table import search_working_folder
from tracewheel.core.kinds import own_classes
from tracewheel.core.types import SCHEMA_VERSION, content_hash

PACKAGE = Path(__file__).parents[1]
WHEEL = f"{PACKAGE.name}_"  # begins the name of a wheel's package
NUMERIC_PACKAGES = (
    "bm25s", "google-re2", "jsonschema", "latex2sympy2_extended", "math-verify", "numpy", "pandas", "peft", "pyarrow",
    "PyStemmer", "sympy", "tokenizers", "torch", "transformers", "trl",
)  # fmt: skip
# Packages that only ingest or only curation depends on: a new version leaves the results of other stages valid.
READING_PACKAGES = ("google-re2", "hyperscan", "orjson", "phonenumbers", "python-stdnum")
CURATION_PACKAGES = ("jinja2", "markupsafe", "orjson", "rapidfuzz", "rensa", "scipy")
UNKNOWN = "?"  # the hash of code whose source is not found
# Settings count by value, and a table of names by what is taken from it.
NOT_KEYED = (f"{PACKAGE.name}.config", f"{PACKAGE.name}.report", f"{PACKAGE.name}.dashboard")
PAGES = (".css", ".html", ".js", ".svg")


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


def code_version(*modules: str, plugins: tuple[str, ...] = ()) -> str:
    """Hash of what `code_parts` returns."""
    return content_hash(code_parts(*modules, plugins=plugins))


def code_parts(*modules: str, plugins: tuple[str, ...] = ()) -> dict[str, str]:
    """What a result depends on as code: the hash of each module, without comments and docstrings, and of files beside it.

    Args:
        modules: Modules of `tracewheel` or of a wheel: the stage's own, and those of the kinds that the profile names.
        plugins: Modules of the user's own classes, whose source is included.
    """
    return {**_parts_of(modules, plugins), "records": str(SCHEMA_VERSION)}


@functools.cache
def _parts_of(modules: tuple[str, ...], plugins: tuple[str, ...]) -> dict[str, str]:
    """Computed once in a process, which has imported its code: what is edited meanwhile is not what it runs."""
    parts = plugin_digests(plugins)
    files = code_files(*modules)
    for name, path in files.items():
        parts[name] = _source_module(path, path.stat().st_mtime_ns, name).hash
    for folder in {path.parent for path in files.values()}:
        parts |= {f"{folder.name}/{file.relative_to(folder).as_posix()}": digest_file(file) for file in _beside(folder)}
    return dict(sorted(parts.items()))


def code_files(*modules: str) -> dict[str, Path]:
    """The files of modules and of what they import of Tracewheel and its wheels, by module.

    Left out are `NOT_KEYED`, imports for types alone, and of `from tracewheel import NAME` all but the module of that name.
    """
    found: dict[str, Path] = {}
    waiting, seen = list(modules), set[str]()
    packages = {module.partition(".")[0] for module in modules}
    while waiting:
        name = waiting.pop()
        if name in seen or name.startswith(NOT_KEYED):
            continue
        seen.add(name)
        path = _source(name, packages)
        if path is not None:
            found[name] = path
            waiting += _source_module(path, path.stat().st_mtime_ns, name).imported
    return dict(sorted(found.items()))


def plugin_digests(plugins: Iterable[str]) -> dict[str, str]:
    """Digests of the source of the user's own modules and of what they import, by module; `UNKNOWN` without a source."""
    return {plugin: own_code(f"{plugin}:") for plugin in plugins}


def own_code(kind: str) -> str:
    """Hash of the module in a name `module:Class` and of the modules that it imports.

    Of those, installed packages count only if the module is one of theirs. Returns "" for built-in names, and `UNKNOWN` where
    a module has no source.
    """
    modules = own_modules([kind])
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
    except Exception:  # it imports the packages above, which may raise anything, as where an optional part is not installed
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


def own_modules(names: Iterable[str]) -> tuple[str, ...]:
    """The modules in names of the form `module:Class`, also within the arguments of a kind; built-in names have none."""
    own = (each for name in names for each in (own_classes(name) if name.startswith("{") else [name]))
    return tuple(sorted({name.partition(":")[0] for name in own if ":" in name}))


class _SourceModule(NamedTuple):
    """What a stage's code version takes from one module: its code's hash, and what it imports."""

    hash: str
    imported: tuple[str, ...]


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
def _source_module(path: Path, changed: int, name: str) -> _SourceModule:
    """A module whose file `changed` then; read once however many stages reach it."""
    tree = _parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            drop_docstring(node)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    imported = [_home(module) for module in _imported(tree, name, path.name == "__init__.py")]
    return _SourceModule(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(dict.fromkeys(imported)))


def _home(module: str) -> str:
    """The module that holds a public name of Tracewheel or of a wheel, as `tracewheel.NAME`; any other module as it is."""
    package, _, name = module.partition(".")
    ours = package == PACKAGE.name or (package.startswith(WHEEL) and importlib.util.find_spec(package) is not None)
    public = getattr(importlib.import_module(package), "PUBLIC", {}) if ours else {}
    return next((home for home, names in public.items() if isinstance(names, tuple) and name in names), module)


def drop_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Remove a docstring in place: rewording one does not change what the code computes."""
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]


def _source(module: str, packages: Set[str]) -> Path | None:
    """The source of a module of Tracewheel, of a wheel or of these packages; None for others, and for Tracewheel's door."""
    parts = module.split(".")
    if parts[0].startswith(WHEEL) or parts[0] in packages - {PACKAGE.name}:
        return _own_source(module)
    if parts[0] != PACKAGE.name or len(parts) == 1:
        return None
    path = PACKAGE.joinpath(*parts[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _beside(folder: Path) -> tuple[Path, ...]:
    """Files of a package that are no modules but belong to its code: data, and folders of programs for a sandbox."""
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists():
            found += [file for file in sorted(path.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
        elif path.is_file() and path.suffix not in (".py", *PAGES):
            found.append(path)
    return tuple(file for file in found if file.suffix not in PAGES)
