"""What differs between two outputs of a stage: the first file, record and field or tensor, and how far numbers are apart."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import digest_of, value_differences

if TYPE_CHECKING:
    import pyarrow

LONGEST = 120
ABSENT = "(absent)"  # as `value_differences` has it
IDS = ("id", "trace_id", "trajectory_id", "task_id", "key")


@dataclass(frozen=True)
class FileDifference:
    """A file of two outputs that differs.

    Attributes:
        file: Its path in the output.
        place: The first place that differs: record and field, tensor, or byte; "" where the values are the same.
        before: The value there in the first output, cut; `after` in the second.
        largest: The largest difference between two numbers in it; None where something else than a number differs.
        count: How many values differ (rows of a table, elements of tensors, fields of JSON), `of` how many where known.
        same_values: The bytes differ, and every value is the same.
    """

    file: str
    place: str = ""
    before: str = ""
    after: str = ""
    largest: float | None = None
    count: int = 0
    of: int | None = None
    same_values: bool = False

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def compare_folders(one: Path, two: Path) -> list[FileDifference]:
    """The files that differ, records and tensors before summaries; a table that lies in other parts is compared as a whole."""
    names = [_files(folder) for folder in (one, two)]
    found = []
    for name in sorted(names[0].keys() | names[1].keys()):
        first, second = names[0].get(name), names[1].get(name)
        if first is None or second is None:
            before, after = (ABSENT if paths is None else "is there" for paths in (first, second))
            found.append(FileDifference(name, "the whole file", before, after))
        elif [digest_of(path) for path in first] != [digest_of(path) for path in second]:
            found.append(_compare(name, first, second))
    return sorted(found, key=lambda difference: Path(difference.file).suffix == ".json")


def _files(folder: Path) -> dict[str, list[Path]]:
    """Each file by its path; the parts of a table in a folder `NAME.parquet/` together."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            table, separator, _ = name.partition(".parquet/")
            found.setdefault(f"{table}.parquet" if separator else name, []).append(path)
    return found


def _compare(name: str, first: list[Path], second: list[Path]) -> FileDifference:
    match Path(name).suffix:
        case ".parquet":
            return _tables(name, first, second)
        case ".safetensors":
            return _tensors(name, _safetensors(first[0]), _safetensors(second[0]))
        case ".pt":
            return _tensors(name, *(dict(_flat_tensors(_torch(path[0]))) for path in (first, second)))
        case ".json":
            return _values(name, *(json.loads(path[0].read_bytes()) for path in (first, second)))
        case ".jsonl":
            return _values(name, *([json.loads(line) for line in path[0].open("rb")] for path in (first, second)))
        case _:
            return _bytes(name, first[0].read_bytes(), second[0].read_bytes())


def _values(name: str, one: Any, two: Any) -> FileDifference:
    found = list(value_differences(one, two))
    if not found:
        return FileDifference(name, same_values=True)
    path, before, after = found[0]
    gaps = [_gap(first, second) for _, first, second in found]
    return FileDifference(name, path or "the value", _short(before), _short(after), _largest(gaps), len(found))


def _tables(name: str, first: list[Path], second: list[Path]) -> FileDifference:
    """Tables column by column; rows are compared in their order."""
    one, two = (_table(paths) for paths in (first, second))
    if one.schema.names != two.schema.names:
        strange = sorted(set(one.schema.names) ^ set(two.schema.names)) or one.schema.names
        return FileDifference(name, f"columns {', '.join(strange)}", str(one.schema.names), str(two.schema.names))
    rows = min(one.num_rows, two.num_rows)
    places: set[int] = set()
    firsts: list[tuple[int, str]] = []
    gaps: list[float | None] = []
    for column in one.schema.names:
        left, right = (table[column].slice(0, rows) for table in (one, two))
        if left.equals(right):
            continue
        changed = _changed_rows(left.to_pylist(), right.to_pylist(), gaps)
        places.update(changed)
        firsts += [(changed[0], column)] if changed else []
    if one.num_rows != two.num_rows:
        gaps.append(None)
    if firsts:
        row, column = min(firsts)
        place, before, after = _in_cell(one[column][row].as_py(), two[column][row].as_py())
        known = next((f" ({identity} {one[identity][row].as_py()})" for identity in IDS if identity in one.schema.names), "")
        where = f"row {row}{known}, {column}{place}"
        return FileDifference(name, where, before, after, _largest(gaps), len(places), max(one.num_rows, two.num_rows))
    if one.num_rows != two.num_rows:
        return FileDifference(name, f"row {rows}", f"{one.num_rows} rows", f"{two.num_rows} rows")
    return FileDifference(name, same_values=True)


def _changed_rows(left: list[Any], right: list[Any], gaps: list[float | None]) -> list[int]:
    """The rows of a column that differ; adds how far apart their values are."""
    changed = []
    for row, (before, after) in enumerate(zip(left, right, strict=True)):
        found = list(value_differences(_parsed(before), _parsed(after)))
        if found:
            changed.append(row)
            gaps += [_gap(first, second) for _, first, second in found]
    return changed


def _in_cell(before: Any, after: Any) -> tuple[str, str, str]:
    """The first place in two cells that differs, and both values."""
    path, one, two = next(value_differences(_parsed(before), _parsed(after)))
    return f" {path}" if path else "", _short(one), _short(two)


def _parsed(value: Any) -> Any:
    """A cell's value; JSON text as what it holds."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _table(paths: list[Path]) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    return pyarrow.concat_tables([pyarrow.parquet.read_table(path, partitioning=None) for path in paths])


def _safetensors(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(sorted(load_file(path).items()))


def _torch(path: Path) -> Any:
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def _flat_tensors(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Tensors and other values in a nested state, by their path."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat_tensors(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _flat_tensors(item, f"{path}[{place}]")
    else:
        yield path, value


def _tensors(name: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> FileDifference:
    import torch

    places: list[tuple[str, str, str]] = []
    gaps: list[float | None] = []
    count = total = 0
    for tensor in dict.fromkeys([*one, *two]):
        before, after = one.get(tensor, ABSENT), two.get(tensor, ABSENT)
        if not (isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor)):
            if type(before) is not type(after) or before != after:
                places.append((tensor, _short(before), _short(after)))
                gaps.append(_gap(before, after))
                count += 1
            continue
        total += before.numel()
        if before.shape != after.shape or before.dtype != after.dtype:
            places.append((tensor, f"{list(before.shape)} {before.dtype}", f"{list(after.shape)} {after.dtype}"))
            gaps.append(None)
            continue
        apart = before.double() - after.double()
        changed = (before != after) & ~(before.isnan() & after.isnan()) if before.is_floating_point() else before != after
        if bool(changed.any()):
            at = int(changed.flatten().nonzero()[0])
            one_value, other_value = (f"{value.flatten()[at].item():.9g}" for value in (before, after))
            places.append((f"{tensor} {list(before.shape)}, element {at}", one_value, other_value))
            largest = float(apart.abs().max())
            gaps.append(largest if math.isfinite(largest) else None)
            count += int(changed.sum())
    if not places:
        return FileDifference(name, same_values=True)
    return FileDifference(name, f"tensor {places[0][0]}", places[0][1], places[0][2], _largest(gaps), count, total)


def _bytes(name: str, one: bytes, two: bytes) -> FileDifference:
    at = next(
        (place for place, (left, right) in enumerate(zip(one, two, strict=False)) if left != right), min(len(one), len(two))
    )
    return FileDifference(name, f"byte {at}", repr(one[at : at + 16]), repr(two[at : at + 16]))


def _gap(before: Any, after: Any) -> float | None:
    """How far two numbers are apart; None where they are not both finite numbers."""
    numbers = [value for value in (before, after) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < 2 or not all(map(math.isfinite, numbers)):
        return None
    return abs(float(before) - float(after))


def _largest(gaps: list[float | None]) -> float | None:
    known = [gap for gap in gaps if gap is not None]
    return max(known) if known and len(known) == len(gaps) else None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
