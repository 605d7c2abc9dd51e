"""What a run has paid for, line by line: a killed run asks for nothing twice and takes the same decisions again.

GEPA's own `run_dir` keeps a pickle, which is code; this is JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self

from tracewheel import DataError, canonical_json, parse_json


class Journal:
    """A file of entries by key, used as a context manager.

    Args:
        path: The file; it is made where there is none.
        run: What the entries depend on, as a hash.

    Raises:
        DataError: the file is another run's, or no journal.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._known = path, dict[str, Any]()
        kept = self._read(run) if path.is_file() else 0
        self._file = path.open("r+b" if path.is_file() else "w+b")
        self._file.truncate(kept)  # a line that a kill has cut
        self._file.seek(kept)
        if not kept:
            self._write({"run": run})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def get(self, key: str) -> Any:
        """The value of a key; None without one."""
        return self._known.get(key)

    def put(self, key: str, value: Any) -> None:
        """Keep a value, at once and for good."""
        self._known[key] = value
        self._write({"key": key, "value": value})

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(canonical_json(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, run: str) -> int:
        kept = 0
        for number, line in enumerate(self._path.read_bytes().splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = parse_json(line.decode())
                begins, key = entry.get("run"), entry.get("key")
            except (ValueError, AttributeError, json.JSONDecodeError) as error:
                raise DataError(f"{self._path}:{number}: no entry of a journal: {error}; delete the file") from error
            if number == 1 and begins != run:
                raise DataError(
                    f"{self._path}: was begun with other settings, tasks or another policy; delete it to begin anew, or go "
                    "back to those settings"
                )
            if number > 1:
                self._known[key] = entry["value"]
            kept += len(line)
        return kept
