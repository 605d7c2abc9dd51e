"""Write the logs of a "deployed" agent: `python -m tracewheel_worlds.make_traces WORLD`. The same seed gives the same bytes."""

from __future__ import annotations

import argparse
from pathlib import Path

from tracewheel_worlds.assistant import logs as assistant
from tracewheel_worlds.retrieval import logs as retrieval

WORLDS = {"assistant": assistant.log_lines, "retrieval": retrieval.log_lines}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("world", choices=WORLDS)
    parser.add_argument("--out", type=Path, help="default: data/WORLD/WORLD.jsonl")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    out = arguments.out or Path("data", arguments.world, f"{arguments.world}.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(b"".join(line + b"\n" for line in WORLDS[arguments.world](arguments.seed)))
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
