"""The time from the same warm start to a fixed success rate: ours against TRL's GRPOTrainer.

    python benchmarks/time_to_success.py --seeds 0 1 2
    python benchmarks/time_to_success.py --sides trl --seeds 0 --split validation --try    # settings of TRL's to choose from
    python benchmarks/time_to_success.py --profile configs/smollm2.yaml --threads 2 --target 0.6 --longest 20000 --seeds 0

For each seed the logs are curated and the warm start is trained once; both sides continue from it, on the
same tasks, with our verifier as the reward and a LoRA adapter of the same shape. After every 256 episodes (`--every`) the
policy is evaluated by our evaluator, greedy and sampled on all tasks of the split, or on `--tasks` of them with the same
shares of families and tiers; the time of that is taken off, on both sides. The first evaluation whose mean of greedy
and sampled success reaches `--target` ends a side. TRL stops at `--limit` times our CPU seconds; the ratio is then reported as
a lower bound.

`time_to_success_trl.py` describes how TRL is set up to do its best; `--try` runs the settings to choose from. `--beside` takes
what `--json` wrote in earlier calls, for sides or seeds that ran one at a time.
`--set` changes the profile for both sides. SmolLM2's needs `rubric.flawed_penalty=0`: TRL's knows the task's verifier alone.
A change to logs, curation or warm start needs another `--work`, which keeps them.
Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table
from methods import ratio_over_seeds
from time_to_success_sides import EPISODES

HERE = Path(__file__).parent
COMPARABLE = ("profile", "changes", "split", "tasks", "every", "target")  # the same for all runs of a table
# Candidate settings for TRL by the beginning of the profile's name: `--try` runs them, `--trl-setting` names the best of them.
# The real model takes passes of 8 episodes: its 49,152 logits a token in float32, for 128 episodes at once, exceed 24 GiB.
TRIALS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "64 episodes a step, lr 1e-3": {"episodes": 64, "steps": 1, "learning_rate": 1e-3},
        "64 episodes a step, lr 2e-3": {"episodes": 64, "steps": 1, "learning_rate": 2e-3},
        "64 episodes a step, lr 5e-4": {"episodes": 64, "steps": 1, "learning_rate": 5e-4},
        "256 episodes, 4 steps, lr 1e-3": {"episodes": 256, "steps": 4, "learning_rate": 1e-3},
        "256 episodes, 4 steps, lr 2e-3": {"episodes": 256, "steps": 4, "learning_rate": 2e-3},
        "64 episodes a step, lr 1e-3, KL 0.01": {"episodes": 64, "steps": 1, "learning_rate": 1e-3, "beta": 0.01},
        "64 episodes a step, lr 1e-3, temperature 1": {"episodes": 64, "steps": 1, "learning_rate": 1e-3, "temperature": 1.0},
        "64 episodes a step, lr 1e-3, loss grpo": {"episodes": 64, "steps": 1, "learning_rate": 1e-3, "loss_type": "grpo"},
    },
    "smollm2": {
        "128 episodes a step, lr 1e-4": {"episodes": 128, "steps": 1, "micro_batch": 8, "learning_rate": 1e-4},
        "256 episodes, 4 steps, lr 1e-4": {"episodes": 256, "steps": 4, "micro_batch": 8, "learning_rate": 1e-4},
        "256 episodes, 4 steps, lr 2e-4": {"episodes": 256, "steps": 4, "micro_batch": 8, "learning_rate": 2e-4},
        # The first and the third lost success in their first 256 episodes: these go more slowly.
        "256 episodes, 4 steps, lr 5e-5": {"episodes": 256, "steps": 4, "micro_batch": 8, "learning_rate": 5e-5},
        "128 episodes a step, lr 3e-5": {"episodes": 128, "steps": 1, "micro_batch": 8, "learning_rate": 3e-5},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="configs/tiny.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sides", nargs="+", choices=["ours", "trl"], default=["ours", "trl"])
    parser.add_argument("--split", choices=["validation", "held_out"], default="held_out")
    parser.add_argument("--target", type=float, default=0.85, help="mean of greedy and sampled success")
    parser.add_argument("--limit", type=float, default=6.0, help="TRL stops at so many times our CPU seconds")
    parser.add_argument("--longest", type=float, default=600.0, help="CPU seconds, where ours were not measured")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--try", dest="trials", action="store_true", help="TRL in every setting of TRIALS")
    parser.add_argument("--trl-setting", metavar="NAME", help="one of TRIALS; default: the first of the profile")
    parser.add_argument("--every", type=int, default=EPISODES, help="episodes between two evaluations")
    parser.add_argument("--tasks", type=int, help="tasks of an evaluation; default: all of the split")
    parser.add_argument("--set", dest="changes", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the profile")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-time"))
    parser.add_argument(
        "--beside", type=Path, nargs="+", default=[], metavar="JSON", help="runs of earlier calls to compare with"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    trials = next((each for start, each in TRIALS.items() if Path(arguments.profile).stem.startswith(start)), {})
    names = list(trials) if arguments.trials else [arguments.trl_setting or next(iter(trials), "")]
    if not set(names) <= set(trials):
        parser.error(f"--trl-setting: {arguments.profile} has the settings {', '.join(trials) or 'none'}")
    runs = [run for path in arguments.beside for run in earlier(path, arguments)]
    for seed in arguments.seeds:
        _child("sides", seed, {}, arguments)
        ours = next((run for run in runs if (run["side"], run["seed"]) == ("ours", seed)), None)
        if "ours" in arguments.sides:
            ours = _side("ours", "", seed, {"limit": arguments.longest}, arguments)
            runs.append(ours)
        if "trl" in arguments.sides:
            limit = arguments.limit * ours["cpu_s"] if ours else arguments.longest
            runs += [_side("trl", name, seed, {"limit": limit} | trials[name], arguments) for name in names]
    result = {
        "machine": machine(arguments.threads),
        **{name: getattr(arguments, name) for name in COMPARABLE},
        "trl_settings": {name: trials[name] for name in trials if any(run["setting"] == name for run in runs)},
        "runs": runs,
        "ratios": ratios(runs),
    }
    emit(result, tables(result), arguments.json)


def earlier(path: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The runs of an earlier call, which had the same settings, number of threads and kind of machine."""
    result, here = json.loads(path.read_text()), machine(arguments.threads)
    differ = [name for name in COMPARABLE if result.get(name) != getattr(arguments, name)]
    differ += [name for name in ("cpu", "cores", "threads") if result.get("machine", {}).get(name) != here[name]]
    if differ:
        raise SystemExit(f"--beside {path}: has other {', '.join(differ)} than this call")
    runs: list[dict[str, Any]] = result["runs"]
    return runs


def _side(side: str, name: str, seed: int, setting: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    run = {"side": side, "setting": name, "seed": seed, "limit": setting["limit"]}
    run |= json.loads(_child(side, seed, setting, arguments))
    print(json.dumps(run), file=sys.stderr, flush=True)
    return run


def _child(script: str, seed: int, setting: dict[str, Any], arguments: argparse.Namespace) -> str:
    """Run a script of this benchmark in a process of its own, whose points of the curve go to stderr. Returns its last line."""
    setting = {"seed": seed, **{name: getattr(arguments, name) for name in ("threads", *COMPARABLE)}, **setting}
    start = arguments.work / f"{Path(arguments.profile).stem}-{seed}"
    command = [sys.executable, str(HERE / f"time_to_success_{script}.py"), str(start), json.dumps(setting)]
    done = subprocess.run(command, env=environment(arguments.threads), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    return (done.stdout.strip().splitlines() or [""])[-1]


def ratios(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """TRL's seconds over ours, by seed; a lower bound where TRL did not reach the target."""
    ours = {run["seed"]: run for run in runs if run["side"] == "ours" and run["reached"]}
    found = {}
    for run in runs:
        if run["side"] == "trl" and run["seed"] in ours:
            mine = ours[run["seed"]]
            found[f"seed {run['seed']}, {run['setting']}"] = {
                "cpu": round(run["cpu_s"] / mine["cpu_s"], 2),
                "wall": round(run["wall_s"] / mine["wall_s"], 2),
                "lower_bound": not run["reached"],
            }
    return found


def tables(result: dict[str, Any]) -> str:
    rows = [
        [
            "Tracewheel" if run["side"] == "ours" else f"TRL, {run['setting']}",
            run["seed"],
            "yes" if run["reached"] else "no",
            run["cpu_s"],
            run["wall_s"],
            run["curve"][-1]["episodes"],
            " ".join(f"{point['rate']:.2f}" for point in run["curve"]),
        ]
        for run in result["runs"]
    ]
    bounds = [
        f"{name}: {'at least ' if each['lower_bound'] else ''}{each['cpu']} (CPU), {each['wall']} (wall)"
        for name, each in result["ratios"].items()
    ]
    settings = dict.fromkeys(name.partition(", ")[2] for name in result["ratios"])
    for setting in settings:
        each = [ratio for name, ratio in result["ratios"].items() if name.partition(", ")[2] == setting]
        if len(each) > 1:
            least = "at least " if any(ratio["lower_bound"] for ratio in each) else ""
            bounds.append(
                f"{setting or 'all'}: {least}{ratio_over_seeds([ratio['cpu'] for ratio in each])} (CPU, geometric mean)"
            )
    curve = f"success after each {result['every']} episodes, from the warm start"
    head = ["side", "seed", "reached", "CPU s", "wall s", "episodes", curve]
    tasks = f"{result['tasks'] or 'all'} {result['split']} tasks"
    title = f"{result['profile']}: mean of greedy and sampled success on {tasks}, target {result['target']}"
    return "\n\n".join([title, table(head, rows), "TRL's seconds over ours: " + "; ".join(bounds)])


if __name__ == "__main__":
    main()
