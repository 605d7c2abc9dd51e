"""What each night of a month costs: ingest and curation that reuse yesterday's records, beside both made anew.

    python benchmarks/nights.py                                    # 30 nights, 10% more logs each night
    python benchmarks/nights.py --daily 400 --start 4000           # the same number of traces each night
    python benchmarks/nights.py --json benchmarks/results/nights.json

The log is the one of `benchmarks/curation.py` (attempts of the workspace's deployed agent, seed 0), a new file each night.
Each side is a work folder of its own, in which each night is the first part of `tracewheel retrain`: the snapshot of the
logs, ingest and curation, with the splits and pass rates of the night before. From `anew` everything is deleted each night
that it could reuse, except those. The digests of both curations are compared. Sizes of the sets are those of
`configs/tiny-short.yaml`. All nights are in one process, so CPU seconds are without imports, after one night to warm up.
Bytes are what a night adds to the work folder; linked files add none. No training.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from curation import ATTEMPTS, lines
from measuring import Meter, emit, machine, table

from tracewheel.core.store import remove

SIDES = ("reused", "anew")
# What a night leaves for the next in its work folder; without it, everything is made anew.
FROM_EARLIER = ("ingested.json", "ingested", "store/.reuse")
SIZES = {"train_tasks": 12, "validation_tasks": 8, "held_out_tasks": 24, "harder_tasks": 8}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--start", type=int, default=400, help="traces of the first night")
    parser.add_argument("--share", type=float, default=0.1, help="new traces of a night, of those that are there")
    parser.add_argument("--daily", type=int, help="new traces of a night, instead of a share")
    parser.add_argument("--folder", type=Path, help="where logs and outputs go (default: a temporary folder)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    nights = month(arguments)
    facts = {"start": arguments.start, "share": None if arguments.daily else arguments.share, "daily": arguments.daily}
    emit({"machine": machine(1), **facts, "nights": nights}, shown(nights), arguments.json)
    if arguments.json:
        arguments.json.with_suffix(".svg").write_text(plot(nights))


def month(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Both sides, night after night."""
    counts = [arguments.start]
    for _ in range(arguments.nights - 1):
        new = arguments.daily or int(counts[-1] * arguments.share)
        counts.append(counts[-1] + new - new % ATTEMPTS)
    nights = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        (Path(scratch) / "logs").mkdir()
        log = lines(counts[-1])
        warm_up(Path(scratch) / "warm-up")
        for night, count in enumerate(counts):
            new = count - (counts[night - 1] if night else 0)
            with (Path(scratch) / "logs" / f"night-{night:03d}.jsonl").open("wb") as file:
                file.writelines(next(log) for _ in range(new))
            found = {side: one(side, Path(scratch)) for side in SIDES}
            if len({facts["digest"] for facts in found.values()}) != 1:
                raise SystemExit(f"night {night}: the curations differ")
            nights.append({"night": night + 1, "traces": count, "new": new, **found})
            print(json.dumps(nights[-1]), file=sys.stderr)
    return nights


def warm_up(folder: Path) -> None:
    """A first night on another log, so that imports and caches are not measured."""
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "night.jsonl").write_bytes(b"".join(lines(400)))
    one("anew", folder)


def one(side: str, folder: Path) -> dict[str, Any]:
    """One night of a side."""
    import pandas  # noqa: F401 - imports are not what is measured
    import pyarrow.dataset  # noqa: F401

    from flows.intake import take_in
    from flows.opening import earlier_curation
    from tasks.engine.drivers import DirectDriver
    from tasks.engine.reading import begin_run
    from tasks.records.evidence import begins_with, remember
    from tasks.records.split_chain import earlier_splits, remember_splits, splits_begin_with
    from tasks.stages.curate import curate_tasks
    from tracewheel.config import CurationConfig, EnvironmentConfig, IngestConfig, PolicyConfig, RetrainConfig

    own = folder / side
    if side == "anew":
        for name in FROM_EARLIER:
            remove(own / name)
    already = disk_bytes(own)
    profile = RetrainConfig(
        name="nights",
        work_dir=str(own),
        policy=PolicyConfig(base="data/base"),
        environment=EnvironmentConfig(kind="workspace"),
        ingest=IngestConfig(paths=(str(folder / "logs"),)),
        curation=CurationConfig(**SIZES),
    )
    with Meter() as ingest_meter:
        run = begin_run(profile, driver=DirectDriver())
    with run.hold():
        with Meter() as taking_in:
            traces = take_in(run)
        evidence = begins_with(run, traces)
        start = {"evidence": evidence, "splits": splits_begin_with(run, traces, evidence)}
        splits, _ = earlier_splits(run, start)
        with Meter() as curate_meter:
            curated = curate_tasks(run, traces=traces, earlier=earlier_curation(run, start), splits=splits)
        remember(run, traces, curated, evidence)
        remember_splits(run, traces, curated, start["splits"])
        run.record.write("summary.json", {"champion": None})
    return {
        "ingest_cpu_s": ingest_meter.cpu_s + taking_in.cpu_s,
        "curate_cpu_s": curate_meter.cpu_s,
        "bytes": disk_bytes(own) - already,
        "traces_bytes": disk_bytes(traces.path),
        "results_bytes": disk_bytes(own / "store" / ".reuse"),
        "digest": curated.digest,
    }


def disk_bytes(folder: Path) -> int:
    """Bytes of the files in a folder; a file with several names counts once."""
    sizes = {(state.st_dev, state.st_ino): state.st_size for state in map(os.lstat, filter(Path.is_file, folder.rglob("*")))}
    return sum(sizes.values())


def shown(nights: list[dict[str, Any]]) -> str:
    """A row for every fifth night, and the sums."""
    head = ["night", "traces", "new", "ingest CPU s", "anew", "curate CPU s", "anew", "MB added", "anew", "CPU, share of anew"]
    rows = [_row(night, [night]) for night in nights if night["night"] == 1 or night["night"] % 5 == 0]
    return table(head, [*rows, _row({"night": "all", "traces": nights[-1]["traces"], "new": nights[-1]["traces"]}, nights)])


def _row(about: dict[str, Any], nights: list[dict[str, Any]]) -> list[Any]:
    def total(side: str, name: str) -> float:
        return float(sum(night[side][name] for night in nights))

    sides = [total(side, name) for name in ("ingest_cpu_s", "curate_cpu_s") for side in SIDES]
    added = [total(side, "bytes") / 1e6 for side in SIDES]
    share = (sides[0] + sides[2]) / (sides[1] + sides[3])
    return [about["night"], about["traces"], about["new"], *sides, *added, share]


def plot(nights: list[dict[str, Any]]) -> str:
    """CPU seconds and megabytes by night as SVG, reused beside anew."""
    charts = [
        _chart(
            "CPU s of ingest and curate",
            [[night[s]["ingest_cpu_s"] + night[s]["curate_cpu_s"] for night in nights] for s in SIDES],
        ),
        _chart("MB added", [[night[s]["bytes"] / 1e6 for night in nights] for s in SIDES]),
    ]
    inside = "".join(f'<g transform="translate({340 * number},0)">{chart}</g>' for number, chart in enumerate(charts))
    style = "font: 11px sans-serif; background: white"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 220" style="{style}">{inside}</svg>\n'


def _chart(title: str, series: list[list[float]]) -> str:
    highest = max(map(max, series))
    lines = []
    for values, colour, name in zip(series, ("#1f6fb2", "#c05020"), SIDES, strict=True):
        places = [
            f"{40 + 280 * number / max(1, len(values) - 1):.1f},{190 - 150 * value / highest:.1f}"
            for number, value in enumerate(values)
        ]
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(places)}"/>')
        lines.append(f'<text x="45" y="{45 + 14 * len(lines) / 2:.0f}" fill="{colour}">{name}</text>')
    axes = '<path d="M40 30V190H320" fill="none" stroke="#888"/>'
    ticks = f'<text x="2" y="44">{highest:.3g}</text><text x="30" y="190">0</text>'
    ticks += f'<text x="150" y="208">night (1 to {len(series[0])})</text>'
    return f'<text x="40" y="20">{title}</text>{axes}{ticks}{"".join(lines)}'


if __name__ == "__main__":
    main()
