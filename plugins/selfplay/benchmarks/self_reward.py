"""Self-reward with and without its guards on the tiny demo, over seeds.

    python plugins/selfplay/benchmarks/self_reward.py --seeds 0 1 2 3 4

Each seed has a warm start of its own, from the same curated logs. Writes `results/self_reward.json`, what the command
itself wrote in each run, and the table `results/self_reward.md`. Runs that are in the file are not played again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from stage_loop import curated_logs, warm_started

from tracewheel import load_config

ROOT = Path(__file__).parents[3]
PROFILE = str(ROOT / "configs/tiny.yaml")
SETTINGS = (
    "training.iterations=6",
    "training.tasks_per_iteration=12",
    "rollout.group_size=4",
    "rollout.exploration.environment_args={}",
    "evaluation.samples=1",
    "evaluation.pass_at=[1]",
    "threads=1",
    "gate.gates_per_year=1",
)
HEADINGS = (
    "seed", "guards", "rounds", "share of the majority", "true success of the labelled tasks by round",
    "held out, greedy / sampled", "gate", "beside the start, in points",
)  # fmt: skip
RESULTS = Path(__file__).parent / "results" / "self_reward.json"


def played(seed: int, unguarded: bool, work: Path) -> dict[str, Any]:
    """What the command writes, without folders."""
    settings = [*SETTINGS, f"seed={seed}"]
    config = load_config(PROFILE, settings)
    curated = curated_logs(config, work / "curated")
    start = warm_started(config, curated, work / f"seed-{seed}" / "warm")
    out = work / f"seed-{seed}" / ("unguarded" if unguarded else "guarded")
    words = ["self-reward", PROFILE, "--curated", str(curated), "--state", str(start), "--out", str(out)]
    words += [word for setting in settings for word in ("--set", setting)] + ["--unguarded"] * unguarded
    subprocess.run([Path(sys.executable).with_name("tracewheel"), *words], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    found = json.loads((out / "result.json").read_text())
    gate = json.loads((out / "held_out" / "gate" / "gate.json").read_text())
    told = {name: found[name] for name in ("stopped", "verdict", "rates", "rounds")}
    return told | {name: gate[name] for name in ("difference", "interval")}


def page(known: dict[str, Any]) -> str:
    """The table of the runs."""
    rows, reasons = [f"| {' | '.join(HEADINGS)} |", "|" + "---|" * len(HEADINGS)], []
    for name, run in sorted(known.items()):
        seed, guards = name.split(", ")
        rounds = run["rounds"]
        ended = f"{len(rounds) - 1} kept, stopped in {len(rounds)}" if run["stopped"] else f"{len(rounds)}"
        shares = f"{rounds[0]['share']:.0%} to {rounds[-1]['share']:.0%}"
        truths = ", ".join(f"{100 * each['true_success']:.0f}" for each in rounds) + "%"
        before, after = (" / ".join(f"{100 * rate:.1f}" for rate in run["rates"][side]) for side in ("start", "self-reward"))
        low, high = (100 * end for end in run["interval"])
        gain = f"{100 * run['difference']:+.1f} ({low:+.1f} to {high:+.1f})"
        rows.append(f"| {seed} | {guards} | {ended} | {shares} | {truths} | {before} to {after} | {run['verdict']} | {gain} |")
        if run["stopped"]:
            reasons.append(f"- Seed {seed} stopped: {run['stopped']}.")
    head = [
        "# Self-reward on the tiny demo",
        "",
        "Written by `python plugins/selfplay/benchmarks/self_reward.py`; it says how.",
    ]
    return "\n".join([*head, "", *rows, "", *reasons, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--work", type=Path, default=Path("runs/self-reward"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    known: dict[str, Any] = json.loads(options.out.read_text()) if options.out.is_file() else {}
    for seed in options.seeds:
        for guards in ("guarded", "unguarded"):
            name = f"{seed}, {guards}"
            if name not in known:
                known[name] = played(seed, guards == "unguarded", options.work)
                options.out.write_text(json.dumps(known, indent=1) + "\n")
                print(name, known[name]["verdict"], file=sys.stderr, flush=True)
    options.out.with_suffix(".md").write_text(page(known))
    print(page(known))


if __name__ == "__main__":
    main()
