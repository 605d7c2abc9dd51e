"""A candidate over nights of the whole loop: real stages, with evaluations that say how good each policy is."""

import json
from pathlib import Path

import pytest
import yaml

from flows.retrain import run_alone
from tasks.engine.drivers import DirectDriver
from tasks.stages import evaluate
from tracewheel.core.files import read_records
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.types import Score, Trajectory, content_hash
from tracewheel.evaluation import evaluate as module
from tracewheel.scoring.score import write_scores

NIGHTS = (400, 500, 600, 700)
PLAN = ["gate.confidence=0.8", "gate.gates_per_year=2", "training.iterations=1"]


class Nights:
    """Runs of a work folder, each on more logs. `good` is the success of each policy in the order in which they come up."""

    def __init__(self, profile, folder, good):
        values = yaml.safe_load(profile.read_text())
        self.logs = Path(values["ingest"]["paths"][0]).read_bytes().splitlines(keepends=True)
        values |= {"ingest": {"paths": [str(folder / "logged")]}, "name": "nights"}
        values["curation"] = {"train_tasks": 8, "validation_tasks": 8, "held_out_tasks": 24, "harder_tasks": 0}
        values["evaluation"] = {"samples": 1, "pass_at": [1]}
        values["comparison"] = {"warm_starts": "one", "policies": "gate", "aa": False}
        (folder / "logged").mkdir()
        self.profile, self.work, self.good, self.known = folder / "nights.yaml", folder / "run", good, {}
        self.profile.write_text(yaml.safe_dump(values))
        self.log = folder / "logged" / "log.jsonl"
        self.played = []

    def run(self, night, *overrides):
        self.log.write_bytes(b"".join(self.logs[: NIGHTS[night]]))
        return run_alone(str(self.profile), [*PLAN, *overrides], str(self.work), DirectDriver())

    def evaluate(self, config, policy, curated, split, out, **more):
        """An evaluation with the scores of `scored`."""
        name = digest_of(Path(policy.adapter)) if policy.adapter else "base"
        self.share = 0.0 if name == "base" else self.good[self.known.setdefault(name, len(self.known))]
        self.played.append(split)
        return module.evaluate_split(config, policy, curated, split, out, **more)

    def scored(self, config, rubric, tasks, episodes, out):
        """A policy succeeds on its share of the tasks, the same ones as any worse policy."""
        order = {task_id: place for place, task_id in enumerate(sorted((task.id for task in tasks), key=content_hash))}
        wins = {task_id: float(place < self.share * len(tasks) - 1e-9) for task_id, place in order.items()}
        rows = read_records(episodes / "trajectories.parquet", Trajectory)
        scores = [
            Score(row.id, row.task_id, row.group, "scored", wins[row.task_id], {"success": wins[row.task_id]}) for row in rows
        ]
        write_scores(out / "scores.parquet", scores)
        return scores

    @property
    def ledger(self):
        return json.loads((self.work / "gates.json").read_text())

    @property
    def candidates(self):
        return [line for line in self.ledger if "candidate" in line]


@pytest.fixture
def nights(profile, tmp_path, monkeypatch):
    def make(*good):
        found = Nights(profile, tmp_path, good)
        monkeypatch.setattr(evaluate, "evaluate_split", found.evaluate)
        monkeypatch.setattr(module, "_scored", found.scored)
        return found

    return make


def test_a_promising_challenger_waits_and_is_promoted_on_fresh_tasks(nights, capsys):
    """The warm start solves 40%, the first challenger 65%; the second, trained from it, is worse; then the first is proven."""
    found = nights(0.4, 0.65, 0.6, 0.0)
    first = found.run(0)
    assert first["gate"]["verdict"] == "refused" and first["gate"]["cause"] == "waits"
    (line,) = found.candidates
    assert line["run"] == first["run_id"] and line["verdict"] == "waiting" if "verdict" in line else True
    second = found.run(1)
    assert second["gate"]["baseline"] == "candidate" and second["candidate"]["verdict"] == "waiting"
    assert second["candidate"]["candidate"]["nights"][0]["tasks"] == 24
    assert len([line for line in found.ledger if "candidate" not in line]) == 1, "a screen is no look"
    third = found.run(2)
    assert third["gate"]["verdict"] == "promoted" and third["gate"]["pairs"] == 48
    assert [night["tasks"] for night in third["candidate"]["candidate"]["nights"]] == [24, 48]
    assert digest_of(Path(third["adapter"])) == line["candidate"]["digest"]
    assert json.loads((found.work / "champion.json").read_text())["digest"] == line["candidate"]["digest"]
