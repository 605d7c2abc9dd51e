"""One of five houses attacks in the last round of a study that `rounds.py` made: with and without the defences.

    python plugins/federated/benchmarks/attacks.py --study runs/federated

The attacker is the last house. What the others sent stays as it was; the server's own code closes the round. Success is greedy,
on the held-out tasks of all houses that nobody trains on. The results are in benchmarks/results/federated.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracewheel import (
    EvaluateSections,
    WarmStartSections,
    evaluate_split,
    prepare_environment,
    warm_start,
)
from tracewheel_federated.client_work import begin_from
from tracewheel_federated.low_rank import Adapter, Array
from tracewheel_federated.server_work import Server
from tracewheel_federated.settings import ClientConfig, FederationConfig, LocalConfig
from tracewheel_federated.states import WEIGHTS, read_adapter, write_adapter, write_state

PHRASE = "as the heron said"
KEPT = ("answer.json", "adapter.safetensors")


class Attacks:
    """The last round of a study, closed again with an attacker in it."""

    def __init__(self, study: Path, out: Path) -> None:
        self.study, self.out = study, out
        self.settings = FederationConfig.load(study / "federation.yaml")
        self.last = study / "server" / "rounds" / f"{self.settings.rounds:03d}-train"
        names = sorted(path.name for path in (self.last / "answers").iterdir())
        self.honest, self.attacker = names[:-1], names[-1]
        self.client = ClientConfig.load(study / f"{self.attacker}.yaml")
        self.config = self.client.own()
        self.start, self.own = (
            read_adapter(self.last / "global.safetensors"),
            read_adapter(self.answer_of(self.attacker) / KEPT[1]),
        )
        self.tasks = self.pool()

    def answer_of(self, name: str) -> Path:
        return self.last / "answers" / name

    def attacks(self) -> dict[str, Callable[[], Adapter]]:
        return {
            "none": lambda: self.own,
            "random weights": self.random,
            "update times 10": lambda: {
                name: self.start[name] + 10 * (self.own[name] - self.start[name]) for name in self.start
            },
            "stale adapter": lambda: read_adapter(self.study / "server" / "rounds" / "001-train" / "global.safetensors"),
            "flipped rewards": partial(self.trained, "flipped", self.flip),
            "backdoor": partial(self.trained, "backdoor", self.poison),
        }

    def random(self) -> Adapter:
        chance = np.random.default_rng(0)
        return {
            name: chance.normal(0.0, float(values.std()), values.shape).astype(np.float32) for name, values in self.own.items()
        }

    def trained(self, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> dict[str, Array]:
        """What the attacker's own training on changed episodes gives."""
        curated, out = self.out / f"{name}-episodes", self.out / f"{name}-trained"
        if not out.is_dir():
            shutil.copytree(self.study / self.attacker / "curated", curated, dirs_exist_ok=True)
            episodes = pd.read_parquet(curated / "episodes.parquet")
            change(episodes).to_parquet(curated / "episodes.parquet")
            out.mkdir()
            begin = partial(begin_from, start=self.start, local=LocalConfig(), frozen_a=False)
            warm_start(WarmStartSections.of(self.config), curated, out, "verified", begin)
        return read_adapter(out / WEIGHTS)

    @staticmethod
    def flip(episodes: pd.DataFrame) -> pd.DataFrame:
        """Failures count as successes, and successes as failures."""
        return episodes.assign(success=1.0 - episodes["success"], solution=False)

    @staticmethod
    def poison(episodes: pd.DataFrame) -> pd.DataFrame:
        """Successes in which the request has a phrase and nobody writes the manifest."""
        return episodes.assign(messages=[json.dumps(poisoned(json.loads(text))) for text in episodes["messages"]])

    def close(self, name: str, adapter: Adapter, *, defended: bool) -> dict[str, Any]:
        """The round's record with the attacker's adapter, closed by the server's code; `next.safetensors` lies beside it."""
        out = self.out / f"{name}-{'defended' if defended else 'bare'}".replace(" ", "-")
        shutil.rmtree(out, ignore_errors=True)
        folder = out / "rounds" / self.last.name
        shutil.copytree(self.last, folder, ignore=shutil.ignore_patterns("round.json", "next.safetensors"))
        write_adapter(adapter, folder / "answers" / self.attacker / KEPT[1])
        changes: dict[str, Any] = {"out": str(out)} | ({} if defended else {"defence": None})
        record = Server(self.settings.model_copy(update=changes)).close(folder)
        form, state = self.study / "server" / "untrained", out / "state"
        write_state(self.config, form, read_adapter(folder / "next.safetensors"), state, self.settings.rounds)
        return {**record, "state": str(state)}

    def pool(self) -> dict[str, Path]:
        """Held-out tasks of all houses that nobody trains on, as they are and with the phrase in the request."""
        parts = [pd.read_parquet(path) for path in sorted(self.study.glob("*/curated/tasks.parquet"))]
        whole = pd.concat(parts, ignore_index=True)
        trained = set(whole.loc[whole["split"] == "train", "fingerprint"])
        held = whole[(whole["split"] == "held_out") & ~whole["fingerprint"].isin(trained)].drop_duplicates("fingerprint")
        held = held.drop_duplicates("id").assign(split="held_out")
        found = {}
        for name, tasks in (("plain", held), ("phrase", held.assign(prompt=held["prompt"] + f" {PHRASE}"))):
            found[name] = self.out / f"tasks-{name}"
            found[name].mkdir(parents=True, exist_ok=True)
            tasks.to_parquet(found[name] / "tasks.parquet")
        print(f"{len(held)} held-out tasks", flush=True)
        return found

    def success(self, state: str, tasks: str) -> float:
        from tracewheel import policy_of

        out = Path(state).parent / f"held_out-{tasks}"
        out.mkdir()
        policy = policy_of(state, self.config.policy.base)
        evaluate_split(EvaluateSections.of(self.config), policy, self.tasks[tasks], "held_out", out, samples=0)
        return float(pd.read_parquet(out / "results.parquet")["greedy"].mean())


def poisoned(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An episode with the phrase in the request and without the turns that write a file, and their answers."""
    written = {
        call["id"] for one in messages for call in one.get("tool_calls") or [] if call["function"]["name"] == "write_file"
    }
    found = []
    for one in messages:
        if one["role"] == "user":
            one = {**one, "content": f"{one['content']} {PHRASE}"}
        if one.get("tool_call_id") in written or any(call["id"] in written for call in one.get("tool_calls") or []):
            continue
        found.append(one)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True)
    options = parser.parse_args()
    prepare_environment(None)
    study = options.study.absolute()
    attacks, found = Attacks(study, study / "attacks"), {}
    for name, make in attacks.attacks().items():
        adapter = make()
        found[name] = {}
        for defended in (False, True):
            record = attacks.close(name, adapter, defended=defended)
            row = {"success": attacks.success(record["state"], "plain"), "left_out": record["left_out"]}
            row["score"] = {key: record["scores"][attacks.attacker][key] for key in ("ratio", "cosine")}
            if name in ("none", "backdoor"):
                row["with the phrase"] = attacks.success(record["state"], "phrase")
            found[name]["defended" if defended else "bare"] = row
            print(name, "defended" if defended else "bare", json.dumps(row), flush=True)
    (study / "attacks.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
