"""Files of weights, read without trusting them: safetensors only, a header that tells the truth, finite numbers.

A pickle runs code when it is loaded. A safetensors file is a header (JSON: type, shape and place of each tensor) and numbers;
it can still lie about its sizes, and hold infinities. Numbers are looked at in blocks of `BLOCK` bytes, by their bits, so
memory does not depend on the file and half precision needs no conversion.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracewheel.core.errors import WeightsError

PICKLES = (".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth")
PICKLE_BEGINNINGS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
LONGEST_HEADER = 32 << 20
BLOCK = 8 << 20
# By safetensors' name: the unsigned type of the same width, and the bits that are all ones in infinities and not-a-numbers.
EXPONENTS = {
    "F64": (np.uint64, 0x7FF0000000000000),
    "F32": (np.uint32, 0x7F800000),
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
}


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its type (`F32`, `BF16`, …), its shape, and the first and last byte after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def refuse_pickles(folder: Path) -> None:
    """Check that a folder holds no file that runs code when it is loaded.

    Raises:
        WeightsError: it does; the message says what to do.
    """
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in PICKLES or path.is_dir():
            continue
        if path.name.startswith(("adapter_model", "pytorch_model", "model")):
            way_out = (
                "load it where it can do no harm, save it again with save_pretrained(…, safe_serialization=True), which writes "
                ".safetensors, and delete it"
            )
        else:
            way_out = "nothing here needs it: delete it"
        raise WeightsError(
            f"can hold a pickle, which runs code when it is loaded, and only safetensors are read; {way_out}", path
        )


def read_header(path: Path) -> dict[str, Stored]:
    """The tensors of a safetensors file by name, if its header agrees with the file to the last byte.

    Raises:
        WeightsError: it is no safetensors file, it is cut off, or its header lies.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            beginning = stream.read(8)
            if beginning.startswith(PICKLE_BEGINNINGS):
                raise WeightsError("is a pickle under another name, which runs code when it is loaded; delete it", path)
            length = struct.unpack("<Q", beginning)[0] if len(beginning) == 8 else size
            if length > min(size - 8, LONGEST_HEADER):
                what = f"names a header of {length:,} bytes, of a file of {size:,}"
                raise WeightsError(f"{what}: it is cut off, or no safetensors file; fetch it again", path)
            header = json.loads(stream.read(length), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"its header is not that of a safetensors file ({error}); fetch it again", path) from error
    except OSError as error:
        raise WeightsError(f"cannot be read: {error.strerror}", path) from error
    if not isinstance(header, dict):
        raise WeightsError("its header is not that of a safetensors file; fetch it again", path)
    header.pop("__metadata__", None)
    found = {name: _stored(path, name, entry) for name, entry in header.items()}
    _check_places(path, found, size - 8 - length)
    return found


def check_numbers(path: Path, tensors: dict[str, Stored]) -> None:
    """Check that all numbers of a file are finite.

    Args:
        path: The file.
        tensors: What `read_header` gave.

    Raises:
        WeightsError: a tensor holds an infinity or a not-a-number, or is cut off.
    """
    with path.open("rb") as stream:
        start = 8 + struct.unpack("<Q", stream.read(8))[0]
        for name, stored in tensors.items():
            if stored.dtype not in EXPONENTS:
                continue
            kind, exponent = EXPONENTS[stored.dtype]
            stream.seek(start + stored.begin)
            left = stored.end - stored.begin
            while left:
                block = stream.read(min(left, BLOCK))
                if not block:
                    raise WeightsError("is cut off; fetch the file again", path, name)
                bits = np.frombuffer(block, kind)
                bad = int(np.count_nonzero((bits & kind(exponent)) == kind(exponent)))
                if bad:
                    raise WeightsError(
                        f"holds {bad:,} or more numbers that are not finite; train or fetch it again", path, name
                    )
                left -= len(block)


def stamps(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change of each file in a folder."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.is_file():
                seen = path.stat()
                found.append((str(path), seen.st_size, seen.st_mtime_ns))
            else:
                found.append((str(path), -1, -1))
    return tuple(sorted(found))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object none of whose names comes twice: readers differ in which one they take."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it names {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _stored(path: Path, name: str, entry: Any) -> Stored:
    try:
        if entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"its keys are {', '.join(sorted(entry))}")
        begin, end = entry["data_offsets"]
        numbers = [*entry["shape"], begin, end]
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError("sizes and places are whole numbers from 0")
        return Stored(str(entry["dtype"]), tuple(entry["shape"]), begin, end)
    except (AttributeError, TypeError, ValueError) as error:
        raise WeightsError(
            f"its entry in the header is not that of a tensor ({error}); fetch the file again", path, name
        ) from error


def _check_places(path: Path, tensors: dict[str, Stored], size: int) -> None:
    """Check that the tensors fill the file one after the other: none overlaps another, no byte belongs to none."""
    at = 0
    for name, stored in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if stored.begin != at:
            why = (
                "overlaps another tensor" if stored.begin < at else f"leaves {stored.begin - at:,} bytes before it unexplained"
            )
            raise WeightsError(
                f"{why} (bytes {stored.begin:,} to {stored.end:,}): the header lies; fetch the file again", path, name
            )
        width = _width(stored.dtype)
        if width and stored.end - stored.begin != width * int(np.prod(stored.shape, dtype=object)):
            raise WeightsError(
                f"its shape {list(stored.shape)} does not fill bytes {stored.begin:,} to {stored.end:,}: the header lies; "
                "fetch the file again",
                path,
                name,
            )
        at = max(at, stored.end)
    if at != size:
        raise WeightsError(f"its header explains {at:,} of {size:,} bytes: it is cut off or damaged; fetch it again", path)


def _width(dtype: str) -> int:
    """Bytes of one number; 0 for types that are not looked into."""
    widths = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2}
    return (widths | {"I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8}).get(dtype, 0)
