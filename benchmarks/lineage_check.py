"""Lineage and `tracewheel forget` on a finished run, compared with plain reading of the log and a plain search of all files.

    cp -r PROJECT COPY && cd COPY && tracewheel retrain configs/tiny.yaml
    python PROJECT/benchmarks/lineage_check.py configs/tiny.yaml --out lineage_check.json

It forgets people, adapters and log lines included: give it a copy of a workplace with one complete run on one log. A hundred
episodes that the adapter learned from, demonstrations and rollouts, are drawn from the store; the line that lineage names for
each must hold that conversation, or ask for that task. Of twenty users lineage and `forget --dry-run` say what holds something;
a search of all files and databases (`lineage_search.py`) must find nothing else, and after `forget` nothing at all.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import time
from pathlib import Path
from typing import Any

import pandas as pd
from lineage_search import lines_of, needles_of, search
from measuring import machine

from flows.cli import main as tracewheel

SEED, EPISODES, USERS = 17, 100, 20


class Place:
    """The working folder of a finished run."""

    def __init__(self, profile: str) -> None:
        import yaml
        from transformers import AutoTokenizer

        self.profile, self.work = profile, Path("runs")
        (self.run,) = [path.parent for path in self.work.glob("*/summary.json")]
        settings = yaml.safe_load((self.run / "config.yaml").read_text())
        (self.log,) = map(Path, settings["ingest"]["paths"])
        tokenizer = AutoTokenizer.from_pretrained(settings["policy"]["base"])
        self.decode = tokenizer.decode
        self.loop = json.loads(next(self.run.rglob("loop.json")).read_text())
        (self.curated,) = (self.work / "store").glob("curate-*")
        self.episodes = pd.read_parquet(self.curated / "episodes.parquet").query("split == 'train'")
        (ingested,) = (self.work / "store").glob("ingest-*")
        self.traces = pd.read_parquet(ingested / "traces.parquet", columns=["id", "user"])
        self.roots = [self.work, Path("mlflow"), self.log.parent]

    def ask(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """What a command says with `--json`, and the seconds that it took."""
        said = io.StringIO()
        began = time.perf_counter()
        with contextlib.redirect_stdout(said):
            code = tracewheel([arguments[0], self.profile, *arguments[1:], "--json"])
        assert code in codes, (arguments, code, said.getvalue()[-2000:])
        return (json.loads(said.getvalue()) if code == 0 else {}) | {"seconds": time.perf_counter() - began}

    def ids_of(self, user: str) -> set[str]:
        """The stored traces of a user."""
        return set(self.traces.loc[self.traces["user"] == user, "id"])

    def store(self, name: str) -> Path:
        return self.work / "store" / name


def check_lines(place: Place) -> dict[str, Any]:
    """A hundred episodes of the run's adapter, their lines by lineage, and the bytes there."""
    found = place.ask("lineage", place.run.name, "--limit", "0")
    nodes = {node["id"]: node for node in found["graph"]["nodes"]}
    lines: dict[str, list[dict[str, Any]]] = {}
    traces: dict[str, set[str]] = {}
    for edge in found["graph"]["edges"]:
        source, target = nodes[edge["source"]], nodes[edge["target"]]
        if (source["kind"], target["kind"]) == ("log line", "trace"):
            lines.setdefault(target["key"], []).append(source["facts"])
        if (source["kind"], target["kind"]) == ("trace", "task"):
            traces.setdefault(target["key"], set()).add(source["key"])
    prompts = pd.read_parquet(place.curated / "tasks.parquet").set_index("id")["prompt"]
    written = place.log.read_bytes()
    split = written.split(b"\n")
    result = {"demonstration": 0, "rollout": 0, "lines": 0}
    for kind, task, trace in drawn_episodes(place, found["entry"]):
        known = {trace} if trace else traces[task]
        assert known, (kind, task)
        for name in known:
            (line,) = lines[name]
            raw = written[line["offset"] : line["offset"] + line["size"]]
            assert raw == split[line["line"] - 1] and line["file"] == place.log.name, line
            record = json.loads(raw)
            asked = next(message["content"] for message in record["messages"] if message["role"] == "user")
            # An id that two records have is stored with the second's hash behind it.
            assert name.startswith(record["id"]) and asked == prompts[task], (name, task)
            if trace:
                stored = json.loads(place.episodes.set_index("trace_id").loc[trace, "messages"])
                assert record["messages"] == stored, trace
            result["lines"] += 1
        result[kind] += 1
    return result | {"learned": found["learned"], "seconds": round(found["seconds"], 2)}


def drawn_episodes(place: Place, chosen: str) -> list[tuple[str, str, str]]:
    """Kind, task and trace (of a demonstration) of a hundred episodes that the adapter learned from."""
    every = [("demonstration", row.task_id, row.trace_id) for row in imitated(place, "verified").itertuples()]
    for made in iterations(place, chosen):
        for rollout in made["rollouts"]:
            tasks = pd.read_parquet(place.store(rollout) / "trajectories.parquet", columns=["task_id"])["task_id"]
            every += [("rollout", task, "") for task in tasks]
    imitated_ones = [one for one in every if one[0] == "demonstration"]
    draw = random.Random(SEED)
    return [*draw.sample(imitated_ones, EPISODES // 2), *draw.sample(every[len(imitated_ones) :], EPISODES // 2)]


def imitated(place: Place, kind: str) -> pd.DataFrame:
    """The training episodes that a warm start imitates: all, or those that replay found successful."""
    return place.episodes if kind == "all" else place.episodes[place.episodes["success"] == 1.0]


def iterations(place: Place, last: str | None = None) -> list[dict[str, Any]]:
    """A loop's iterations, up to the one that made an adapter."""
    made = [entry for _, entry in sorted(place.loop["iterations"].items(), key=lambda item: int(item[0]))]
    names = [entry["update"] for entry in made]
    return made[: names.index(last) + 1] if last in names else made


def adapters_of(place: Place, user: str) -> set[str]:
    """The adapters of the run that learned from a user, reckoned from the tables of the run."""
    theirs = place.ids_of(user)
    tasks = set(place.episodes.loc[place.episodes["trace_id"].isin(theirs), "task_id"])
    found = set()
    for entry in (place.work / "store").glob("warm_start-*"):
        label = json.loads((place.work / "store" / ".facts" / f"{entry.name}.json").read_text())["made"]["label"]
        kind = "verified" if "verified" in label else "all"
        if theirs & set(imitated(place, kind)["trace_id"]):
            found.add(entry.name)
    touched = bool(theirs & set(imitated(place, "verified")["trace_id"]))  # the loop starts from these, as the profile says
    for one in iterations(place):
        for rollout in one["rollouts"]:
            played = pd.read_parquet(place.store(rollout) / "trajectories.parquet", columns=["task_id"])["task_id"]
            touched |= bool(tasks & set(played))
        if touched:
            found.add(one["update"])
    return found


def drawn_users(place: Place) -> list[str]:
    """Half of those that a task of the training set is of, who left something in adapters, and half of all others."""
    every = sorted(lines_of(place.log))
    trained = set(place.episodes["trace_id"])
    groups = [[user for user in every if bool(place.ids_of(user) & trained) is in_training] for in_training in (True, False)]
    draw = random.Random(SEED)
    return [user for group in groups for user in draw.sample(group, USERS // 2)]


def check_users(place: Place, users: list[str]) -> dict[str, Any]:
    """What lineage and `forget --dry-run` list of each user, beside what the search finds."""
    prompts = {user: needles & _names_and_prompts(place, user) for user, needles in needles_of(place.log, users).items()}
    held, files, size = search(place.roots, prompts, place.decode)
    rows, missing = [], []
    for user in users:
        lineage = place.ask("lineage", user, "--as", "user")
        listed = place.ask("forget", "--user", user, "--dry-run")["found"]
        entries = {entry["entry"] for entry in lineage["entries"]}
        adapters = {entry["entry"] for entry in lineage["entries"] if entry["adapter"]}
        theirs = place.ids_of(user)
        traces = {row["id"] for of_ingest in lineage["traces"].values() for row in of_ingest}
        named = {record["id"] for record in lines_of(place.log)[user]}
        assert traces == theirs == set(listed["traces"]) and all(name.startswith(tuple(named)) for name in theirs), user
        assert adapters == adapters_of(place, user), (user, adapters ^ adapters_of(place, user))
        known = {place.work / "store" / name for name in entries} | {place.work / name for name in listed["files"]}
        known |= {Path(name) for name in listed["files"]} | {
            place.log,
            *(Path("mlflow").rglob("*") if listed["mlflow"] else ()),
        }
        hits = [path for path, who in held.items() if user in who]
        missing += [f"{user}: {path}" for path in hits if not known & {path, *path.parents}]
        rows.append(
            {
                "user": user,
                "lines": len(lines_of(place.log)[user]),
                "traces": len(traces),
                "adapters": len(adapters),
                "datasets": sum(name.startswith(("ingest-", "curate-")) for name in entries),
                "entries": len(entries),
                "reports": sum(bool(run["report"]) for run in lineage["runs"]),
                "mlflow_traces": len(listed["mlflow"]["traces"]),
                "files_found": len(hits),
                "lineage_s": round(lineage["seconds"], 2),
            }
        )
    return {"rows": rows, "not_listed": missing, "files_searched": files, "bytes_searched": size}


def _names_and_prompts(place: Place, user: str) -> set[str]:
    """What is certainly theirs: other texts (a folder's listing) a policy may write while it plays another's task."""
    records = lines_of(place.log)[user]
    asked = {message["content"] for record in records for message in record["messages"] if message["role"] == "user"}
    return {user} | asked | {str(record[name]) for record in records for name in ("session", "id")}


def check_forgotten(place: Place, users: list[str]) -> dict[str, Any]:
    """Forget them, and search again, for all their texts."""
    needles = needles_of(place.log, users)
    before, _, _ = search(place.roots, needles, place.decode)
    learned = set().union(*(adapters_of(place, user) for user in users))
    weights = {(place.store(name) / "adapter" / "adapter_model.safetensors").read_bytes() for name in learned}
    copies = [path for root in place.roots for path in root.rglob("adapter_model.safetensors") if path.read_bytes() in weights]
    named = [word for user in users for word in ("--user", user)]
    done = place.ask("forget", *named, "--yes", "--rewrite-logs", "--delete-adapters")
    after, files, size = search(place.roots, needles, place.decode)
    left = [path for root in place.roots for path in root.rglob("adapter_model.safetensors") if path.read_bytes() in weights]
    for user in users:
        place.ask("lineage", user, "--as", "user", codes=(2,))
    return {
        "searched_for": sum(map(len, needles.values())),
        "files_before": len(before),
        "adapters_before": len(copies),
        "kinds_before": sorted({path.suffix or path.name for path in before}),
        "databases_before": sorted(path.name for path in before if path.suffix == ".db"),
        "entries_deleted": done["done"]["entries_deleted"],
        "log_lines_deleted": done["done"]["log_lines_deleted"],
        "mlflow_traces_deleted": done["done"]["mlflow_traces_deleted"],
        "own_proof": done["done"]["proof"],
        "seconds": round(done["seconds"], 1),
        "files_after": [str(path) for path in after],
        "adapters_after": [str(path) for path in left],
        "files_searched": files,
        "bytes_searched": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    place = Place(options.profile)
    users = drawn_users(place)
    found: dict[str, Any] = {"machine": machine(1), "lines": check_lines(place)}
    print(json.dumps(found["lines"]), flush=True)
    found["users"] = check_users(place, users)
    print(json.dumps(found["users"], indent=1), flush=True)
    found["forgotten"] = check_forgotten(place, users)
    print(json.dumps(found["forgotten"], indent=1))
    Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
    ends = found["forgotten"]
    assert not (found["users"]["not_listed"] or ends["files_after"] or ends["adapters_after"]), (
        "something is left, or was not listed"
    )


if __name__ == "__main__":
    main()
