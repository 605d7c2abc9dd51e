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
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import yaml
from coding_agent_tasks import FAMILIES
from coding_agent_world import PROGRAM, REQUEST, SHORT, log_records
from measuring import emit, environment, machine, table

from tracewheel.projects.project import RECIPES

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
RECURRING, ONCE = (48, 4), (128, 1)  # tasks and sessions of each
POLICIES = ("warm_start_verified", "rl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--program", type=Path, default=Path(".venv-harnesses/mini-swe-agent/bin/python"))
    parser.add_argument("--set", action="append", default=[], help="of the profile")
    parser.add_argument("--only", choices=["base"], help="end before the seeds")
    parser.add_argument("--json", type=Path, help="write the figures here, and the table beside it")
    options = parser.parse_args()
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
    return {**harness, "command": command, "preload": [*PRELOAD], "concurrency": 12, "seconds": 120}


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
    from tracewheel.demo.base_policy import train_base_policy
    from tracewheel.demo.config import BasePolicyConfig

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
        folder.mkdir(parents=True, exist_ok=True)
        said = [f"--set={setting}" for setting in [f"seed={seed}", *settings]]
        command = [sys.executable, "-m", "flows.cli", "retrain", str(ROOT / "profile.yaml"), *said, "--run-dir", str(folder / "run")]
        started = time.perf_counter()
        done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, text=True, env=environment(threads), check=False)
        if done.returncode not in (0, 3):
            sys.exit(f"{' '.join(command)} ended with {done.returncode}")
        summary.write_text(json.dumps({"seconds": time.perf_counter() - started, **json.loads(done.stdout)}))
    return {"seed": seed, **json.loads(summary.read_text())}


def shown(rows: list[dict[str, Any]]) -> str:
    """The table."""
    return table(["seed"], [[row["seed"]] for row in rows])


if __name__ == "__main__":
    main()
