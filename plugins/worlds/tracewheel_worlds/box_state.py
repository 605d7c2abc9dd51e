"""The files of a box as JSON, for states and tasks: text as text, other bytes as base64, with permissions where they matter."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from tracewheel_worlds.sandbox import BoxFile

PLAIN = 0o644
CACHES = ("__pycache__", ".cache")

# A file as JSON: its text, or an object with `text` or `base64`, and with `mode` where that is not 0644; one with `link`; or
# `{"folder": true}` for an empty folder.
StoredFile = str | dict[str, Any]


def stored_file(file: BoxFile) -> StoredFile:
    """A file as JSON."""
    if file.link:
        return {"link": file.link}
    if file.folder:
        return {"folder": True}
    try:
        text = file.content.decode()
    except UnicodeDecodeError:
        text = None
    content: dict[str, Any] = {"base64": base64.b64encode(file.content).decode()} if text is None else {"text": text}
    if file.mode != PLAIN:
        return {**content, "mode": file.mode}
    return content if text is None else text


def box_file(stored: StoredFile) -> BoxFile:
    """A file from its JSON.

    Raises:
        ValueError: it is not the JSON of a file.
    """
    if isinstance(stored, str):
        return BoxFile(stored.encode())
    if not isinstance(stored, dict):
        raise ValueError(f"a file is a text or an object, this is a {type(stored).__name__}")
    if stored == {"folder": True}:
        return BoxFile(mode=0o755, folder=True)
    mode, link, text, packed = (stored.get(name) for name in ("mode", "link", "text", "base64"))
    if sum(value is not None for value in (link, text, packed)) != 1 or stored.keys() - {"mode", "link", "text", "base64"}:
        raise ValueError("a file has one of 'text', 'base64' and 'link', and perhaps a 'mode'")
    if not all(value is None or isinstance(value, str) for value in (link, text, packed)):
        raise ValueError("'text', 'base64' and 'link' of a file are texts")
    if mode is not None and (type(mode) is not int or not 0 <= mode <= 0o777):
        raise ValueError("'mode' of a file is a number up to 511 (0o777)")
    if link:
        return BoxFile(mode=0o777, link=link)
    content = base64.b64decode(packed, validate=True) if packed is not None else (text or "").encode()
    return BoxFile(content, PLAIN if mode is None else mode)


def box_files(stored: Mapping[str, StoredFile]) -> dict[str, BoxFile]:
    """Files by path from their JSON.

    Raises:
        ValueError: one is not the JSON of a file, or its path leads out of a box; the message names it.
    """
    files = {}
    for path, file in stored.items():
        check_path(path)
        try:
            files[path] = box_file(file)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return files


def check_path(path: Any) -> None:
    """Check that a path is relative, plain and within the box.

    Raises:
        ValueError: it is not; the message says what it should be.
    """
    if not isinstance(path, str) or not path or len(path) > 200 or not path.isprintable():
        raise ValueError("a path is a text of 1 to 200 printable characters")
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or str(PurePosixPath(path)) != path or path == ".":
        raise ValueError(f"{path[:60]!r} is no plain path inside the box")


def state_bytes(files: Mapping[str, BoxFile]) -> int:
    """How many bytes files and their paths take."""
    return sum(len(path) + len(file.content) + len(file.link) for path, file in files.items())


def without_caches(files: Mapping[str, BoxFile]) -> dict[str, BoxFile]:
    """Files without the compiled ones that Python leaves, which hold times."""
    return {path: file for path, file in files.items() if not set(PurePosixPath(path).parts) & set(CACHES)}
