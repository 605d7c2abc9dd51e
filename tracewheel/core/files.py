"""JSON and Parquet files, with errors that name the file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tracewheel.core.errors import DataError
from tracewheel.core.types import Record

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow

R = TypeVar("R", bound=Record)


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted keys: equal values give equal bytes."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path, hint: str = "") -> Any:
    """Read JSON.

    Args:
        path: The file.
        hint: What a person does about a damaged file.

    Raises:
        DataError: the file is missing or not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}{hint and f'; {hint}'}") from error


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Write records as Parquet, one row each."""
    import pandas as pd

    pd.DataFrame([record.to_record() for record in records]).to_parquet(path, index=False)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a Parquet file, or only some of its columns.

    Raises:
        DataError: the file is missing or not Parquet.
    """
    import pandas as pd

    with _as_data_errors(path):
        return pd.read_parquet(path, columns=None if columns is None else list(columns))


def read_batches(path: Path, rows: int, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
    """A Parquet file in batches of at most `rows` rows; memory holds one batch and a row group."""
    import pyarrow.parquet

    # By default pyarrow buffers all row groups that a reader is asked for, and keeps them: the whole file in memory.
    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
        yield from file.iter_batches(rows, columns=None if columns is None else list(columns))


def read_columns(path: Path) -> list[str]:
    """The names of a Parquet file's columns.

    Raises:
        DataError: the file is missing or not Parquet.
    """
    import pyarrow.parquet

    with _as_data_errors(path):
        names: list[str] = pyarrow.parquet.read_schema(path).names
        return names


@contextlib.contextmanager
def _as_data_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file: {error}") from error


def read_records(path: Path, kind: type[R]) -> list[R]:
    """Read records of one kind from Parquet; other columns are ignored.

    Raises:
        DataError: the file is missing, not Parquet, or lacks a column of the kind.
    """
    table = read_table(path)
    try:
        return [kind.from_record({str(name): value for name, value in row.items()}) for row in table.to_dict("records")]
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: its rows are not {kind.__name__} records: {error}") from error
