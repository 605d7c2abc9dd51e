"""Write the logs of the "deployed" workspace agent: `python data/make_traces.py`. The same seed gives the same bytes."""

from __future__ import annotations

import argparse
from pathlib import Path

from tracewheel.demo.workspace_logs import log_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/traces/workspace.jsonl"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_bytes(b"".join(line + b"\n" for line in log_lines(arguments.seed)))
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
