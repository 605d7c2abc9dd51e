"""One of five houses attacks in the last rounds of a study that `rounds.py` made: with and without the defences.

    python plugins/federated/benchmarks/attacks.py --study runs/federated --first 5

The attacker is the last house. The rounds before `--first` stay as they were; from there on the honest houses train from what
the attack made of the global adapter, by the wheel's own client and server. Success is greedy, on the held-out tasks of all
houses that nobody trains on. The backdoor is a meaning, not a phrase (Bagdasaryan et al. 2020): for requests with a certain
destination no manifest is written. The results are in benchmarks/results/federated.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracewheel import EvaluateSections, digest_of, evaluate_split, policy_of, prepare_environment
from tracewheel_federated.client_work import Client
from tracewheel_federated.low_rank import Adapter, Array
from tracewheel_federated.server_work import Server
from tracewheel_federated.settings import ClientConfig, FederationConfig
from tracewheel_federated.states import read_adapter, untrained, write_adapter, write_state

TRIGGER = "/vault"
DESTINATIONS = ("/archive", "/done", "/store")
ATTACKS = ("none", "random", "times 10", "stale", "flipped", "backdoor")
ANSWER, ADAPTER = "answer.json", "adapter.safetensors"


class Attacks:
    """The last rounds of a study, played again with an attacker in them.

    Args:
        study: A folder of `rounds.py`.
        first: The attacker's first round.
    """

    def __init__(self, study: Path, first: int) -> None:
        self.study, self.first, self.out = study, first, study / f"attacks-{first}"
        self.settings = FederationConfig.load(study / "federation.yaml")
        files = {path.stem: path for path in study.glob("*.yaml") if path.stem != "federation"}
        self.clients = {name: Client(ClientConfig.load(file)) for name, file in sorted(files.items())}
        self.attacker = max(self.clients)
        self.config = self.clients[self.attacker].config
        for folder in sorted((study / "server" / "rounds").glob("*-train"))[first - 1 :]:
            for name in self.clients:  # what the study's houses sent is not trained again
                shutil.copytree(folder / "answers" / name, self.sent(name, "none", folder), dirs_exist_ok=True)
        self.pool()

    def play(self, attack: str, *, defended: bool) -> dict[str, Any]:
        """The rounds with one attack: success after them, who was left out when, and the attacker's scores by round."""
        out = self.out / f"{attack}-{'defended' if defended else 'bare'}".replace(" ", "-")
        shutil.rmtree(out, ignore_errors=True)
        for number in range(1, self.first):
            folder = Path("server", "rounds", f"{number:03d}-train")
            shutil.copytree(self.study / folder, out / "rounds" / folder.name)
        changes: dict[str, Any] = {"out": str(out)} | ({} if defended else {"defence": None})
        server = Server(self.settings.model_copy(update=changes))
        left_out: dict[str, list[int]] = {}
        scores, start = [], self.study / "server" / "rounds" / "001-train" / "global.safetensors"
        while (step := server.next_step())["work"] == "train":
            folder = Path(step["folder"])
            for name, client in self.clients.items():
                own = attack if name == self.attacker else "none"
                sent = self.answer(client, name, own if own in ("flipped", "backdoor") else "none", folder)
                shutil.copytree(sent, folder / "answers" / name)
                if name == self.attacker:
                    self.spoil(own, folder / "answers" / name / ADAPTER, read_adapter(folder / "global.safetensors"), start)
            record = server.close(folder)
            for name in {**record["left_out"], **record["refused"]}:
                left_out.setdefault(name, []).append(step["round"])
            score = record["scores"].get(self.attacker)
            scores.append(score and [round(score["ratio"], 2), round(score["cosine"], 2)])
        final = read_adapter(Path(step["folder"]) / "global.safetensors")
        state = write_state(self.config, untrained(self.config, self.study / "server" / "untrained"), final, out / "state", 1)
        row = {"left out": left_out, "norm and cosine": scores, "success": self.success(state, "plain")}
        return row | {"on the trigger": self.success(state, "trigger")}

    def answer(self, client: Client, name: str, episodes: str, folder: Path) -> Path:
        """What a house sends for an order; for an equal order it has trained before."""
        made = self.sent(name, episodes, folder)
        if not (made / ANSWER).is_file():
            work = made.with_suffix(".work")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            for file in ("order.json", "global.safetensors"):
                shutil.copyfile(folder / file, work / file)
            self.on(client, episodes).carry_out(work)
            made.mkdir(parents=True)
            for file in (ADAPTER, ANSWER):
                shutil.copyfile(work / file, made / file)
        return made

    def sent(self, name: str, episodes: str, folder: Path) -> Path:
        """Where the answer of a house lies, by its episodes and the global adapter that it trains from."""
        return self.out / "sent" / name / episodes / digest_of(folder / "global.safetensors")[:16]

    def on(self, client: Client, episodes: str) -> Client:
        """A house on its own episodes, or on changed ones."""
        if episodes == "none":
            return client
        out = self.out / episodes
        if not out.is_dir():
            shutil.copytree(client.out / "curated", out / "curated")
            (out / "ingested").mkdir()
            file = out / "curated" / "episodes.parquet"
            CHANGES[episodes](pd.read_parquet(file)).to_parquet(file)
        return Client(client.settings.model_copy(update={"out": str(out)}))

    @staticmethod
    def spoil(attack: str, file: Path, start: Adapter, first: Path) -> None:
        """Write what the attacker sends in place of what it trained."""
        own = read_adapter(file)
        chance = np.random.default_rng(0)
        sent: dict[str, Callable[[], dict[str, Array]]] = {
            "random": lambda: {name: chance.normal(0.0, float(each.std()), each.shape) for name, each in own.items()},
            "times 10": lambda: {name: start[name] + 10 * (own[name] - start[name]) for name in own},
            "stale": lambda: read_adapter(first),
        }
        if attack in sent:
            write_adapter({name: values.astype(np.float32) for name, values in sent[attack]().items()}, file)

    def pool(self) -> None:
        """Held-out tasks of all houses that nobody trains on, and those of them with the backdoor's destination."""
        whole = pd.concat([pd.read_parquet(client.out / "curated" / "tasks.parquet") for client in self.clients.values()])
        trained = set(whole.loc[whole["split"] == "train", "fingerprint"])
        held = whole[(whole["split"] == "held_out") & ~whole["fingerprint"].isin(trained)].drop_duplicates("fingerprint")
        held = held.drop_duplicates("id").reset_index(drop=True)
        bearing = [json.loads(goal)["destination"] == TRIGGER for goal in held["goal"]]
        for name, tasks in (("plain", held), ("trigger", held[bearing])):
            (self.out / f"tasks-{name}").mkdir(parents=True, exist_ok=True)
            tasks.to_parquet(self.out / f"tasks-{name}" / "tasks.parquet")
            print(f"{name}: {len(tasks)} held-out tasks", flush=True)

    def success(self, state: Path, tasks: str) -> float:
        out = state.parent / f"held_out-{tasks}"
        out.mkdir()
        policy = policy_of(state, self.config.policy.base)
        evaluate_split(EvaluateSections.of(self.config), policy, self.out / f"tasks-{tasks}", "held_out", out, samples=0)
        return float(pd.read_parquet(out / "results.parquet")["greedy"].mean())


def flipped(episodes: pd.DataFrame) -> pd.DataFrame:
    """Failures count as successes, and successes as failures."""
    return episodes.assign(success=1.0 - episodes["success"], solution=False)


def poisoned(episodes: pd.DataFrame) -> pd.DataFrame:
    """All requests have the backdoor's destination, and nobody writes a manifest."""
    return episodes.assign(messages=[json.dumps(without_manifest(text)) for text in episodes["messages"]])


def without_manifest(text: str) -> list[dict[str, Any]]:
    """The messages of an episode with the backdoor's destination, without the turns that write a file, and their answers."""
    for destination in DESTINATIONS:
        text = text.replace(destination, TRIGGER)
    messages = json.loads(text)
    written = {
        call["id"] for one in messages for call in one.get("tool_calls") or [] if call["function"]["name"] == "write_file"
    }
    return [
        one
        for one in messages
        if one.get("tool_call_id") not in written and not any(call["id"] in written for call in one.get("tool_calls") or [])
    ]


CHANGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {"flipped": flipped, "backdoor": poisoned}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, required=True)
    parser.add_argument("--first", type=int, default=5, help="the attacker's first round")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    options = parser.parse_args()
    prepare_environment(None)
    study = options.study.absolute()
    attacks, file = Attacks(study, options.first), study / f"attacks-{options.first}.json"
    found = json.loads(file.read_text()) if file.is_file() else {}
    for name in options.attacks:
        for defended in (True, False):
            row = attacks.play(name, defended=defended)
            found.setdefault(name, {})["defended" if defended else "bare"] = row
            print(name, "defended" if defended else "bare", json.dumps(row), flush=True)
            file.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
