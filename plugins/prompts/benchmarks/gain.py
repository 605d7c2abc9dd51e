"""What GEPA gains for a policy that follows its prompt, in success on held-out tasks.

    python plugins/prompts/benchmarks/gain.py --curated DIR --state DIR --work DIR [--seeds 0 1 2]

`obedient_logs.py` writes the logs, `ingest`, `curate` and `stage warm-start` of `plugins/prompts/configs/obedient.yaml` make
the two folders. The reflection model is the table in `edits.py`, over HTTP; with a large model the command is the same.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import yaml

from flows.cli import main as tracewheel
from plugins.prompts.benchmarks.edits import EditsServer

PROFILE = "plugins/prompts/configs/obedient.yaml"


def settings(url: str, seed: int) -> dict[str, object]:
    """What an optimisation may cost."""
    prices = {"input": 1.0, "output": 4.0}
    return {
        "reflection": {"endpoint": url, "model": "table-of-edits", "prices": prices, "budget": 1.0},
        "parts": ["system"],
        "tokens": 200_000,
        "reflections": 10,
        "iterations": 10,
        "minibatch": 8,
        "validation_tasks": 24,
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--curated", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in options.seeds:
        out, file, begun = options.work / f"seed-{seed}", options.work / f"seed-{seed}.yaml", time.monotonic()
        with EditsServer() as server:
            file.write_text(yaml.safe_dump(settings(server.url, seed)))
            code = tracewheel(
                ["prompt", PROFILE, str(file), "--curated", options.curated, "--state", options.state, "--out", str(out)]
            )
        print(f"seed {seed}: exit code {code}, {time.monotonic() - begun:.0f} s", flush=True)
        rows.append((seed, json.loads((out / "report.json").read_text())))
    print("| seed | tokens | replies | accepted | training | validation | held-out | gate's interval | verdict |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    for seed, report in rows:
        gate = report["gate"]
        if gate is None:
            print(f"| {seed} | {report['tokens']:,} | {report['reflection']['asked']} | 0 | nothing better was found |")
            continue
        gains = [_greedy(report["splits"][name]["rates"]) for name in ("train", "validation", "held_out")]
        interval = f"{100 * gate['interval'][0]:+.1f} to {100 * gate['interval'][1]:+.1f}"
        print(
            f"| {seed} | {report['tokens']:,} | {report['reflection']['asked']} | {len(report['candidates']) - 1} | "
            f"{' | '.join(gains)} | {interval} | {gate['verdict']} |"
        )
        print(f"  {report['prompt']['system']}")


def _greedy(rates: dict[str, dict[str, dict[str, float]]]) -> str:
    return f"{rates['before']['greedy']['rate']:.1%} → {rates['after']['greedy']['rate']:.1%}"


if __name__ == "__main__":
    main()
