"""Five houses with a fifth of the demo's logs each: each alone, federated, and all logs in one place.

    python plugins/federated/benchmarks/rounds.py --out runs/federated --split user --rounds 5

Each arm goes through the same episodes the same number of times. Success is greedy, on each house's own held-out tasks; a task
that any house trains on is left out. Federated means processes, sockets and TLS, as `tracewheel federated simulate` starts
them. The results are in benchmarks/results/federated.md.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from tracewheel import (
    EvaluateSections,
    WarmStartSections,
    evaluate_split,
    load_config,
    policy_of,
    prepare_environment,
    read_json,
    warm_start,
)
from tracewheel_federated.client_work import Client
from tracewheel_federated.commands.simulate import run as simulate
from tracewheel_federated.server_work import Server
from tracewheel_federated.settings import ClientConfig, FederationConfig

NAMES = ("ash", "birch", "cedar", "elm", "fir")
FAMILIES = ("content", "list", "pattern", "prefix")
EPOCHS = 2  # in a round
CLIP = 1.0  # with --noise; houses change their factors by 0.4 to 1.4 in a round
OWN = 0.8  # of a family's episodes that its house has, in the split by family


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--split", choices=("user", "family"), default="user")
    parser.add_argument("--logs", type=Path, default=Path("data/traces/workspace.jsonl"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="stacked")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--federated-only", action="store_true")
    parser.add_argument("--noise", type=float, help="differential privacy of each house, with this noise")
    parser.add_argument(
        "--in-process", action="store_true", help="the same steps without Flower, for a machine with little time"
    )
    options = parser.parse_args()
    prepare_environment(None)
    study = Study(options)
    study.write()
    if options.in_process:
        study.play()
    else:
        print(json.dumps(simulate(Namespace(federation=str(study.file)))), flush=True)
    print(json.dumps(study.table(), indent=2), flush=True)


class Study:
    """The files of a federation, and what is measured of it."""

    def __init__(self, options: Namespace) -> None:
        self.options = options
        self.out: Path = options.out.absolute()
        self.names = NAMES[: options.clients]
        self.file = self.out / "federation.yaml"
        self.settings = [
            f"seed={options.seed}",
            f"warm_start.epochs={EPOCHS}",
            "warm_start.batch_size=8",
            "warm_start.warmup_steps=2",
            "curation.train_tasks=24",
            "curation.validation_tasks=4",
            "curation.held_out_tasks=40",
            "threads=1",
            "curation.harder_tasks=0",
            *options.overrides,
        ]

    def write(self) -> None:
        """Deal the logs out, and write the files that users would."""
        self.out.mkdir(parents=True, exist_ok=True)
        dealt = deal(self.options.logs, self.options.split, len(self.names))
        for name, lines in zip(self.names, dealt, strict=True):
            logs = self.out / f"{name}.jsonl"
            logs.write_bytes(b"".join(lines))
            client: dict[str, Any] = {
                "name": name,
                "profile": "configs/tiny.yaml",
                "overrides": [*self.settings, f"ingest.paths=[{logs}]"],
                "out": str(self.out / name),
                "keys": str(self.out / "keys" / "clients" / name),
            }
            if self.options.noise:
                client["privacy"] = {"clip": CLIP, "noise": self.options.noise}
            (self.out / f"{name}.yaml").write_text(yaml.safe_dump(client))
        federation = {
            "name": f"by-{self.options.split}",
            "profile": "configs/tiny.yaml",
            "out": str(self.out / "server"),
            "rounds": self.options.rounds,
            "validate_every": 0,
            "aggregation": {"method": self.options.method},
            "server": {"address": "127.0.0.1:9443", "keys": str(self.out / "keys")},
            "clients": [str(self.out / f"{name}.yaml") for name in self.names],
        }
        self.file.write_text(yaml.safe_dump(federation, sort_keys=False))

    def play(self) -> None:
        """The federation's steps one after the other in this process; files stand in for messages."""
        server = Server(FederationConfig.load(self.file))
        clients = {name: Client(ClientConfig.load(self.out / f"{name}.yaml")) for name in self.names}
        while step := server.next_step():
            folder = Path(step["folder"])
            for name, client in clients.items():
                own = client.out / "rounds" / f"by-{self.options.split}" / folder.name
                own.mkdir(parents=True, exist_ok=True)
                for file in ("order.json", "global.safetensors"):
                    shutil.copyfile(folder / file, own / file)
                client.carry_out(own)
                sent = folder / "answers" / name
                sent.mkdir(parents=True, exist_ok=True)
                for file in ("answer.json", "adapter.safetensors"):
                    if (own / file).is_file():
                        shutil.copyfile(own / file, sent / file)
            server.close(folder)
            print(folder.name, flush=True)

    def table(self) -> dict[str, Any]:
        """Success by house of the base, each house alone, federated and centralised; and what the federation sent."""
        rows: dict[str, dict[str, float]] = {}
        clean = self.clean()
        config = load_config("configs/tiny.yaml", self.settings)
        policies = {}
        if not self.options.federated_only:
            policies["centralised"] = policy_of(
                self.train("centralised", self.pooled(), batch=8 * len(self.names)), config.policy.base
            )
        judged = f"rounds/by-{self.options.split}/{self.options.rounds:03d}-judge/after"
        for name in self.names:
            curated = self.out / name / "curated"
            found = {"base": self.out / name / "champion-held_out", "federated": self.out / name / judged}
            own = dict(policies)
            if not self.options.federated_only:
                own["alone"] = policy_of(self.train(f"alone-{name}", curated), config.policy.base)
            for arm, policy in own.items():
                found[arm] = self.out / "held_out" / arm / name
                if not found[arm].is_dir():
                    found[arm].mkdir(parents=True)
                    evaluate_split(EvaluateSections.of(config), policy, curated, "held_out", found[arm], samples=0)
            for arm, folder in found.items():
                results = pd.read_parquet(folder / "results.parquet").set_index("task_id")["greedy"]
                rows.setdefault(arm, {})[name] = float(results[clean[name]].mean())
        return {"success": rows, "mean": {arm: sum(row.values()) / len(row) for arm, row in rows.items()}, **self.sizes()}

    def clean(self) -> dict[str, list[str]]:
        """By house, the held-out tasks that nobody trains on."""
        tasks = {name: pd.read_parquet(self.out / name / "curated" / "tasks.parquet") for name in self.names}
        trained = {print_ for each in tasks.values() for print_ in each.loc[each["split"] == "train", "fingerprint"]}
        held = {name: each[each["split"] == "held_out"] for name, each in tasks.items()}
        kept = {name: each.loc[~each["fingerprint"].isin(trained), "id"].tolist() for name, each in held.items()}
        print({name: f"{len(kept[name])} of {len(held[name])} held-out tasks" for name in self.names}, flush=True)
        return kept

    def pooled(self) -> Path:
        """The training episodes of all houses in one folder."""
        out = self.out / "pooled"
        out.mkdir(exist_ok=True)
        for file in ("episodes.parquet", "tasks.parquet"):
            parts = [pd.read_parquet(self.out / name / "curated" / file) for name in self.names]
            whole = pd.concat([part[part["split"] == "train"] for part in parts], ignore_index=True)
            whole.to_parquet(out / file)
        return out

    def train(self, name: str, curated: Path, batch: int = 8) -> Path:
        """A warm start of as many epochs as the federation has in all rounds."""
        out = self.out / name
        if not out.is_dir():
            out.mkdir()
            more = [f"warm_start.epochs={EPOCHS * self.options.rounds}", f"warm_start.batch_size={batch}"]
            config = load_config("configs/tiny.yaml", [*self.settings, *more])
            warm_start(WarmStartSections.of(config), curated, out, config.warm_start.demonstrations)
        return out

    def sizes(self) -> dict[str, Any]:
        """What all clients sent in adapters, beside what the base's weights would have been."""
        rounds = read_json(self.out / "server" / "lineage.json")["rounds"]
        sent = sum(sum(step["bytes"].values()) for step in rounds)
        base = Path("data/base/model.safetensors").stat().st_size
        return {
            "sent": sent,
            "full": base * sum(len(step["bytes"]) for step in rounds),
            "errors": [step["error"] for step in rounds],
        }


def deal(logs: Path, split: str, clients: int) -> list[list[bytes]]:
    """Each client's lines: all of a user's at one client, or most of a family's."""
    chance, dealt, users = random.Random(0), [[] for _ in range(clients)], {}
    for line in lines_of(logs):
        record = json.loads(line)
        if split == "user":
            place = users.setdefault(record.get("user"), len(users) % clients)
        else:
            family = FAMILIES.index(record["environment"]["goal"]["selector"]["kind"])
            place = family % clients if chance.random() < OWN else clients - 1
        dealt[place].append(line)
    return dealt


def lines_of(logs: Path) -> Iterable[bytes]:
    """The lines that are records of conversations; the demo's log has a few that are not."""
    for line in logs.read_bytes().splitlines(keepends=True):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("environment"), dict):
            yield line


if __name__ == "__main__":
    main()
