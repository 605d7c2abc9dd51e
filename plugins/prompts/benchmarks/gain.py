"""What GEPA gains for a policy that follows its prompt, in success on held-out tasks.

    python -m plugins.prompts.benchmarks.prepare runs/prompts/obedient
    python -m plugins.prompts.benchmarks.gain runs/prompts/obedient --work runs/prompts/gain [--hosted] [--seeds 0 1 2]

The policy is the tiny one that `prepare.py` has trained, or with `--hosted` the scripted agent of `obedient_logs.py`. The
reflection model is the table in `edits.py`. Both are asked over HTTP; with a large model the command is the same.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import yaml

from flows.cli import main as tracewheel
from plugins.prompts.benchmarks.edits import ChatEndpoint, edit
from plugins.prompts.benchmarks.obedient_logs import obedient
from tracewheel import load_tasks

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
    parser.add_argument("prepared", type=Path, help="the output of prepare.py")
    parser.add_argument("--hosted", action="store_true", help="the scripted agent behind an endpoint is the policy")
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in options.seeds:
        out, file, begun = options.work / f"seed-{seed}", options.work / f"seed-{seed}.yaml", time.monotonic()
        curated = options.prepared / "curated"
        tasks = [task for split in ("train", "validation", "held_out") for task in load_tasks(curated, split)]
        with ChatEndpoint(edit) as table, ChatEndpoint(obedient(tasks)) as hosted:
            file.write_text(yaml.safe_dump(settings(table.url, seed)))
            baseline = json.dumps({"endpoint": hosted.url, "model": "obedient", "max_turn_tokens": 100})
            player = ["--baseline", "--set", f"baseline={baseline}"]
            words = player if options.hosted else ["--state", str(options.prepared / "warm_start")]
            code = tracewheel(["prompt", PROFILE, str(file), "--curated", str(curated), *words, "--out", str(out)])
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
