"""Episodes of a scripted agent as logs: curation plays them again and loses none."""

import json
import random
import shutil
from pathlib import Path

import pytest

from tracewheel.config import CurateSections, load_config
from tracewheel.core.types import canonical_json
from tracewheel.curation.curate import curate
from tracewheel.environments import make_environment
from tracewheel.environments.base import play_calls
from tracewheel.traces.ingest import ingest

PROFILE = Path(__file__).parents[4] / "configs/smollm2.yaml"
pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


def record(environment, task, calls, number):
    messages = play_calls(environment, task, calls)
    logged = {"kind": task.environment, "initial_state": task.initial_state, "goal": task.goal}
    return {
        "id": f"{environment.kind}-{number}",
        "user": f"user-{number}",
        "created": f"2026-11-{1 + number:02}T08:00:00Z",
        "messages": messages,
        "tools": environment.tools(),
        "environment": logged,
    }


@pytest.mark.parametrize("kind", ["code", "terminal"])
def test_logged_episodes_are_replayed_without_loss(kind, tmp_path):
    environment, rng = make_environment(kind), random.Random(3)
    records = []
    for number, task in enumerate(environment.make_tasks(8, 1)):
        solved = environment.solution(task)
        look = (
            ("run", {"path": solved[0][1].get("path"), "stdin": "3\n"}) if kind == "code" else ("shell", {"command": "ls -R"})
        )
        calls = [solved[0], look, ("submit", {})]
        calls = calls if number % 2 else rng.choice(list(environment.near_misses(task).values()))
        records.append(record(environment, task, calls, number))
    shuffled = [json.loads(canonical_json(one)) for one in records]  # a log may sort the keys of a mapping
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in shuffled))
    config = load_config(PROFILE, [f"ingest.paths=[{tmp_path / 'logs.jsonl'}]", f"environment.kind={kind}"])
    for stage in ("ingested", "curated"):
        (tmp_path / stage).mkdir()
    ingest(config.ingest, tmp_path / "ingested")
    report = curate(CurateSections.of(config), tmp_path / "ingested", tmp_path / "curated")
    assert report["funnel"]["replayed"] == report["funnel"]["traces"] == 8 and report["funnel"]["unscored"] == 0
    assert report["drift"]["observations"] == 0 and report["labels"]["mean_label"]["verified"] == 0.5
    assert report["probes"]["fit"] == report["probes"]["probed"]
