"""A tiny policy that follows its prompt: logs, tasks and a warm start of `plugins/prompts/configs/obedient.yaml`.

    python plugins/prompts/benchmarks/prepare.py runs/prompts/obedient

It writes `obedient.jsonl`, `curated/` and `warm_start/` there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from plugins.prompts.benchmarks.obedient_logs import log_lines
from tracewheel import CurateSections, WarmStartSections, curate, ingest, load_config, warm_start

PROFILE = "plugins/prompts/configs/obedient.yaml"
TASKS, ATTEMPTS = 330, 3


def prepare(out: Path) -> None:
    """Write the three."""
    begun = time.process_time()
    out.mkdir(parents=True)
    logs = out / "obedient.jsonl"
    logs.write_bytes(b"".join(line + b"\n" for line in log_lines(TASKS, ATTEMPTS)))
    config = load_config(PROFILE, [f"ingest.paths=[{logs}]"])
    (out / "curated").mkdir()
    (out / "warm_start").mkdir()
    print(ingest(config.ingest, out / "ingested")["kept"], "traces", flush=True)
    curate(CurateSections.of(config), out / "ingested", out / "curated")
    print(f"curated, {time.process_time() - begun:.0f} s of the processor", flush=True)
    figures = warm_start(WarmStartSections.of(config), out / "curated", out / "warm_start", config.warm_start.demonstrations)
    print(figures, f"{time.process_time() - begun:.0f} s of the processor", flush=True)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
