"""Reads the bytes of a log that a trace was made of."""

from pathlib import Path

from tracewheel.core.files import LARGEST_SETTING
from tracewheel.traces.compression import BLOCK, ByteStream, is_compressed
from tracewheel.traces.log_file import BYTE_ORDER_MARK
from tracewheel.traces.places import Stretch


def read_stretch(path: Path, stretch: Stretch) -> bytes:
    """The bytes of a stretch, of a compressed file uncompressed.

    Raises:
        OSError: the file cannot be read.
    """
    with ByteStream(path, 0 if is_compressed(path) else stretch.offset, expansion=LARGEST_SETTING) as stream:
        left = stretch.offset if is_compressed(path) else 0
        while left and (block := stream.read(min(left, BLOCK))):
            left -= len(block)
        found = b""
        while len(found) < stretch.size and (block := stream.read(stretch.size - len(found))):
            found += block
            if stretch.offset == 0 and found.startswith(BYTE_ORDER_MARK):
                found = found.removeprefix(BYTE_ORDER_MARK)  # which readers do not count
    return found
