"""Do splits stay? Retrains on a growing log, through the real ingest and curate, against a split drawn anew each time.

    python benchmarks/splits.py --json benchmarks/results/splits_retrains.json             # 20 retrains, about 3 minutes
    python benchmarks/splits.py --nights 14 --no-copies                      # growth alone

It begins with the shipped log. Each night brings a tenth of its traces more: new tasks of new and of known users, further
attempts, copies of known tasks with other numbers by new users, and traces of known users at tasks of others, which make one
component of two. And each night one user asks for deletion: the traces are gone from the next log. Held-out tasks count as
used before when the task itself, a copy of it, or a user of it was in the training or validation split of an earlier night.

`anew` is the split without a record, as it was before: `assign_splits` on all tasks of the night. Prints JSON and a table.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from measuring import emit, machine, table

LOG = Path(__file__).parents[1] / "data/traces/workspace.jsonl"
ROTATE = {"every": 5, "share": 0.1}
KINDS = {"new_task": 0.6, "known_user": 0.2, "again": 0.1, "copy": 0.1}


class Logs:
    """A log that grows; `family_of` maps a task's fingerprint to that of the task it was copied from."""

    def __init__(self, seed: int, growth: float, copies: bool) -> None:
        from tracewheel.environments.workspace.tasks import workspace_task

        self.random = random.Random(seed)
        self.records: list[dict[str, Any]] = []
        self.family_of: dict[str, str] = {}
        self.tasks: dict[str, Any] = {}
        for line in LOG.read_bytes().splitlines():
            try:
                record = json.loads(line)
                environment, prompt = record["environment"], record["messages"][1]["content"]
                task = workspace_task(prompt, environment["initial_state"], environment["goal"])
            except (ValueError, KeyError, TypeError, IndexError):
                continue  # the shipped log has damaged lines; ingest puts them aside
            self._add(record, task)
        self.added = round(growth * len(self.records))
        self.copies = copies
        self.time = max(datetime.fromisoformat(record["created"]) for record in self.records)
        self.deleted: set[str] = set()

    def _add(self, record: dict[str, Any], task: Any, original: str | None = None) -> None:
        family = self.family_of.get(original or task.fingerprint, original or task.fingerprint)
        self.family_of.setdefault(task.fingerprint, family)
        self.tasks[task.fingerprint] = task
        self.records.append({**record, "fingerprint": task.fingerprint})

    def grow(self, night: int, links: int) -> None:
        """A night's traces, then a deletion."""
        from tracewheel.demo.workspace_logs import log_record
        from tracewheel.environments.workspace.tasks import FAMILIES, make_task

        draw = self.random
        users = sorted({record["user"] for record in self.records})
        for number in range(self.added):
            kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
            known = self.tasks[draw.choice(self.records)["fingerprint"]]
            user, original = f"night-{night}-user-{number}", None
            if number < links:  # a known user tries the task of another
                task, user = known, draw.choice(users)
            elif kind == "copy" and self.copies:
                task, original = renumbered(known, draw), known.fingerprint
            elif kind == "again":
                task = known
            else:
                task = make_task(draw.choice(FAMILIES), draw.choice((2, 3, 4, 5)), draw)
                user = draw.choice(users) if kind == "known_user" else user
            self.time += timedelta(seconds=draw.randint(60, 600))
            self._add(log_record(task, user, f"{user}-night-{night}-{number}", self.time, draw), task, original)
        gone = draw.choice([user for user in users if user.startswith(("user-1", "night"))])
        self.deleted.add(gone)
        self.records = [record for record in self.records if record["user"] != gone]

    def write(self, path: Path) -> None:
        lines = [{name: value for name, value in record.items() if name != "fingerprint"} for record in self.records]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def renumbered(task: Any, draw: random.Random) -> Any:
    """The task with other digits."""
    from tracewheel.environments.workspace.tasks import workspace_task

    digits = list("12345")
    draw.shuffle(digits)
    change = str.maketrans("12345", "".join(digits))
    return workspace_task(
        task.prompt, *(json.loads(json.dumps(part).translate(change)) for part in (task.initial_state, task.goal))
    )


class Uses:
    """What has been trained and selected on so far: tasks, the tasks they are copies of, and users."""

    def __init__(self) -> None:
        self.used: dict[str, set[str]] = {"trained": set(), "selected": set()}
        self.linked: dict[str, set[str]] = {"trained": set(), "selected": set()}
        self.first: set[str] = set()

    def see(self, logs: Logs, split_of: dict[str, str]) -> dict[str, int]:
        """Counts of a night's held-out tasks that were used before; then the night's own uses are added."""
        users: dict[str, set[str]] = {}
        for record in logs.records:
            users.setdefault(record["fingerprint"], set()).add(record["user"])
        held = {task for task, split in split_of.items() if split in ("held_out", "harder")}
        self.first = self.first or held
        here = {record["fingerprint"] for record in logs.records}

        def linked(task: str) -> set[str]:
            return {f"copy {logs.family_of[task]}", *(f"user {user}" for user in users.get(task, ()))}

        counts = {f"{use}_before": len(held & self.used[use]) for use in self.used}
        counts |= {f"linked_{use}_before": sum(bool(linked(task) & self.linked[use]) for task in held) for use in self.used}
        for use, split in (("trained", "train"), ("selected", "validation")):
            own = {task for task, now in split_of.items() if now == split}
            self.used[use] |= own
            self.linked[use] |= {name for task in own for name in linked(task)}
        return counts | {"first": len(self.first & here), "still": len(self.first & held)}


def retrains(nights: int, logs: Logs, links: int, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The ledger of each night's curation, with the counts of `Uses` for the splits that stay and for those drawn anew."""
    import pandas

    from tracewheel.config import CurateSections, IngestConfig, RetrainConfig
    from tracewheel.curation.curate import curate
    from tracewheel.curation.split_record import SplitRecord
    from tracewheel.traces.ingest import ingest

    config = RetrainConfig(name="splits", environment={"kind": "workspace"}, curation=settings)  # type: ignore[arg-type]
    ours, anew, record = Uses(), Uses(), None
    for night in range(nights + 1):
        if night:
            logs.grow(night, links)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            logs.write(folder / "log.jsonl")
            ingest(IngestConfig(paths=(str(folder / "log.jsonl"),)), folder / "ingested")
            report = curate(CurateSections.of(config), folder / "ingested", folder / "curated", None, record)
            record = SplitRecord.read(folder / "curated")
            tasks = pandas.read_parquet(folder / "curated/tasks.parquet")
        sizes = Counter(tasks["split"])
        counts = ours.see(logs, dict(zip(tasks["fingerprint"], tasks["split"], strict=True)))
        ledger = report["split_ledger"]
        row = {"night": night, "traces": len(logs.records), "deleted_users": len(logs.deleted), "sizes": dict(sizes)}
        yield row | {"ledger": ledger, "stay": counts, "anew": anew.see(logs, drawn_anew(logs, config.curation))}


def drawn_anew(logs: Logs, config: Any) -> dict[str, str]:
    """The split of each task, by fingerprint, without a record."""
    import pandas

    from tracewheel.curation.splits import assign_splits, components

    rows = pandas.DataFrame(
        [
            {"task_id": record["fingerprint"], "user": record["user"], "fingerprint": logs.family_of[record["fingerprint"]]}
            for record in logs.records
        ]
    )
    attempts, links = rows["task_id"].value_counts(), components(rows)
    tasks = pandas.DataFrame(
        [
            {"id": name, "family": logs.tasks[name].family, "tier": logs.tasks[name].tier, "attempts": int(count)}
            for name, count in attempts.items()
        ]
    ).sort_values("id", ignore_index=True)
    tasks["component"] = tasks["id"].map(links)
    return dict(zip(tasks["id"], assign_splits(tasks, config), strict=True))


def shown(rows: list[dict[str, Any]]) -> str:
    """A row a night."""
    head = [
        "night",
        "traces",
        "train",
        "validation",
        "held out",
        "harder",
        "new tasks",
        "gave way (trained)",
        "retired held out",
    ]
    head += ["rotated", "first set still held out", "used before: stay", "linked", "used before: anew", "linked"]
    lines = []
    for row in rows:
        ledger, stay, anew = row["ledger"], row["stay"], row["anew"]
        before = [f"{counts['trained_before']} + {counts['selected_before']}" for counts in (stay, anew)]
        linked = [f"{counts['linked_trained_before']} + {counts['linked_selected_before']}" for counts in (stay, anew)]
        sizes = [row["sizes"].get(name, 0) for name in ("train", "validation", "held_out", "harder")]
        gave_way = f"{ledger['gave_way']} ({ledger['gave_way_trained']})"
        first = f"{stay['still']} of {stay['first']}; anew {anew['still']}"
        did = [ledger["new_tasks"], gave_way, ledger["retired_held_out"], ledger["rotated"], first]
        lines.append([row["night"], row["traces"], *sizes, *did, before[0], linked[0], before[1], linked[1]])
    return table(head, lines) + "\n\nused before: trained + selected on, of the night's held-out and harder tasks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument("--growth", type=float, default=0.1, help="traces of a night, as a share of the first log")
    parser.add_argument("--links", type=int, default=1, help="traces a night of a known user at a known task of another")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-copies", dest="copies", action="store_false")
    parser.add_argument("--rotate", action="store_true", help=f"with curation.rotate {ROTATE}")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings = {"rotate": ROTATE} if options.rotate else {}
    logs = Logs(options.seed, options.growth, options.copies)
    rows = list(retrains(options.nights, logs, options.links, settings))
    last = rows[-1]
    sums = {
        side: sum(sum(v for k, v in row[side].items() if k.endswith("before")) for row in rows) for side in ("stay", "anew")
    }
    result = {
        "machine": machine(1),
        "seed": options.seed,
        "links": options.links,
        "used_before_in_all_nights": sums,
        "nights": rows,
    }
    said = f"\n\nFirst held-out and harder tasks still held out at the end: {last['stay']['still']} of {last['stay']['first']}"
    emit(result, shown(rows) + said + f" that were not deleted (drawn anew: {last['anew']['still']}).", options.json)


if __name__ == "__main__":
    main()
