"""Write the logs of a "deployed" agent: `python data/make_traces.py [WORLD]`. The same seed gives the same bytes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import order_desk_logs
import refund_desk_logs
import workspace_logs

WORLDS: dict[str, tuple[Callable[[int], Iterator[bytes]], Path]] = {
    "workspace": (workspace_logs.log_lines, Path("data/traces/workspace.jsonl")),
    "order_desk": (order_desk_logs.log_lines, Path("data/smollm2/order_desk.jsonl")),
    "noisy_order_desk": (partial(order_desk_logs.log_lines, noisy=True), Path("data/smollm2/noisy_order_desk.jsonl")),
    "refund_desk": (refund_desk_logs.log_lines, Path("data/refund_desk/refund_desk.jsonl")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("world", nargs="?", choices=WORLDS, default="workspace")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    log_lines, usual = WORLDS[arguments.world]
    out = arguments.out or usual
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(b"".join(line + b"\n" for line in log_lines(arguments.seed)))
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
