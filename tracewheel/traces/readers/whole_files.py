"""Files that are neither lines nor JSON documents; they are read as a whole, by their suffix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tracewheel.core.files import LARGEST_EXPANSION
from tracewheel.traces.json_cutter import LARGEST, Piece
from tracewheel.traces.readers.inspect_eval import SUFFIX, eval_pieces
from tracewheel.traces.readers.tracewheel import parquet_pieces

PIECES: dict[str, Callable[[Path, int, int], Iterator[Piece]]] = {".parquet": parquet_pieces, SUFFIX: eval_pieces}


def whole_file_pieces(path: Path, largest: int = LARGEST, expansion: int = LARGEST_EXPANSION) -> Iterator[Piece] | None:
    """The records of such a file; None for any other.

    Args:
        path: The file.
        largest: Bytes of the largest record; of a larger one nothing is read.
        expansion: To how many times its size the file may expand.
    """
    pieces = PIECES.get(path.suffix.lower())
    return None if pieces is None else pieces(path, largest, expansion)
