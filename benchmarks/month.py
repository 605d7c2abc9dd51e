"""A simulated month: `tracewheel deploy` retrains unattended on 30 daily batches, while things break around it.

    python benchmarks/month.py --work runs/month --json benchmarks/results/month.json      # about 40 minutes on two cores

The deployment runs on a fast clock (a tick each minute, and when new traces arrive), against a real Prefect server and a real
MLflow server, in a work folder on a small disk of its own. A feeder drops a day's log when the run of the day before has
ended, and makes the day's trouble:

    empty     the day's file has no line
    flipped   40% of the day's rewards say the opposite
    mlflow    the MLflow server is killed when training has begun, and comes back on the next day
    kill      the run's process is killed (SIGKILL) when training has begun
    grows     a third of the day's lines are written one by one while the run works
    disk      the disk is filled when training has begun, and freed when the run has ended
    flood     as many traces again by one user, all with the full reward, whose text gives orders to the judge

After each day it writes what happened, so that a month that was cut off goes on with the next day. At the end it accounts
for every trace, counts held-out tasks that any earlier run trained or selected on (from the runs' own task tables), and draws
the plot. A fixed exam of tasks that no log holds measures each champion.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import yaml
from measuring import emit, machine
from month_accounts import account, batches_of, exam_of, figures_of, shown, sizes_of, uses_of
from month_logs import Sizes, days_of_logs
from month_servers import Place, Servers, small_disk

ROOT = Path(__file__).parents[1]
TROUBLE = {4: "empty", 7: "flipped", 10: "mlflow", 13: "kill", 16: "grows", 19: "disk", 23: "flood"}
TRIES = 4
PROFILE: dict[str, Any] = {
    "name": "month",
    "seed": 0,
    "threads": 2,
    "policy": {"base": str(ROOT / "data/base")},
    "environment": {"kind": "workspace"},
    "curation": {
        "train_tasks": 600,
        "validation_tasks": 30,
        "held_out_tasks": 200,
        "harder_tasks": 8,
        "min_attempts": 1,
        "shares": {"test": 0.35, "validation": 0.05},
    },
    "warm_start": {
        "epochs": 2,
        "batch_size": 32,
        "learning_rate": 1.0e-3,
        "gradient_checkpointing": False,
        "replay": {"path": str(ROOT / "data/base/replay.parquet")},
    },
    "rollout": {
        "engine": {"kind": "transformers", "slots": 256},
        "max_tokens": 400,
        "max_turn_tokens": 48,
        "temperature": 1.2,
    },
    "learner": {
        "learning_rate": 2.0e-3,
        "constant_length": 128,
        "gradient_checkpointing": False,
        "replay_path": str(ROOT / "data/base/replay.parquet"),
    },
    "training": {"iterations": 7, "tasks_per_iteration": 20, "validate_every": 7},
    "evaluation": {"samples": 1, "pass_at": [1], "bootstrap": 500},
    # The month is the year of these gates. So few held-out tasks show what a night gains only at a wider level: a false
    # promotion in at most one month of ten, where the default is one of forty.
    "gate": {"gates_per_year": 30, "confidence": 0.8},
    "schedule": {"keep_runs": 3},
}


class Trouble:
    """What goes wrong on a day, beside the run."""

    def __init__(self, kind: str, servers: Servers, place: Place, entries: set[str]) -> None:
        self.kind, self.servers, self.place, self.known = kind, servers, place, entries
        self.done = ""
        self._filler = place.disk / "filler"

    def training(self) -> bool:
        """Whether the day's run has begun to train: a rollout that was not there before."""
        return any(path.name not in self.known for path in (self.place.run / "store").glob("rollout-*"))

    def look(self) -> None:
        """Called again and again while the day's run works."""
        if self.done or not self.training():
            return
        if self.kind == "mlflow":
            self.servers.kill_mlflow()
            self.done = "MLflow killed during training"
        elif self.kind == "kill" and (pid := self.servers.flow_process()):
            os.kill(pid, signal.SIGKILL)
            self.done = f"process {pid} killed during training"
        elif self.kind == "disk":
            self.done = f"disk filled during training, {self._fill() / 1e6:.0f} MB"

    def ended(self) -> None:
        """The run that was hit has ended."""
        self._filler.unlink(missing_ok=True)

    def _fill(self) -> int:
        """Write until the disk is full; returns the bytes."""
        written = 0
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while written < 20 << 30:
                written += file.write(b"\0" * (1 << 16))
        return written


def drop(lines: list[bytes], path: Path, slowly: int = 0) -> threading.Thread | None:
    """Write a day's log; the last lines `slowly`, one by one, in a thread."""
    at_once = lines[: len(lines) - slowly]
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(b"".join(line + b"\n" for line in at_once))
    partial.replace(path)
    if not slowly:
        return None

    def write() -> None:
        for line in lines[len(lines) - slowly :]:  # for about as long as a run takes
            time.sleep(3.0)
            with path.open("ab") as file:
                file.write(line + b"\n")

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def live_day(servers: Servers, trouble: Trouble, since: float, limit: float) -> list[dict[str, Any]]:
    """Wait for the day's run: the first that began after the batch was dropped and came to an end of its own."""
    deadline, ended = time.monotonic() + limit, []
    seen: set[str] = set()
    while time.monotonic() < deadline:
        time.sleep(1.0)
        trouble.look()
        for run in servers.runs():
            if run["id"] in seen or run["state_type"] not in ENDS or not _is_of_the_day(run, since):
                continue
            seen.add(run["id"])
            ended.append(run)
            trouble.ended()
            if run["state_type"] == "COMPLETED" or len(ended) >= TRIES:
                return ended
    return ended


def _is_of_the_day(run: dict[str, Any], since: float) -> bool:
    """Whether a run could see what was dropped: one whose process was starting then has, unless it found nothing new."""
    ended = _seconds(run["end_time"] or run["start_time"])
    return ended >= since and (_seconds(run["start_time"]) >= since or run["state_name"] != "Skipped")


ENDS = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def _seconds(time_of: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(time_of.replace("Z", "+00:00")).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="work folder; a month that was cut off goes on in it")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--first", type=int, default=Sizes.first, help="traces of the first day")
    parser.add_argument("--daily", type=int, default=Sizes.daily, help="traces of each later day")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between two ticks")
    parser.add_argument("--deploy", nargs=argparse.REMAINDER, default=[], help="further options of deploy; the last option")
    parser.add_argument("--limit", type=float, default=420.0, help="seconds after which a day is given up")
    parser.add_argument("--trouble", default=json.dumps(TROUBLE), help="JSON: day to trouble")
    parser.add_argument("--set", action="append", default=[], metavar="JSON", help="sections of the profile, as JSON")
    parser.add_argument("--port", type=int, default=4310)
    parser.add_argument("--json", type=Path, help="result; the table and the plot go beside it")
    options = parser.parse_args()
    work = options.work.resolve()
    place = Place(work, options.port, options.port + 1)
    place.logs.mkdir(parents=True, exist_ok=True)
    trouble = {int(day): kind for day, kind in json.loads(options.trouble).items()}
    profile = PROFILE | {"ingest": {"paths": [str(place.logs)]}, "work_dir": str(place.run)}
    profile |= {"tracking": {"uri": f"http://127.0.0.1:{place.mlflow_port}", "model_name": "month", "traces_per_evaluation": 2}}
    for given in options.set:
        for section, values in json.loads(given).items():
            profile[section] = profile[section] | values if isinstance(values, dict) and section in profile else values
    place.profile.write_text(yaml.safe_dump(profile, sort_keys=False))
    sizes = Sizes(options.days, options.first, options.daily)
    batches = list(days_of_logs(sizes, options.seed, trouble))
    state = work / "days.json"
    days: list[dict[str, Any]] = json.loads(state.read_text()) if state.is_file() else []
    servers = Servers(place, options.interval, options.deploy)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end with it
    with small_disk(place) as disk:
        try:
            servers.start_mlflow()
            for day in range(len(days) + 1, sizes.days + 1):
                days.append(simulate(day, batches[day - 1], trouble.get(day, ""), servers, place, days, options.limit))
                state.write_text(json.dumps(days, indent=1))
                print(says(days[-1]), file=sys.stderr, flush=True)
        finally:
            stopped = servers.stop()
        result = {
            "machine": machine(2),
            "disk": disk,
            "profile": PROFILE,
            "sizes": vars(sizes),
            "seed": options.seed,
            "stopped_in_s": round(stopped, 1),
            "days": days,
            "accounts": account(place.run, place.logs, days),
        }
    emit(result, shown(result), options.json)
    if options.json:
        from month_plot import draw

        draw(result, options.json.with_suffix(".png"))


def simulate(
    day: int,
    lines: list[bytes],
    kind: str,
    servers: Servers,
    place: Place,
    days: list[dict[str, Any]],
    limit: float,
) -> dict[str, Any]:
    """One day: drop the batch, make the trouble, wait for the run, and note what happened."""
    began = time.time()
    store = place.run / "store"
    trouble = Trouble(kind, servers, place, {path.name for path in store.glob("rollout-*")})
    lines = [] if kind == "empty" else lines
    writer = drop(lines, place.logs / f"day-{day:02}.jsonl", len(lines) // 3 if kind == "grows" else 0)
    if servers.deploy is None:  # it wants logs to be there
        servers.start_deploy()
    ended = live_day(servers, trouble, began, limit)
    if writer:
        writer.join()
    if servers.mlflow is None and kind != "mlflow":
        servers.start_mlflow()
    record: dict[str, Any] = {
        "day": day,
        "lines": len(lines),
        "trouble": kind,
        "done": trouble.done,
        "seconds": round(time.time() - began, 1),
        "runs": [
            {
                "name": run["state"]["name"],
                "state": run["state_type"],
                "message": (run["state"]["message"] or "")[:300],
                "seconds": run["total_run_time"],
            }
            for run in ended
        ],
    }
    record |= figures_of(place.run, since=began)
    record["held"] = sorted({file for batch in batches_of(place.run) if batch["state"] == "held" for file in batch["files"]})
    record["used_before"] = uses_of(place.run, record.get("curated"), days)
    record["exam"] = exam_of(place, days)
    record["bytes"] = sizes_of(place)
    return record


def says(day: dict[str, Any]) -> str:
    """A day in a line."""
    ends = ", ".join(run["name"] for run in day["runs"]) or "no run ended"
    gate = (day.get("gate") or {}).get("verdict", "")
    exam = day["exam"]["success"]
    return f"day {day['day']:2} {day['trouble']:8} {day['seconds']:5.0f} s  {ends}  {gate}  exam {exam}  {day['done']}"


if __name__ == "__main__":
    main()
