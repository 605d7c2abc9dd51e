"""The last check of an ingest: whether a learned secret is still in the output."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from tracewheel.core.errors import SecretError
from tracewheel.core.files import read_batches
from tracewheel.traces.redaction.known_values import KnownSecrets
from tracewheel.traces.redaction.redactor import ESCAPE, encoding_of, is_made
from tracewheel.traces.redaction.unescaped import Unescaped

if TYPE_CHECKING:
    import pyarrow

ROWS_AT_ONCE = 2000


def check_stored(secrets: Mapping[str, str], parts: Iterable[Path], quarantine: Path, start: int = 0) -> None:
    """Search the output for secrets.

    Args:
        secrets: The kinds of secrets by value.
        parts: Parquet parts of traces; missing ones are skipped.
        quarantine: The quarantine file.
        start: The byte of the quarantine file to start from.

    Raises:
        SecretError: one is found. The error names its kind, and the file and line of the record.
    """
    if not secrets:
        return
    known = KnownSecrets(secrets)
    for part in parts:
        if part.exists():
            _check_part(known, part)
    _check_quarantine(known, quarantine, start)


def _check_part(known: KnownSecrets, part: Path) -> None:
    """Check a part, searching the texts of many traces at once."""
    import pyarrow

    for batch in read_batches(part, ROWS_AT_ONCE):
        texts = [column for column in batch.columns if pyarrow.types.is_string(column.type)]
        if not any(_may_hold(known, data) for column in texts for data in _bytes(column)):
            continue
        for number, row in enumerate(zip(*(column.to_pylist() for column in texts), strict=True)):
            for text in row:
                if text and _may_hold(known, text.encode()):
                    place = [batch.column(name)[number].as_py() for name in ("source_file", "source_line")]
                    _check(known, text, f"{place[0]}:{place[1]}")


def _check_quarantine(known: KnownSecrets, quarantine: Path, start: int) -> None:
    with quarantine.open("rb") as lines:
        lines.seek(start)
        for line in lines:
            record = orjson.loads(line)
            raw = base64.b64decode(record["raw_base64"]) if "raw_base64" in record else record["raw"].encode()
            for text in (raw.decode(*encoding_of(raw)), record["detail"]):
                if _may_hold(known, text.encode("utf-8", "surrogatepass")):
                    _check(known, text, f"{record['file']}:{record['line']} (in quarantine)")


def _check(known: KnownSecrets, text: str, place: str) -> None:
    found = next((item for item in known.find(Unescaped(text)) if not is_made(text, item)), None)
    if found:
        raise SecretError(
            f"{place}: still holds a secret ({found.kind}) that another record revealed; ingest everything again with --full,"
            " or allow the text in ingest.redaction.allow"
        )


def _may_hold(known: KnownSecrets, data: bytes) -> bool:
    return known.may_be_in(data) or ESCAPE.search(data) is not None


def _bytes(column: pyarrow.Array) -> Iterator[bytes]:
    """The concatenated bytes of a text column."""
    buffer = column.buffers()[2]
    if buffer is not None:
        yield buffer.to_pybytes()
