"""JSON and Parquet files, with errors that name the file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

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


def write_records(path: Path, records: Sequence[R], kind: type[R] | None = None) -> None:
    """Write records of one kind as Parquet, one row each; where there may be none, name the kind."""
    import pandas as pd

    write_frame(path, pd.DataFrame([record.to_record() for record in records]), schema_of(kind or type(records[0])))


def write_frame(path: Path, frame: pd.DataFrame, schema: pyarrow.Schema) -> None:
    """Write a frame as Parquet. Without rows, which tell pandas the types, the columns are those of `schema`."""
    import pyarrow.parquet

    if len(frame):
        frame.to_parquet(path, index=False)
    else:
        pyarrow.parquet.write_table(schema.empty_table(), path)


def schema_of(kind: type[Record]) -> pyarrow.Schema:
    """The columns that a file of such records always has; what is no number is text."""
    import pyarrow as pa

    hints, text = get_type_hints(kind), kind.JSON_FIELDS
    names = [spec.name for spec in fields(kind) if spec.name not in kind.OPTIONAL_FIELDS]  # type: ignore[arg-type]
    return pa.schema([(name, pa.string() if name in text else _type_of(hints[name])) for name in names])


def _type_of(hint: Any) -> pyarrow.DataType:
    import pyarrow as pa

    some = next((one for one in get_args(hint) if one is not NoneType), None) if NoneType in get_args(hint) else hint
    if get_origin(some) is list:
        return pa.list_(_type_of(get_args(some)[0]))
    numbers: dict[Any, pyarrow.DataType] = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return numbers.get(some, pa.string())


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a Parquet file, or only some of its columns.

    Raises:
        DataError: the file is missing or not Parquet.
    """
    import pandas as pd

    with _as_data_errors(path):
        table = pd.read_parquet(path, columns=None if columns is None or not read_columns(path) else list(columns))
        # Earlier versions wrote a table without rows without columns, too.
        return table if columns is None or len(table.columns) else pd.DataFrame(columns=list(columns))


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
