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
LARGEST_EXPANSION = 300  # times the size of a file: logs compress to a tenth or a hundredth, zeros to a thousandth
LARGEST_SETTING = 1_000_000  # for what was read once, under whatever setting
ALWAYS_EXPANDS = 64 << 20
BATCH_BYTES = 16 << 20
EXPANDS = "expands too far"


class ExpandsError(DataError):
    """A file expands to more than it may."""


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
    """A Parquet file in batches of at most `rows` rows; memory holds one batch and a row group.

    For files of our own. `read_foreign_batches` reads those that anybody may have made.
    """
    import pyarrow.parquet

    # By default pyarrow buffers all row groups that a reader is asked for, and keeps them: the whole file in memory.
    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
        yield from file.iter_batches(rows, columns=None if columns is None else list(columns))


def most_expanded(path: Path, expansion: int = LARGEST_EXPANSION) -> int:
    """The bytes to which a file that anybody may have made may expand."""
    return max(ALWAYS_EXPANDS, expansion * path.stat().st_size)


def read_foreign_batches(path: Path, rows: int, expansion: int = LARGEST_EXPANSION) -> Iterator[pyarrow.RecordBatch]:
    """A Parquet file that anybody may have made, in batches of at most `rows` rows and some 16 MiB.

    A few bytes of Parquet may be a text in each of a million rows, or a million nulls in one. What the file says of a row
    group bounds a value of it, so a batch has as few rows as may all hold the largest.

    Raises:
        ExpandsError: its batches hold more than a file of its size may expand to; those before it were given.
    """
    import pyarrow.parquet

    left = most_expanded(path, expansion)
    refusal = ExpandsError(f"{path}: expands to more than {left} bytes")
    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            chunks = [group.column(column) for column in range(group.num_columns)]
            values = sum(chunk.num_values for chunk in chunks)
            largest = sum(chunk.total_uncompressed_size for chunk in chunks)
            if max(8 * values, largest) > left:
                raise refusal
            few = max(1, min(rows, BATCH_BYTES // max(largest, 1)))
            for batch in file.iter_batches(few, row_groups=[number]):
                left -= batch.nbytes
                if left < 0:
                    raise refusal
                yield batch


def read_columns(path: Path) -> list[str]:
    """The names of the columns of a Parquet file, or of a folder of them.

    Raises:
        DataError: the file is missing or not Parquet.
    """
    import pyarrow.dataset
    import pyarrow.parquet

    with _as_data_errors(path):
        schema = pyarrow.dataset.dataset(path).schema if path.is_dir() else pyarrow.parquet.read_schema(path)
        names: list[str] = schema.names
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
