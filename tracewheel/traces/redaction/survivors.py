"""The end of an ingest: secrets that one record revealed are redacted in the records that were stored before it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tracewheel.core.errors import SecretError
from tracewheel.core.files import read_batches
from tracewheel.core.types import Trace
from tracewheel.traces.counts import Counts
from tracewheel.traces.parquet import NOT_STORABLE, PartWriter, json_of
from tracewheel.traces.quarantine import Quarantined, not_storable, withheld
from tracewheel.traces.redaction.redactor import Redactor

if TYPE_CHECKING:
    import pyarrow

ROWS_AT_ONCE = 500
ROUNDS = 4
MENDED = ".mended-"


def mend_stored(redactor: Redactor, parts: Iterable[Path], quarantine: Path, start: int, counts: Counts) -> None:
    """Redact learned secrets in the output; a record that cannot be redacted goes to quarantine without its bytes.

    What is redacted may reveal more secrets, so this is repeated. After some rounds a record that still holds one is not
    redacted but put aside. Each such round leaves fewer records, so there is always an end.

    Args:
        redactor: Redacts, and knows which secrets it has learned.
        parts: Parquet parts of traces; missing ones are skipped.
        quarantine: The quarantine file.
        start: The byte of the quarantine file to start from.
        counts: What was stored; kept up to date.
    """
    parts = [part for part in parts if part.exists()]
    rounds = 0
    while redactor.look_for_learned():
        rounds += 1
        mender = _Mender(redactor, counts, withdraws=rounds > ROUNDS)
        withdrawn = [item for part in parts for item in mender.part(part)]
        mender.quarantine(quarantine, start)
        with quarantine.open("ab") as file:
            file.writelines(orjson.dumps(item.to_record(), option=orjson.OPT_APPEND_NEWLINE) for item in withdrawn)


@dataclass
class _Mender:
    """One round."""

    redactor: Redactor
    counts: Counts
    withdraws: bool

    def part(self, part: Path) -> list[Quarantined]:
        """Redact a part; return the records taken out of it. A part without learned secrets stays as it is."""
        if not any(self._may_hold(batch) for batch in read_batches(part, ROWS_AT_ONCE)):
            return []
        made = part.with_name(f"{MENDED}{part.name}")
        writer, withdrawn = PartWriter(made), []
        for batch in read_batches(part, ROWS_AT_ONCE):
            is_plain = not self._may_hold(batch)
            for row in batch.to_pylist():
                item = None if is_plain or not self._may_hold_row(row) else self._mended(row, writer)
                if item is None:
                    writer.add_row(row)
                elif isinstance(item, Quarantined):
                    withdrawn.append(item)
        writer.close()
        os.replace(made, part)
        return withdrawn

    def _mended(self, row: dict[str, Any], writer: PartWriter) -> Quarantined | bool | None:
        """Write a row without secrets, or return why it cannot be stored; None if it has none."""
        trace = Trace.from_record(row)
        try:
            redacted, found = self.redactor.trace(trace)
            if not found:
                return None
            if self.withdraws:
                raise SecretError(f"it holds {', '.join(sorted(found))}, which other records revealed")
            writer.add(redacted, json_of(redacted.messages))
        except (SecretError, *NOT_STORABLE) as error:
            self.counts.withdraw(trace)
            item = withheld(trace, error) if isinstance(error, SecretError) else not_storable(trace, error)
            self.counts.put_aside(item.reason)
            return Quarantined(self.redactor.name(item.file), item.line, item.reason, item.detail, b"", 0, item.withheld)
        self.counts.redacted += found
        return True

    def quarantine(self, quarantine: Path, start: int) -> None:
        """Redact the quarantine file from a byte on."""
        made = quarantine.with_name(f"{MENDED}{quarantine.name}")
        changed = False
        with quarantine.open("rb") as lines, made.open("wb") as file:
            left = start
            while left > 0 and (block := lines.read(min(left, 1 << 20))):
                file.write(block)
                left -= len(block)
            for line in lines:
                new = self._entry(line)
                changed = changed or new is not None
                file.write(new or line)
        if changed:
            os.replace(made, quarantine)
        else:
            made.unlink()

    def _entry(self, line: bytes) -> bytes | None:
        """An entry without secrets; None if it has none."""
        record = orjson.loads(line)
        raw = base64.b64decode(record["raw_base64"]) if "raw_base64" in record else record.get("raw", "").encode()
        item = Quarantined(
            record["file"], record["line"], record["reason"], record["detail"], raw, record["offset"], record.get("sha256", "")
        )
        item = replace(item, size=record.get("bytes", 0))
        new, found = self.redactor.quarantined(item)
        if new == item:
            return None
        if self.withdraws and raw and found:
            new = withheld(item, SecretError(f"it holds {', '.join(sorted(found))}, which other records revealed"))
        elif found:
            self.counts.redacted += found
        if new.reason != item.reason:
            self.counts.put_aside(new.reason, instead_of=item.reason)
        return orjson.dumps(new.to_record(), option=orjson.OPT_APPEND_NEWLINE)

    def _may_hold(self, batch: pyarrow.RecordBatch) -> bool:
        import pyarrow

        texts = [column for column in batch.columns if pyarrow.types.is_string(column.type)]
        return any(self.redactor.may_hold_learned(data) for column in texts for data in _bytes(column))

    def _may_hold_row(self, row: dict[str, Any]) -> bool:
        texts = (value for value in row.values() if isinstance(value, str))
        return any(self.redactor.may_hold_learned(text.encode("utf-8", "surrogatepass")) for text in texts)


def _bytes(column: pyarrow.Array) -> Iterator[bytes]:
    """The concatenated bytes of a text column."""
    buffer = column.buffers()[2]
    if buffer is not None:
        yield buffer.to_pybytes()
