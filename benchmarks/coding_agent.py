"""Trains mini-swe-agent, unmodified and from its recipe, at small terminal tasks, with a tiny base of its own on the CPU.

    make setup-harnesses
    python benchmarks/coding_agent.py --seeds 0 1 --json benchmarks/results/coding_agent.json

It takes the program's first request from the program itself, trains the base on scripted sessions of that form, writes the logs
of a hasty agent, runs `tracewheel retrain` for each seed, and prints success on the held-out tasks before and after. What lies
in `runs/coding-agent` already is not made again.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from coding_agent_tasks import FAMILIES
from coding_agent_world import PROGRAM, REQUEST, SHORT, UNSAFE_LOCAL, log_records
from measuring import Meter, emit, environment, machine, table

from tracewheel.config import GateConfig
from tracewheel.evaluation.gate import decide
from tracewheel_projects.program import RECIPES

ROOT = PROGRAM.parent
PROFILE = Path(__file__).with_name("coding_agent.yaml")
# The module behind the command `mini`, started as forks of a process that has imported it: six seconds an episode less.
PRELOAD = (
    "minisweagent.run.mini",
    "minisweagent.models.litellm_model",
    "minisweagent.agents.interactive",
    "minisweagent.environments.local",
    "litellm.main",
    "openai.resources.chat",
)
BASE: dict[str, Any] = {
    "world": "coding_agent_world:WORLD",
    "complete_share": 0.0,
    "complete_families": (),
    "batch_tokens": 4608,
    "prompt_weight": 0.1,
    "replay_rows": 500,
}
# Steps and conversations: first short sessions, which teach the work, then those with the program's whole text.
PHASES = ((SHORT, 900, 30000), ("", 400, 9000))
RECURRING, ONCE = (48, 4), (88, 1)  # tasks and sessions of each
POLICIES = ("warm_start_verified", "rl")
OUTCOME = ["task_id", "family", "greedy", "sampled_successes"]
HEADINGS = ["seed", "warm start", "after RL", "gain and the gate's interval", "p", "gate", "fidelity", "episodes", "unmatched"]
HEADINGS += ["CPU minutes", "minutes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--program", type=Path, default=Path(".venv-harnesses/mini-swe-agent/bin/python"))
    parser.add_argument("--set", action="append", default=[], help="of the profile")
    parser.add_argument("--only", choices=["base"], help="end before the seeds")
    parser.add_argument("--json", type=Path, help="write the figures here, and the table beside it")
    parser.add_argument("--unsafe-local", action="store_true", help="replay the script's own logs without boxes")
    options = parser.parse_args()
    if options.unsafe_local:
        os.environ[UNSAFE_LOCAL] = "1"
    ROOT.mkdir(parents=True, exist_ok=True)
    harness = recipe(options.program)
    if not PROGRAM.is_file():
        PROGRAM.write_text(json.dumps(first_request(harness), indent=1) + "\n")
    if not (ROOT / "base" / "base.json").is_file():
        train_base(options.threads)
    write_logs(ROOT / "sessions.jsonl")
    profile = yaml.safe_load(PROFILE.read_text())
    profile["rollout"]["harness"] = harness
    (ROOT / "profile.yaml").write_text(yaml.safe_dump(profile, sort_keys=False))
    if options.only:
        return
    rows = [retrain(seed, options.threads, options.set) for seed in options.seeds]
    emit({"command": " ".join(sys.argv), "machine": machine(options.threads), "rows": rows}, shown(rows), options.json)


def recipe(python: Path) -> dict[str, Any]:
    """The shipped recipe with its program as a module of the environment that it is installed in, imported once."""
    harness: dict[str, Any] = yaml.safe_load((RECIPES / "mini-swe-agent.yaml").read_text())["harness"]
    _, *rest = harness["command"]
    command = [str(python.absolute()), "-m", "minisweagent.run.mini", *rest]
    return {**harness, "command": command, "preload": [*PRELOAD], "concurrency": 12, "seconds": 300}


def first_request(harness: dict[str, Any]) -> dict[str, Any]:
    """What the program says and offers, from its first request to a server that answers nothing of use."""
    asked: list[dict[str, Any]] = []

    class Listens(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_error(404)

        def log_message(self, *_: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Listens) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = {"prompt": REQUEST, "model": "policy", "config": str(ROOT), "workdir": str(ROOT)}
        command = [word.format(**own) for word in harness["command"]]
        given = {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY": "none"}
        env = {**os.environ, **given, **{name: value.format(**own) for name, value in harness["env"].items()}}
        subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
        server.shutdown()
    system, user = (message["content"] for message in asked[0]["messages"])
    return {"system": system, "around": user, "tools": asked[0]["tools"]}


def train_base(threads: int) -> None:
    """The base, from random weights."""
    from tracewheel.core.kind_table import give
    from tracewheel_projects import BasePolicyConfig, train_base_policy

    phases = [
        {"skills": {f"{kind}{family}": 1 for family in FAMILIES}, "conversations": conversations, "steps": steps}
        for kind, steps, conversations in PHASES
    ]
    give(BASE["world"])
    started = time.perf_counter()
    train_base_policy(BasePolicyConfig(**BASE, threads=threads, phases=phases), ROOT / "base")
    print(f"base: {time.perf_counter() - started:.0f} s", file=sys.stderr)


def write_logs(path: Path) -> None:
    """The logs of the hasty agent: tasks that recur, which are those to train on, and others."""
    records = [record for seed, sizes in enumerate((RECURRING, ONCE)) for record in log_records(*sizes, seed=seed)]
    for number, record in enumerate(records):
        record["id"] = record["session"] = f"session-{number:05}"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def retrain(seed: int, threads: int, settings: list[str]) -> dict[str, Any]:
    """One run, or its stored summary."""
    folder = ROOT / f"seed-{seed}"
    summary = folder / "summary.json"
    if not summary.is_file():
        run = folder / "run"
        share_curation(run / "store")
        said = [f"--set={setting}" for setting in [f"seed={seed}", *settings]]
        command = [sys.executable, "-m", "flows.cli", "retrain", str(ROOT / "profile.yaml"), *said, "--run-dir", str(run)]
        command += ["--json", *(["--unsafe-local"] if os.environ.get(UNSAFE_LOCAL) else [])]
        with Meter() as meter:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment(threads), check=False)
        if done.returncode not in (0, 3):
            sys.exit(f"{' '.join(command)} ended with {done.returncode}")
        spent = {"cpu_s": round(meter.cpu_s), "wall_s": round(meter.wall_s)}
        (said_by_run,) = run.glob("*/summary.json")  # standard output also holds what the program prints at its start
        summary.write_text(json.dumps({**spent, **json.loads(said_by_run.read_text())}))
    return figures(seed, folder / "run", json.loads(summary.read_text()))


def share_curation(store: Path) -> None:
    """Take over the curated logs of another seed: they do not depend on it, and replaying them takes minutes."""
    store.mkdir(parents=True, exist_ok=True)
    for entry in [*ROOT.glob("*/store/ingest-*"), *ROOT.glob("*/run/store/ingest-*")][:1]:
        for made in [entry, *entry.parent.glob("curate-*")]:
            if made.is_dir() and not (store / made.name).exists():
                shutil.copytree(made, store / made.name)


def figures(seed: int, run: Path, said: dict[str, Any]) -> dict[str, Any]:
    """What the table and the results page show of a run, and the outcome of each held-out task before and after."""
    tasks = held_out(run / said["run_id"])
    gate = decide(GateConfig(gates_per_year=1), tasks["rl"], tasks[POLICIES[0]], baseline=POLICIES[0]).to_record()
    rates = {
        mode: {policy: {"rate": said[name][policy], "interval": said["intervals"][name][policy]} for policy in POLICIES}
        for mode, name in {"greedy": "success", "sampled": "sampled"}.items()
    }
    kept = ("verdict", "difference", "interval", "p_value", "level", "pairs", "gained", "lost", "families", "reasons")
    updates = [json.loads(file.read_text()) for file in sorted(run.glob("store/update-*/metrics.json"))]
    return {
        "seed": seed,
        **rates,
        "paired": {name: gate[name] for name in kept},
        "gate": {name: said["gate"][name] for name in ("baseline", *kept)},
        "validation": said["validation"],
        "best_iteration": said["best_iteration"],
        "fidelity": min((one["fidelity"] for one in updates if one.get("fidelity") is not None), default=None),
        "episodes": episodes(run),
        "tokens": said["tokens"],
        "seconds": said["seconds"],
        "cpu_s": said["cpu_s"],
        "wall_s": said["wall_s"],
        "tasks": {name: table[OUTCOME].to_dict("list") for name, table in tasks.items()},
    }


def episodes(run: Path) -> dict[str, int]:
    """Of the training rollouts: episodes, turns, tokens, requests, unmatched ones, and episodes by stop reason."""
    import pandas

    found: Counter[str] = Counter()
    for file in run.glob("store/rollout-*/trajectories.parquet"):
        for row in pandas.read_parquet(file).to_dict("records"):
            requests = json.loads(row["requests"]) if isinstance(row["requests"], str) else row["requests"]
            found["episodes"] += 1
            found["turns"] += len(json.loads(row["turns"]) if isinstance(row["turns"], str) else row["turns"])
            found["tokens"] += len(row["token_ids"])
            found["sampled"] += int(sum(row["action_mask"]))
            found["requests"] += requests["asked"]
            found["unmatched"] += requests["unmatched"]
            found[f"ended {row['stop_reason']}"] += 1
    return dict(found)


def held_out(run: Path) -> dict[str, Any]:
    """The outcome of each held-out task, by policy."""
    import pandas

    stored = json.loads((run / "lineage.json").read_text())["evaluations"]
    places = {name: run.parent / "store" / splits["held_out"]["entry"] for name, splits in stored.items()}
    return {name: pandas.read_parquet(place / "results.parquet") for name, place in places.items()}


def shown(rows: list[dict[str, Any]]) -> str:
    """The table."""
    return table(HEADINGS, [line(row) for row in rows])


def line(row: dict[str, Any]) -> list[Any]:
    """A row of the table."""
    rates = [" / ".join(f"{row[mode][policy]['rate']:.3f}" for mode in ("greedy", "sampled")) for policy in POLICIES]
    gate, spent = row["paired"], row["episodes"]
    gain = f"{gate['difference']:+.3f} ({' to '.join(f'{end:+.3f}' for end in gate['interval'])})"
    seen = [f"{gate['p_value']:.2g}", gate["verdict"], row["fidelity"], spent["episodes"], spent["unmatched"]]
    return [row["seed"], *rates, gain, *seen, f"{row['cpu_s'] / 60:.1f}", f"{row['wall_s'] / 60:.1f}"]


if __name__ == "__main__":
    main()
