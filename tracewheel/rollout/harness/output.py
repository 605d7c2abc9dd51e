"""What a program prints: the last bytes of it, however much there is."""

from __future__ import annotations

import os

CHUNK = 1 << 16
AT_ONCE = 16  # chunks that are read before others get their turn
DROPPED = "[{} bytes before this are not kept]\n"


class OutputTail:
    """The end of a stream that is read from a pipe.

    Args:
        most: How many bytes are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()
        self._read = 0

    def read(self, descriptor: int) -> bool:
        """Take what the pipe, which does not block, has now; returns False at its end."""
        for _ in range(AT_ONCE):
            try:
                chunk = os.read(descriptor, CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self._read += len(chunk)
            self._kept += chunk
            if len(self._kept) > 2 * self._most:
                del self._kept[: -self._most]
        return True

    def text(self) -> str:
        """What is kept, with a line before it where bytes were dropped; what is not UTF-8 is replaced."""
        kept = bytes(self._kept[-self._most :])
        if (dropped := self._read - len(kept)) == 0:
            return _text(kept)
        while kept and kept[0] & 0xC0 == 0x80:  # the cut went through a character
            kept, dropped = kept[1:], dropped + 1
        return DROPPED.format(dropped) + _text(kept)


def _text(read: bytes) -> str:
    return read.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
