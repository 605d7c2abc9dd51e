"""A second run: it starts from the champion and is compared with it."""

import json
import shutil
from pathlib import Path

import pytest

from flows.commands.dry_run import make_plan
from flows.retrain import retrain
from flows.setup import resolve_config
from tasks.engine.reading import begin_run
from tasks.engine.run import Run
from tasks.tracking.registry import find_champion, register
from tasks.tracking.tracking import Tracking
from tests.stretches import read_stretch
from tracewheel.core.files import read_json
from tracewheel.lineage.backward import parent_of, trace_back
from tracewheel.lineage.forward import affected
from tracewheel.lineage.work_folder import WorkFolder, stage_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def crowned(finished, profile, tmp_path_factory):
    """A copy of the complete run, whose last update is made champion whatever the gate decided."""
    folder = tmp_path_factory.mktemp("crowned") / "runs"
    shutil.copytree(finished[0], folder)
    config = resolve_config(str(profile), [], str(folder))
    run = begin_run(config)
    updates = [path for path in run.store.root.iterdir() if path.name.startswith("update-")]
    adapter = next(path / "adapter" for path in updates if read_json(path / "adapter" / "adapter.json")["version"] == 2)
    tracking = Tracking.open(config, run.record)
    with tracking.closing():
        version = register(Run(config, run.store, run.record, tracking=tracking), adapter, {"verdict": "promoted"})
    return folder, version


@pytest.mark.usefixtures("prefect_harness")
def test_the_next_run_starts_from_the_champion_and_is_compared_with_it(crowned, profile):
    folder, version = crowned
    summary = retrain(str(profile), ["learner.kl=0.02"], str(folder))
    start = json.loads((folder / summary["run_id"] / "start.json").read_text())
    assert start["champion"]["version"] == version
    assert start["sampler"]["evidence"]
    assert list(summary["success"]) == ["deployed", "base", "warm_start", "warm_start_verified", "champion", "rl"]
    assert summary["gate"]["baseline"] == "champion"
    champion, _ = find_champion(resolve_config(str(profile), [], str(folder)))
    expected = summary["model_version"] if summary["gate"]["verdict"] == "promoted" else version
    assert champion.version == expected
    assert {"ingest", "curate", "warm_start"} <= set(summary["cached"])
    leads_back_through_the_champion(folder, summary["run_id"])


def leads_back_through_the_champion(folder, run):
    """The adapter learned from what the champion's own run learned from, down to the log lines."""
    known = WorkFolder(folder)
    chosen = known.runs[run].lineage["policies"]["rl"]["entry"]
    back = trace_back(known, chosen, limit=10**9)
    (champion,) = [name for name in back.entries if stage_of(name) == "champion"]
    parent = parent_of(known, champion)
    earlier = trace_back(known, parent, limit=10**9)
    assert stage_of(parent) == "update" and set(earlier.entries) <= set(back.entries)
    assert "demonstration" in earlier.roads() and set(earlier.learned["trace_id"]) <= set(back.learned["trace_id"])
    lines = {trace: places for found in back.lines.values() for trace, places in found.stretches.items()}
    log = ROOT / "data" / "traces" / "workspace.jsonl"
    for trace in set(earlier.learned["trace_id"]):
        (place,) = lines[trace]
        assert trace.startswith(json.loads(read_stretch(log, place))["id"])
    imitated = set(earlier.learned.loc[earlier.learned["road"] == "demonstration", "trace_id"])
    held = affected(known, "trace", [min(imitated)]).holds
    assert {parent, champion, chosen} <= set(held)


def test_without_comparisons_a_run_from_a_champion_has_no_warm_start(crowned, profile):
    folder, _ = crowned
    config = resolve_config(str(profile), ["comparison={}", "learner.kl=0.03"], str(folder))
    planned = {stage["stage"]: stage["results"] for stage in make_plan(begin_run(config))["stages"]}
    assert "warm_start" not in planned
    assert planned["evaluate"] == 3 + 2 * 2, "the start and two iterations on validation, two policies on two splits"


@pytest.mark.usefixtures("prefect_harness")
def test_another_run_folder_has_no_champion(crowned, profile, tmp_path):
    assert find_champion(resolve_config(str(profile), [], str(tmp_path))) == (None, "no champion yet")
