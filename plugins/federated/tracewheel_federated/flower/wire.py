"""Messages of Flower and the files that Tracewheel reads and writes: an adapter as arrays, and one JSON text beside it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from safetensors.numpy import load_file, save_file

PYTHON = "TRACEWHEEL_FEDERATED_PYTHON"  # of the environment that Tracewheel is installed in
SETTINGS = "TRACEWHEEL_FEDERATED_SETTINGS"  # the file of the federation or the client
LONGEST = 1_000_000  # characters of JSON


def pack(text: str, adapter: Path | None) -> RecordDict:
    """What is sent: the text of an order or an answer, and an adapter's file where there is one."""
    arrays = load_file(adapter) if adapter and adapter.is_file() else {}
    named = {name: Array(values) for name, values in sorted(arrays.items())}
    return RecordDict({"adapter": ArrayRecord(named), "said": ConfigRecord({"json": text})})


def unpack(content: RecordDict, folder: Path, text: str, adapter: str) -> None:
    """Write what came into a folder, under these names.

    Raises:
        ValueError: it is not what `pack` makes.
    """
    said = content["said"]["json"]
    if not isinstance(said, str) or len(said) > LONGEST:
        raise ValueError("the message holds no text")
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: values.numpy() for name, values in content["adapter"].items()}
    if arrays:
        save_file(arrays, folder / adapter)
    (folder / text).write_text(said, encoding="utf-8")


def run(module: str, *arguments: str) -> str:
    """Run a module of Tracewheel's environment; returns what it printed.

    Raises:
        CalledProcessError: it failed; its words stand in this process' log.
    """
    command = [os.environ[PYTHON], "-m", f"tracewheel_federated.{module}", os.environ[SETTINGS], *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
