"""Kill runs at random moments, resume them, and compare with a run that nobody disturbed.

`flow` kills `tracewheel retrain`, `deploy` kills `tracewheel deploy` in the midst of a run. Each kill is one of: SIGKILL of the
parent alone, SIGKILL of its whole process group, SIGTERM of the parent, SIGTERM of the group (as systemd sends it). Afterwards
the same command goes on to the end, and it is checked that
- no process is left (those of a killed parent have SECONDS_AFTER_KILL to notice), all are gone 30 s after a SIGTERM;
- the adapter has the same bytes as the undisturbed run's, and so has each entry of the store that both have;
- Prefect's database says Running for no run, and `state.json` that the run is complete.

A prepared store (`--reference`) makes resuming quick: kills come while the last `--stages` of its entries are made again.

    python benchmarks/kills.py flow --rounds 20 --seed 16 --reference runs/kills --out kills.jsonl
    python benchmarks/kills.py table --out kills.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from tracewheel.core.fingerprint import digest_of

ROOT = Path(__file__).parents[1]
WAYS = ("kill", "kill group", "term", "term group")
SECONDS_AFTER_KILL, SECONDS_AFTER_TERM = 10.0, 30.0
PATIENCE = 400.0
STAGES = ("rollout-", "update-", "evaluate-", "warm_start-")
BEGUN = re.compile(r"run [0-9a-f]{12} in ")
# A profile that is short enough for a run in each round.
PROFILE = "configs/tiny-short.yaml"
SHORTER = (
    *("curation.train_tasks=8", "curation.validation_tasks=4", "curation.held_out_tasks=12", "curation.harder_tasks=4"),
    *("comparison.warm_starts=one", "comparison.policies=gate", "comparison.aa=false", "gate.min_pairs=5"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("flow", "deploy", "table"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first round: rounds can be run in pieces")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--reference", type=Path, help="folder of the undisturbed run; made if it is missing")
    parser.add_argument("--longest", type=float, default=25.0, help="seconds after the run's first line until the last kill")
    parser.add_argument("--out", type=Path, help="JSON lines are appended here; `table` reads them")
    options = parser.parse_args()
    if options.what == "table":
        if options.out is None:
            parser.error("table needs --out")
        show_table([json.loads(line) for line in options.out.read_text().splitlines()])
        return
    if options.reference is None:
        parser.error("--reference is missing")
    whole = options.reference / "run"
    if not list(whole.glob("*/summary.json")):
        done = run_to_end(whole)
        assert done.returncode in (0, 3), done.stderr
    for number in range(options.first, options.first + options.rounds):
        rng = random.Random(f"{options.seed}-{options.what}-{number}")
        way, moment = WAYS[number % len(WAYS)], rng.uniform(0.0, options.longest)
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            line = round_of(options.what, way, moment, whole, Path(folder), rng)
        line = {"what": options.what, "round": number, "way": way, "moment_s": round(moment, 1), **line}
        print(json.dumps(line), flush=True)
        if options.out:
            with options.out.open("a") as stream:
                stream.write(json.dumps(line) + "\n")


def show_table(lines: list[dict[str, Any]]) -> None:
    """Print the rounds by command and way as Markdown, and the stages that they hit."""
    print("| command | way | rounds | exit codes | gone after, median and most | equal bytes | orphans | left Running |")
    print("|---|---|---:|---|---|---:|---:|---:|")
    for what in ("flow", "deploy"):
        for way in WAYS:
            rounds = [line for line in lines if (line["what"], line["way"]) == (what, way)]
            if not rounds:
                continue
            gone = [line["gone_s"] for line in rounds]
            equal = sum(line["same_adapter"] and line["same_entries"] for line in rounds)
            codes = ", ".join(map(str, sorted({line["exit_code"] for line in rounds})))
            left = sum(line["orphans"] for line in rounds), sum(line["running"] for line in rounds)
            times = f"{statistics.median(gone):.1f} s, {max(gone):.1f} s"
            print(f"| {what} | {way} | {len(rounds)} | {codes} | {times} | {equal} | {left[0]} | {left[1]} |")
        hit = Counter(
            line["stage"].split()[0] if line["stage"] else "before the first stage" for line in lines if line["what"] == what
        )
        print(f"\n{what}, stages hit: " + ", ".join(f"{stage} {count}" for stage, count in hit.most_common()), file=sys.stderr)


def round_of(what: str, way: str, moment: float, whole: Path, folder: Path, rng: random.Random) -> dict[str, Any]:
    """One kill and what came of it."""
    run_dir, log = folder / "run", folder / "log"
    shutil.copytree(whole / "store", run_dir / "store")
    for entry in list((run_dir / "store").iterdir()):
        if entry.name.startswith(STAGES) and rng.random() < 0.5:
            shutil.rmtree(entry)
    log.touch()
    arguments = ["retrain"] if what == "flow" else ["deploy", "--interval", "5"]
    process = start(run_dir, arguments, log)
    wait_for(lambda: BEGUN.search(log.read_text()), process)
    time.sleep(moment)
    ended_before = process.poll() is not None
    children = [] if ended_before else psutil.Process(process.pid).children(recursive=True)
    killed = time.monotonic()
    if not ended_before:
        number = signal.SIGKILL if way.startswith("kill") else signal.SIGTERM
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if way.endswith("group") else os.kill)(process.pid, number)
    code = process.wait(timeout=PATIENCE)
    limit = SECONDS_AFTER_KILL if way.startswith("kill") else SECONDS_AFTER_TERM
    _, orphans = psutil.wait_procs(children, timeout=max(0.0, killed + limit - time.monotonic()))
    gone = time.monotonic() - killed
    for orphan in orphans:
        orphan.kill()
    stages = [record.get("stage") for record in states(run_dir)]
    if what == "deploy":
        log.write_text("")
        second = start(run_dir, arguments, log)
        wait_for(lambda: any(run_dir.glob("*/summary.json")) and not running(run_dir), second)
        second.terminate()
        resumed = second.wait(timeout=PATIENCE)
    else:
        resumed = run_to_end(run_dir).returncode
    (summary,) = run_dir.glob("*/summary.json")
    (reference,) = whole.glob("*/summary.json")
    return {
        "exit_code": code,
        "gone_s": round(gone, 1),
        "orphans": len(orphans),
        "stage": stages[0] if stages else None,
        "ended_before": ended_before,
        "resumed": resumed,
        "same_adapter": digest_of(summary.parent / "adapter") == digest_of(reference.parent / "adapter"),
        "same_entries": entries(run_dir) == entries(whole),
        "running": len(running(run_dir)),
        "states": sorted({str(record.get("state")) for record in states(run_dir)}),
    }


def start(run_dir: Path, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command as the leader of a group of its own."""
    with log.open("a") as stream:
        return subprocess.Popen(
            command_line(run_dir, *arguments),
            cwd=ROOT,
            env=environment(),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run_to_end(run_dir: Path) -> subprocess.CompletedProcess[str]:
    """`tracewheel retrain`, undisturbed."""
    command = command_line(run_dir, "retrain", "--json")
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=900, check=False)


def command_line(run_dir: Path, command: str, *options: str) -> list[str]:
    """A command of `tracewheel` on the profile."""
    settings = [word for setting in SHORTER for word in ("--set", setting)]
    return [sys.executable, "-m", "flows.cli", command, PROFILE, "--run-dir", str(run_dir), *settings, *options]


def environment() -> dict[str, str]:
    """As of a user who has set nothing for Prefect."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def wait_for(look: Any, process: subprocess.Popen[bytes]) -> None:
    """Wait until something is so, or the process has ended."""
    deadline = time.monotonic() + PATIENCE
    while not look() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)


def states(run_dir: Path) -> list[dict[str, Any]]:
    """All `state.json`."""
    return [json.loads(path.read_text()) for path in run_dir.glob("*/state.json")]


def entries(run_dir: Path) -> dict[str, str]:
    """The digests of a store's entries by name."""
    store = run_dir / "store"
    return {path.name: digest_of(path) for path in sorted(store.iterdir()) if path.is_dir() and not path.name.startswith(".")}


def running(run_dir: Path) -> list[str]:
    """The flow runs that Prefect's database takes for running."""
    database = run_dir / ".prefect" / "prefect.db"
    if not database.is_file():
        return []
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = connection.execute("select id from flow_run where state_type in ('RUNNING', 'CANCELLING')").fetchall()
    return [row[0] for row in rows]


if __name__ == "__main__":
    main()
