"""One side of `ingest.py`, in a process of its own: prints CPU and wall seconds and the peak of its memory as JSON.

A second process of the ingest counts in both; the peaks are added. The side `slowest` prints shares instead.

python benchmarks/ingest_sides.py SIDE LOG OUT
"""

from __future__ import annotations

import cProfile
import json
import pstats
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import Meter


def parse(log: Path, out: Path) -> int:
    """The reference: orjson parses each line, and the value is discarded."""
    import orjson

    count = 0
    for path in _files(log):
        with path.open("rb") as file:
            for line in [file.read()] if path.suffix == ".json" else file:
                orjson.loads(line)
                count += 1
    return count


def _files(log: Path) -> list[Path]:
    return sorted(path for path in log.rglob("*") if path.is_file()) if log.is_dir() else [log]


def read(log: Path, out: Path) -> int:
    """Parse, find the format, check roles, calls and replies, and make a Trace."""
    from tracewheel.traces.readers.reading import read_traces

    count = 0
    for _ in read_traces({path.name: path for path in _files(log)}):
        count += 1
    return count


def ingest(log: Path, out: Path) -> int:
    """Read, redact, drop duplicates, write Parquet, in one process."""
    return _ingest(log, out, redact=True)


def ingest_two(log: Path, out: Path) -> int:
    """The same with a second process, whose start counts."""
    return _ingest(log, out, redact=True, large=0)


def ingest_unredacted(log: Path, out: Path) -> int:
    """The same without redaction."""
    return _ingest(log, out, redact=False)


def _ingest(log: Path, out: Path, *, redact: bool, large: int = sys.maxsize) -> int:
    from tracewheel.config import IngestConfig, RedactionConfig
    from tracewheel.traces import ingest

    ingest.LARGE = large
    config = IngestConfig(paths=(str(log),), redaction=RedactionConfig(enabled=redact))
    return int(ingest.ingest_new(config, out)["added"]["read"])


def slowest(log: Path, out: Path) -> dict[str, Any]:
    """The detector and the reader that take most of an ingest's time, under a profile, which slows short calls most."""
    from tracewheel.traces.readers import openai
    from tracewheel.traces.readers.log_reader import built_in_readers
    from tracewheel.traces.redaction.detection import Detection

    by_kind: Counter[str] = Counter()
    matches = Detection._matches

    def timed(self: Any, detector: Any, *rest: Any) -> Any:
        begin = time.perf_counter()
        found = list(matches(self, detector, *rest))
        by_kind[detector.kind] += time.perf_counter() - begin
        return found

    Detection._matches = timed
    profile = cProfile.Profile()
    profile.runcall(ingest, log, out)
    stats = pstats.Stats(profile)
    seconds = {key: entry[3] for key, entry in stats.stats.items()}
    readers: dict[tuple[str, int, str], list[str]] = {}
    for reader in built_in_readers("auto"):
        for function in (reader.recognises, reader.read, reader.parts, reader.split):
            code = getattr(getattr(function, "func", function), "__code__", None)
            if code:
                readers.setdefault((code.co_filename, code.co_firstlineno, code.co_name), []).append(reader.name)
    code = openai.read_usual.__code__
    readers[code.co_filename, code.co_firstlineno, code.co_name] = [openai.FORMAT]
    by_reader: Counter[str] = Counter()
    for key, names in readers.items():
        by_reader[names[0] if len({*names}) == 1 else f"{len({*names})} formats that are mapped"] += seconds.get(key, 0.0)
    signs = sum(at for (file, _, name), at in seconds.items() if name == "found" and file.endswith("detector.py"))
    found = {"detector": by_kind.most_common(1), "reader": by_reader.most_common(1), "signs": [("the search for signs", signs)]}
    return {part: [name, at / stats.total_tt] for part, most in found.items() for name, at in most if at}


# With an address, so that redaction's modules are loaded too.
WARMING = b'{"messages": [{"role": "user", "content": "to a@corp.com"}, {"role": "assistant", "content": "Sent."}]}\n'
SIDES: dict[str, Callable[[Path, Path], int]] = {
    "orjson": parse,
    "read": read,
    "ingest": ingest,
    "ingest_two": ingest_two,
    "ingest_unredacted": ingest_unredacted,
}


def main() -> None:
    side, log, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    warm_up("ingest" if side == "slowest" else side, log)
    if side == "slowest":
        print(json.dumps(slowest(log, out)))
        return
    with Meter() as meter:
        count = SIDES[side](log, out)
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    print(json.dumps({"traces": count, "cpu_s": meter.cpu_s, "wall_s": meter.wall_s, "peak_mib": peak}))


def warm_up(side: str, log: Path) -> None:
    """Run the side on a line, so that imports are not measured."""
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "log.jsonl"
        first.write_bytes(WARMING)
        SIDES[side](first, Path(folder) / "out")


if __name__ == "__main__":
    main()
