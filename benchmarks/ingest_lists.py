"""Cutting lists of JSON into their elements: our cutter against ijson on the same files.

    python benchmarks/ingest_lists.py                                    # 20k traces, one list in four layouts
    python benchmarks/ingest_lists.py --json docs/ingest_lists.json

`ours` gives each element as bytes with its line and offset, parsed by orjson; `ijson` gives values alone (`items`, the C
backend), as floats instead of `Decimal`. A list is written in one line, one element a line, or indented; with shuffled keys
the cutter cannot guess the next element's beginning, and decodes them or matches brackets. Each side is a process; sides are
interleaved, and the median of CPU seconds counts, without imports. Then the output of each side for short lists that are
unusual or damaged. Needs ijson, which is no dependency of the package. Prints JSON and tables.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ingest_workload import lines
from measuring import Meter, emit, environment, machine, table

LAYOUTS = ("one line", "element a line", "indented", "one line, keys shuffled")
CASES = {
    "places and bytes": b'[{"a":  1},\n {"a":2}]',
    "integer of 30 digits": b'[{"a": 123456789012345678901234567890}, {"a": 2}]',
    "1e400": b'[{"a": 1e400}, {"a": 2}]',
    "NaN": b'[{"a": NaN}, {"a": 2}]',
    "key twice": b'[{"a": 1, "a": 2}, {"a": 3}]',
    "half of a surrogate pair": b'[{"a": "\\ud83d"}, {"a": 2}]',
    "not UTF-8": b'[{"a": "\xff"}, {"a": 2}]',
    "element damaged": b'[{"a": 1}, {"a": [2}, {"a": 3}]',
    "list cut off": b'[{"a": 1}, {"a": 2}, {"a"',
}


def ours(log: Path) -> Iterator[Any]:
    """The value, the bytes and the place of each element."""
    import orjson

    from tracewheel.traces.json_cutter import JsonCutter

    with log.open("rb") as file:
        for piece in JsonCutter(file.read).pieces():
            yield orjson.loads(piece.raw)


def with_ijson(log: Path) -> Iterator[Any]:
    """The value of each element."""
    import ijson.backends.yajl2_c as backend

    with log.open("rb") as file:
        yield from backend.items(file, "item", use_float=True, buf_size=1 << 20)


SIDES: dict[str, Callable[[Path], Iterator[Any]]] = {"ours": ours, "ijson": with_ijson}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=20_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "LOG"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        measure(arguments.side[0], Path(arguments.side[1]))
        return
    speed = {layout: compare(layout, arguments) for layout in LAYOUTS}
    cases = {name: {side: shown(side, data) for side in SIDES} for name, data in CASES.items()}
    result = {"machine": machine(1), "speed": speed, "cases": cases}
    emit(result, tables(speed, cases), arguments.json)


def compare(layout: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both sides on one file."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        write_list(log, arguments.traces, layout)
        runs: dict[str, list[dict[str, Any]]] = {}
        for _ in range(arguments.repetitions):
            for side in SIDES:
                command = [sys.executable, __file__, "--side", side, str(log)]
                done = subprocess.run(command, env=environment(1), capture_output=True, text=True, check=True)
                runs.setdefault(side, []).append(json.loads(done.stdout))
        found = {side: {key: statistics.median(one[key] for one in these) for key in these[0]} for side, these in runs.items()}
        return {"bytes": log.stat().st_size, "sides": found}


def write_list(path: Path, traces: int, layout: str) -> None:
    """Write traces as one JSON list."""
    opening, between, closing = ("[", ", ", "]\n") if layout.startswith("one line") else ("[\n", ",\n", "\n]\n")
    drawn = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        file.write(opening)
        for number, line in enumerate(lines(traces)):
            record = json.loads(line)
            if layout.endswith("shuffled"):
                record = dict(drawn.sample(list(record.items()), len(record)))
            file.write(between * bool(number) + json.dumps(record, indent=2 if layout == "indented" else None))
        file.write(closing)


def measure(side: str, log: Path) -> None:
    """One side in this process."""
    with tempfile.TemporaryDirectory() as folder:  # excludes imports from the measurement
        warm_up = Path(folder) / log.name
        warm_up.write_bytes(b'[{"a": 1}, {"a": 2}]')
        list(SIDES[side](warm_up))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Meter() as meter:
        count = sum(1 for _ in SIDES[side](log))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"traces": count, "cpu_s": meter.cpu_s, "added_mib": (peak - before) / 1024}))


def shown(side: str, data: bytes) -> str:
    """The output of a side for a short list."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        log.write_bytes(data)
        return shown_pieces(log) if side == "ours" else shown_values(log)


def shown_pieces(log: Path) -> str:
    """Each element as the readers take it: its place, and its value or the reason for quarantine."""
    from tracewheel.traces.json_cutter import JsonCutter
    from tracewheel.traces.quarantine import InvalidRecord
    from tracewheel.traces.readers.parsing import parse_piece

    found = []
    with log.open("rb") as file:
        for piece in JsonCutter(file.read).pieces():
            try:
                value = repr(parse_piece(piece))
            except InvalidRecord as error:
                value = error.reason
            found.append(f"{piece.line}:{piece.offset} {value}")
    return "; ".join(found)


def shown_values(log: Path) -> str:
    """The values, and the error that ends them."""
    found = []
    try:
        for value in with_ijson(log):
            found.append(repr(value))
    except Exception as error:
        found.append(f"{type(error).__name__}, and no more")
    return "; ".join(found)


def tables(speed: dict[str, Any], cases: dict[str, dict[str, str]]) -> str:
    """Speed by layout, then the unusual lists."""
    rows: list[list[Any]] = []
    for layout, size in speed.items():
        base = size["sides"]["ours"]["cpu_s"]
        for side, figures in size["sides"].items():
            seconds = figures["cpu_s"]
            rows.append([layout, side, size["bytes"] / seconds / 1e6, seconds / base, figures["added_mib"]])
    text = table(["layout", "side", "MB/s", "CPU, ours = 1", "added MiB"], rows)
    return f"{text}\n\n{table(['list', *SIDES], [[name, *made.values()] for name, made in cases.items()])}"


if __name__ == "__main__":
    main()
