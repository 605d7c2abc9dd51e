"""A tiny policy that is to follow its prompt: logs, tasks and a warm start of `plugins/prompts/configs/obedient.yaml`.

    python -m plugins.prompts.benchmarks.prepare runs/prompts/obedient [--long]

It writes `obedient.jsonl`, `curated/` and `warm_start/` there, and says what the policy solves under each sentence. `--long`
trains all weights on six times as many tasks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pandas as pd

from plugins.prompts.benchmarks.obedient_logs import BASE, CURES, IDLE, RULES, log_lines
from tracewheel import CurateSections, RetrainConfig, WarmStartSections, curate, ingest, load_config, policy_of, warm_start
from tracewheel_prompts.players import LocalPlayer
from tracewheel_prompts.prompt import Prompt

PROFILE = "plugins/prompts/configs/obedient.yaml"
TASKS, ATTEMPTS = 330, 3
LONG_TASKS = 2000  # played once each
LONG = [
    "warm_start.weights=full", "learner.weights=full", "warm_start.batch_size=8", "warm_start.learning_rate=0.001",
    "warm_start.warmup_steps=50", "curation.train_tasks=1800",
]  # fmt: skip
SHOWN = 60  # validation and held-out tasks


def prepare(out: Path, long: bool, changes: list[str]) -> None:
    """Write the three."""
    begun = time.process_time()
    out.mkdir(parents=True)
    logs = out / "obedient.jsonl"
    lines = log_lines(LONG_TASKS, 1) if long else log_lines(TASKS, ATTEMPTS)
    logs.write_bytes(b"".join(line + b"\n" for line in lines))
    config = load_config(PROFILE, [f"ingest.paths=[{logs}]", *(LONG if long else []), *changes])
    (out / "curated").mkdir()
    (out / "warm_start").mkdir()
    print(ingest(config.ingest, out / "ingested")["kept"], "traces", flush=True)
    curate(CurateSections.of(config), out / "ingested", out / "curated")
    print(f"curated, {time.process_time() - begun:.0f} s of the processor", flush=True)
    figures = warm_start(WarmStartSections.of(config), out / "curated", out / "warm_start", config.warm_start.demonstrations)
    print(figures, f"{time.process_time() - begun:.0f} s of the processor", flush=True)
    show(config, out)


def show(config: RetrainConfig, out: Path) -> None:
    """Print greedy success by family under the plain prompt, with each rule, and with one that changes nothing."""
    player = LocalPlayer(config, policy_of(out / "warm_start", config.policy.base), out / "curated", 1, config.seed)
    known = pd.read_parquet(out / "curated" / "tasks.parquet")
    known = known[known["split"] == "held_out"].iloc[:SHOWN]
    families = dict(zip(known["id"], known["family"], strict=True))
    print("| prompt | " + " | ".join(CURES) + " |\n|---|" + "---:|" * len(CURES))
    for name, said in {"plain": "", **RULES, "idle": IDLE[0], "all": " ".join(RULES.values())}.items():
        folder = out / "shown" / name
        folder.mkdir(parents=True)
        player.evaluate(Prompt(system=f"{BASE} {said}".strip()), "held_out", list(families), folder)
        found = pd.read_parquet(folder / "results.parquet")
        rates = found.groupby(found["task_id"].map(families))["greedy"].mean()
        print(f"| {name} | " + " | ".join(f"{rates[family]:.0%}" for family in CURES) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--long", action="store_true", help="train all weights on six times as many tasks")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="a.b=c", help="of the profile")
    options = parser.parse_args()
    prepare(options.out, options.long, options.changes)


if __name__ == "__main__":
    main()
