"""What a night's ingest costs: the one that continues the night before, beside an ingest of everything.

    python benchmarks/nights_ingest.py                                   # the shipped log, and 20 times as much
    python benchmarks/nights_ingest.py --traces ../shared/traces         # also real logs, cut in ten days
    python benchmarks/nights_ingest.py --json docs/nights_ingest.json

A first night, then three with 10% of it more each, appended to one file. `chain` is what `tracewheel retrain` does until the
traces are accepted (snapshot, choice of the earlier ingest, reading, store, note for the next); `anew` is an ingest of the same
logs into an empty folder. The measure is CPU seconds in this process; `bytes` are those of files that were not there before,
links left out. At the end both must hold the same traces in the same order. The larger log repeats the shipped one under
other ids and users. Deterministic; prints JSON and a table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
from measuring import Meter, emit, machine

from flows.intake import take_in
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tracewheel.config import RetrainConfig, load_config
from tracewheel.traces.ingest import ingest

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "data/traces/workspace.jsonl"
NIGHTS, SHARE, DAYS = 3, 0.1, 10
Day = list[tuple[str, bytes]]


def grown(copies: int) -> list[Day]:
    """The shipped log some times over, as a first night and nights with a tenth more: file and bytes to append."""
    shipped = SHIPPED.read_bytes().splitlines(keepends=True)
    lines = [_copy(line, number) for number in range(copies) for line in shipped]
    tenth = int(len(lines) * SHARE / (1 + NIGHTS * SHARE))
    first = len(lines) - NIGHTS * tenth
    cuts = [0, *(first + tenth * number for number in range(NIGHTS + 1))]
    return [[("log.jsonl", b"".join(lines[begin:end]))] for begin, end in itertools.pairwise(cuts)]


def _copy(line: bytes, number: int) -> bytes:
    try:
        record = json.loads(line)
    except ValueError:  # one of the damaged lines of the shipped log
        return line
    if not number or not isinstance(record, dict):
        return line
    return (
        json.dumps({**record, "id": f"{record.get('id')}-{number}", "user": f"{record.get('user')}-{number}"}).encode() + b"\n"
    )


def real(folder: Path) -> list[Day]:
    """Real logs cut in days: tau-bench's conversations by tenths, and of the other sources a file each day."""
    conversations = json.loads((folder / "tau_bench/gpt-4o-airline.tasks0-24.json").read_bytes())
    files = [file for file in sorted(folder.glob("*/*")) if file.suffix in (".json", ".jsonl", ".traj")]
    files = [file for file in files if file.parent.name != "tau_bench" and not file.name.endswith(".chatml.json")]
    days: list[Day] = []
    for day in range(DAYS):
        part = conversations[day * len(conversations) // DAYS : (day + 1) * len(conversations) // DAYS]
        lines = b"".join(json.dumps(one).encode() + b"\n" for one in part)
        days.append([(f"day-{day:02d}.jsonl", lines)])
        days[-1] += [(f"day-{day:02d}-{file.name}", file.read_bytes()) for file in files[day::DAYS]]
    return days


def measure(days: list[Day], folder: Path) -> Iterator[dict[str, Any]]:
    """The nights of both sides."""
    logs, work_dir = folder / "logs", folder / "work"
    logs.mkdir(parents=True)
    settings = [f"ingest.paths=[{logs}]", f"work_dir={work_dir}", "ingest.allow_quarantine=true"]
    config = load_config(str(ROOT / "configs/tiny-short.yaml"), [*settings, f"policy.base={ROOT / 'data/base'}"])
    for number, day in enumerate(days):
        for name, data in day:
            with (logs / name).open("ab") as file:
                file.write(data)
        before = _inodes(folder)
        chain, entry = _chain_night(config)
        new_bytes = sum(size for inode, size in _inodes(folder).items() if inode not in before)
        out = folder / f"anew-{number}"
        with Meter() as anew:
            out.mkdir()
            report = ingest(config.ingest, out)
        anew_bytes = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        yield {
            "night": number,
            "log_bytes": sum(file.stat().st_size for file in logs.iterdir()),
            "kept": report["kept"],
            "equal": _rows(entry) == _rows(out),
            "chain_cpu_s": round(chain.cpu_s, 2),
            "anew_cpu_s": round(anew.cpu_s, 2),
            "chain_bytes": new_bytes,
            "anew_bytes": anew_bytes,
        }


def _chain_night(config: RetrainConfig) -> tuple[Meter, Path]:
    with Meter() as meter:
        run = begin_run(config, driver=DirectDriver())
        with run.hold():
            entry = take_in(run)
            run.record.write("summary.json", {"gate": {}})
    return meter, entry.path


def _rows(folder: Path) -> list[dict[str, Any]]:
    return pyarrow.parquet.read_table(folder / "traces.parquet").to_pylist()


def _inodes(folder: Path) -> dict[int, int]:
    states = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return {state.st_ino: state.st_size for state in states}


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, nargs="*", default=[1, 20], help="how often the shipped log is repeated")
    parser.add_argument("--traces", type=Path, help="folder of real logs")
    parser.add_argument("--json", type=Path, help="where to write the figures, with a table beside them")
    options = parser.parse_args()
    sources = {f"shipped log x{copies}": grown(copies) for copies in options.copies}
    if options.traces:
        sources["real logs"] = real(options.traces)
    found: dict[str, Any] = {"machine": machine(1)}
    lines = [
        "| log | night | log MB | kept | CPU chain / anew | ratio | MB chain / anew | equal |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for source, days in sources.items():
        with tempfile.TemporaryDirectory(prefix="tracewheel-nights-") as folder:
            found[source] = list(measure(days, Path(folder)))
        for row in found[source]:
            lines.append(
                f"| {source} | {row['night']} | {row['log_bytes'] / 1e6:.1f} | {row['kept']}"
                f" | {row['chain_cpu_s']:.2f} / {row['anew_cpu_s']:.2f} s | {row['chain_cpu_s'] / row['anew_cpu_s']:.2f}"
                f" | {row['chain_bytes'] / 1e6:.2f} / {row['anew_bytes'] / 1e6:.2f} | {'yes' if row['equal'] else 'NO'} |"
            )
    emit(found, "\n".join(lines), options.json)


if __name__ == "__main__":
    main()
