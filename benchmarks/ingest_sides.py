"""One side of `ingest.py`, in a process of its own: prints CPU seconds, wall seconds and the peak of its memory as JSON.

python benchmarks/ingest_sides.py SIDE LOG OUT
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

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
    """Read, redact, drop duplicates, write Parquet."""
    return _ingest(log, out, redact=True)


def ingest_unredacted(log: Path, out: Path) -> int:
    """The same without redaction."""
    return _ingest(log, out, redact=False)


def _ingest(log: Path, out: Path, *, redact: bool) -> int:
    from tracewheel.config import IngestConfig, RedactionConfig
    from tracewheel.traces.ingest import ingest_new

    config = IngestConfig(paths=(str(log),), redaction=RedactionConfig(enabled=redact))
    return int(ingest_new(config, out)["added"]["read"])


# With an address, so that redaction's modules are loaded too.
WARMING = b'{"messages": [{"role": "user", "content": "to a@corp.com"}, {"role": "assistant", "content": "Sent."}]}\n'
SIDES: dict[str, Callable[[Path, Path], int]] = {
    "orjson": parse,
    "read": read,
    "ingest": ingest,
    "ingest_unredacted": ingest_unredacted,
}


def main() -> None:
    side, log, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    warm_up(side, log)
    with Meter() as meter:
        count = SIDES[side](log, out)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"traces": count, "cpu_s": meter.cpu_s, "wall_s": meter.wall_s, "peak_mib": peak}))


def warm_up(side: str, log: Path) -> None:
    """Run the side on a line, so that imports are not measured."""
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "log.jsonl"
        first.write_bytes(WARMING)
        SIDES[side](first, Path(folder) / "out")


if __name__ == "__main__":
    main()
