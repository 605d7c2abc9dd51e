"""Sources of logs beside files: `mlflow:agents`, `langfuse:`, `s3://bucket/logs`, each a class of a wheel.

What a source has that is new goes into files of the work folder, in a folder that is named after the source's address; they
are read as any logs. The folder's state says how far the source was read. It is written after the files, which are seen only
then, so a kill at any moment neither loses nor doubles a record.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.files import read_json
from tracewheel.core.kind_table import WHEELS, KindTable, load_class
from tracewheel.core.locks import hold
from tracewheel.core.store import flush, remove, sync, write_whole
from tracewheel.core.types import canonical_json

SOURCES = KindTable("tracewheel.sources", {})
FOLDER = "sources"  # in the work folder
STATE, WRITING, STAGED = ".source.json", ".writing", ".staged-"
ADDRESS = re.compile(r"([a-z][a-z0-9]+):(.*)", re.DOTALL)
LONGEST = 240  # bytes of a folder's name
_given: dict[str, str] = {}  # the folders of addresses that the user gave: none is called because a folder has its name


class Source(Protocol):
    """A place where traces live, found by an entry point of `tracewheel.sources`; it is made with what follows `kind:`.

    Example:
        >>> class Desk:
        ...     def __init__(self, address):
        ...         self.name = address
        ...     def fetch(self, cursor, folder):
        ...         (folder / "day-1.jsonl").write_text('{"messages": []}')
        ...         yield {"day": 1}
    """

    def fetch(self, cursor: Any, folder: Path) -> Iterator[Any]:
        """Write what is new since `cursor` into files, and yield the next cursor whenever they are complete.

        Args:
            cursor: What was yielded last, as JSON; None at first. It holds no secrets.
            folder: An empty folder. What is in it at a `yield` is taken: it joins, or replaces, what was taken before, by name.

        Raises:
            ConfigError: the address is wrong, or a variable of the environment is missing.
            InfrastructureError: the source does not answer.
        """
        ...


class Fetched(NamedTuple):
    """What a source had: its address, the files that are new or have changed, their bytes and lines."""

    address: str
    files: int
    bytes: int
    lines: int


def is_source(path: str) -> bool:
    """Whether a path of `ingest.paths` is the address of a source."""
    found = ADDRESS.fullmatch(path)
    return found is not None and (found[1] in SOURCES or found[1] in WHEELS["source"]) and not os.path.exists(path)


def located(paths: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Paths of logs, where each source is the folder of its files.

    Args:
        paths: Files, folders, globs and addresses.
        folder: What sources' folders lie in.

    Raises:
        ConfigError: an address is too long, or holds a password.
    """
    found = {path: str(folder / _name(path)) for path in paths if is_source(path)}
    _given.update({place: address for address, place in found.items()})
    return tuple(found.get(path, path) for path in paths)


def address_in(path: str) -> str | None:
    """The address of the source whose files a folder has; None of another path, whatever it is called."""
    return _given.get(path)


def named(paths: Sequence[str]) -> str:
    """Located paths as the user gave them."""
    return ", ".join(_given.get(path, path) for path in paths)


def _name(address: str) -> str:
    if re.search(r"//[^/@]*@", address):
        raise ConfigError(
            f"ingest.paths: {address.partition(':')[0]}: a source's address holds no name or password; set the "
            "variables of the environment that its documentation names"
        )
    if len(name := quote(address, safe="")) > LONGEST:
        raise ConfigError(f"ingest.paths: {address:.60}…: the address of a source has at most {LONGEST} bytes")
    return name


def fetch_new(paths: Sequence[str], *, dry_run: bool = False) -> list[Fetched]:
    """Fetch what the sources among located paths have that is new.

    Args:
        paths: As `located` gives them.
        dry_run: Keep nothing of it.

    Raises:
        ConfigError: a source is not installed, or cannot be used like this.
        InfrastructureError: a source does not answer, or another process fetches from it.
    """
    return [_fetch(address, Path(path), dry_run=dry_run) for path in paths if (address := address_in(path))]


def _fetch(address: str, folder: Path, *, dry_run: bool) -> Fetched:
    kind, _, rest = address.partition(":")
    source: Source = load_class(kind, SOURCES, "source")(rest)
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="tracewheel-source-") as place:
            state = _state(folder)
            return _counted(address, _deposits(source, state.get("cursor"), Path(place)))
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with hold(folder) as held:
        if not held:
            raise InfrastructureError(f"{address}: another process is fetching from it into {folder}")
        return _counted(address, _taken(source, folder))


def _counted(address: str, files: Iterator[Path]) -> Fetched:
    names, size, lines = set(), 0, 0
    for file in files:
        names.add(file.name)
        size += file.stat().st_size
        with file.open("rb") as stream:
            lines += sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
    return Fetched(address, len(names), size, lines)


def _deposits(source: Source, cursor: Any, folder: Path) -> Iterator[Path]:
    for _ in source.fetch(cursor, folder):
        for file in _files(folder):
            yield file
            file.unlink()


def _taken(source: Source, folder: Path) -> Iterator[Path]:
    """Take what the source writes, one commit for each cursor.

    What is complete is set apart under the number of its commit before the state names that, and is moved after.
    """
    state = _state(folder)
    commits = int(state.get("commits", 0))
    _move(folder / f"{STAGED}{commits}", folder)  # a kill came between the state and this
    for left in [folder / WRITING, *folder.glob(f"{STAGED}*")]:
        remove(left)
    writing = folder / WRITING
    writing.mkdir(0o700)
    for cursor in source.fetch(state.get("cursor"), writing):
        commits += 1
        staged = folder / f"{STAGED}{commits}"
        writing.rename(staged)
        writing.mkdir(0o700)
        flush(staged)
        write_whole(folder / STATE, canonical_json({"cursor": cursor, "commits": commits}))
        sync(folder)
        yield from _move(staged, folder)
        remove(staged)
    remove(writing)


def _move(staged: Path, folder: Path) -> list[Path]:
    moved = []
    for file in _files(staged):
        target = folder / file.relative_to(staged)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.chmod(file, 0o600)
        os.replace(file, target)
        moved.append(target)
    if moved:
        sync(folder)
    return moved


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _state(folder: Path) -> dict[str, Any]:
    if not (folder / STATE).is_file():
        return {}
    return dict(read_json(folder / STATE, "delete the folder to fetch everything again"))
