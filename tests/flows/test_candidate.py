"""A candidate over nights of the whole loop: real stages, with evaluations that say how good each policy is."""

import json
import shutil
from copy import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from flows.retrain import run_alone
from flows.setup import resolve_config
from tasks.engine.drivers import DirectDriver
from tasks.engine.run import Run
from tasks.records.housekeeping import needed
from tasks.stages import evaluate
from tasks.stages.candidate import confirm
from tracewheel.core.files import read_records
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.types import Score, Trajectory, content_hash
from tracewheel.evaluation import evaluate as module
from tracewheel.scoring.score import write_scores
from tracewheel.traces.forgotten import NOBODY

NIGHTS = (400, 500, 600, 700)
PLAN = [
    "gate.confidence=0.8",
    "gate.gates_per_year=2",
    "training.iterations=1",
    "training.tasks_per_iteration=16",
    "tracking.traces_per_evaluation=0",
]


class Nights:
    """Runs of a work folder, each on more logs. `good` is the success of each policy in the order in which they come up."""

    def __init__(self, profile, folder, good):
        values = yaml.safe_load(profile.read_text())
        self.logs = Path(values["ingest"]["paths"][0]).read_bytes().splitlines(keepends=True)
        values |= {"ingest": {"paths": [str(folder / "logged")]}, "name": "nights"}
        values["curation"] = {"train_tasks": 24, "validation_tasks": 4, "held_out_tasks": 24, "harder_tasks": 0}
        values["evaluation"] = {"samples": 1, "pass_at": [1]}
        values["comparison"] = {"warm_starts": "one", "policies": "gate", "aa": False}
        (folder / "logged").mkdir()
        self.profile, self.work, self.good, self.known = folder / "nights.yaml", folder / "run", good, {}
        self.profile.write_text(yaml.safe_dump(values))
        self.log = folder / "logged" / "log.jsonl"
        self.played, self.on_reserve = [], 1.0

    def patch(self, monkeypatch):
        monkeypatch.setattr(evaluate, "evaluate_split", self.evaluate)
        monkeypatch.setattr(module, "_scored", self.scored)

    def run(self, night, *overrides):
        self.log.write_bytes(b"".join(self.logs[: NIGHTS[night]]))
        return run_alone(str(self.profile), [*PLAN, *overrides], str(self.work), DirectDriver())

    def evaluate(self, config, policy, curated, split, out, **more):
        """An evaluation with the scores of `scored`."""
        name = digest_of(Path(policy.adapter)) if policy.adapter else "base"
        self.share = 0.0 if name == "base" else self.good[self.known.setdefault(name, len(self.known))]
        self.share = min(self.share, self.on_reserve) if split == "reserve" else self.share
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

    def begun(self, line):
        """A run that has just begun, in a work folder whose ledger has this line too."""
        (self.work / "gates.json").write_text(json.dumps([*self.ledger, line]))
        return Run.on(resolve_config(str(self.profile), PLAN, str(self.work)), "begun")

    @property
    def ledger(self):
        return json.loads((self.work / "gates.json").read_text())

    @property
    def candidates(self):
        return [line for line in self.ledger if "candidate" in line]


@pytest.fixture(scope="module")
def first_night(profile, tmp_path_factory):
    """The warm start solves 40% of the tasks, the challenger of the first night 65%."""
    folder = tmp_path_factory.mktemp("nights")
    found = Nights(profile, folder, (0.4, 0.65))
    with pytest.MonkeyPatch.context() as patch:
        found.patch(patch)
        return found, found.run(0)


@pytest.fixture
def second(first_night, tmp_path, monkeypatch):
    """The work folder after the first night, moved, with the success of the policies of the nights to come."""

    def make(*good):
        found = copy(first_night[0])
        found.work, found.known, found.played = tmp_path / "moved", dict(found.known), []
        found.good = (*found.good, *good)
        shutil.copytree(first_night[0].work, found.work)
        found.patch(monkeypatch)
        return found

    return make


def test_a_challenger_that_is_not_proven_waits(first_night):
    found, summary = first_night
    gate, (line,) = summary["gate"], found.candidates
    assert (gate["verdict"], gate["cause"], gate["look"]) == ("refused", "waits", 1)
    assert line["run"] == summary["run_id"] and line["candidate"]["digest"] == digest_of(Path(summary["adapter"]))
    assert 0.0 < line["level"] < 0.1 and line["candidate"]["nights"] == []
    kept = needed(resolve_config(str(found.profile), PLAN, str(found.work)), keep=0).entries
    assert {line["candidate"]["weights"], *line["candidate"]["screens"]} <= kept, "gc keeps what the next night needs"


def test_it_keeps_its_evidence_through_a_kill_and_is_promoted_when_it_is_proven(second, run, monkeypatch):
    """The second night's challenger, trained from it, is worse; the run is killed after the look, and resumed."""
    found = second(0.6)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("flows.retrain.improve", killed)
        found.run(1)
    noted = found.ledger
    assert found.played.count("reserve") == 2 and noted[-1]["verdict"] == "waiting"
    summary = found.run(1)
    assert found.ledger == noted, "a run that is resumed spends nothing twice, and a screen is no look"
    assert found.played.count("reserve") == 2
    assert summary["gate"]["baseline"] == "candidate" and summary["gate"]["verdict"] == "refused"
    assert summary["candidate"]["candidate"]["nights"][0]["tasks"] == 24
    _, out, _ = run("runs", "status", found.profile, "--run-dir", found.work)
    assert f"of run {noted[-1]['run']}, not proven yet: +25.0 points" in " ".join(out.split())

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tasks.stages.champion.register", killed)
        found.run(2)
    assert found.ledger[-1]["verdict"] == "waiting" and found.ledger[-1]["why"].startswith("proven")
    summary = found.run(2)
    assert summary["gate"]["verdict"] == "promoted" and summary["gate"]["pairs"] == 48
    assert found.played.count("reserve") == 4
    (line,) = found.candidates
    assert line["verdict"] == "promoted" and [night["tasks"] for night in line["candidate"]["nights"]] == [24, 48]
    assert sum(night["level"] for night in line["candidate"]["nights"]) <= line["level"]
    assert digest_of(Path(summary["adapter"])) == line["candidate"]["digest"]
    assert json.loads((found.work / "champion.json").read_text())["digest"] == line["candidate"]["digest"]
    plan = json.loads(run("retrain", found.profile, "--run-dir", found.work, "--dry-run", "--json", *sets())[1])
    assert plan["complete"], plan["made"]


def test_it_is_dropped_where_fresh_tasks_do_not_show_it(second):
    """On the reserve it is no better than the warm start; the night goes on without it."""
    found = second()
    found.on_reserve, started = 0.4, []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("flows.retrain.without_rl", lambda run, curated, start: started.append(start) or killed())
        found.run(1)
    (line,) = found.candidates
    assert line["verdict"] == "dropped" and "not better: +0.0 points" in line["why"] and started == [None]


def test_it_ends_where_its_weights_are_gone_or_another_champion_came(second):
    """As after `forget`, a promotion by hand, or `champion rollback`; nothing is played."""
    found = second()
    (line,) = found.candidates
    digest = line["candidate"]["digest"]
    for evidence, change, champion, why in (
        ("gone", {"weights": "update-gone"}, "", "are gone from the store"),
        ("none", {"champion": "other"}, "", "the champion that it was compared with is none any more"),
        ("back", {"champion": "other"}, "before", "another champion came since"),
        ("hand", {}, digest, "it is champion already"),
        ("learnt", {"digest": "theirs"}, "", "learnt from somebody who was forgotten since"),
    ):
        NOBODY.adding([], ["theirs"]).write(found.work)
        run = found.begun(line | {"evidence": evidence, "candidate": line["candidate"] | change})
        curated = SimpleNamespace(path=next((found.work / "store").glob("curate-*")))
        start = {"champion": {"digest": champion} if champion else None, "candidate": evidence}
        assert confirm(run, start, curated, beat=None, false_accepts=None) is None
        (ended,) = [line for line in found.ledger if line["evidence"] == evidence]
        assert ended["verdict"] == "ended" and why in ended["why"] and found.played == []


def test_a_better_challenger_that_was_trained_from_it_takes_its_place(second):
    found = second(0.95)
    found.run(1)
    old, new = found.candidates
    assert old["verdict"] == "replaced" and new["candidate"]["nights"] == []
    assert new["candidate"]["screens"][0] == old["candidate"]["screens"][0] and new["baseline"] == old["baseline"]


def killed(*_arguments):
    raise KeyboardInterrupt


def sets():
    return [word for setting in PLAN for word in ("--set", setting)]
