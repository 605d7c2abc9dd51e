"""Learning from logs without a simulator: real conversations become demonstrations and pairs, and failures are counted."""

import json
from pathlib import Path

import pandas
import pytest

from flows.cli import main

AIRLINE = Path(__file__).parents[4] / "shared/traces/tau_bench/gpt-4o-airline.tasks0-24.json"
pytestmark = pytest.mark.skipif(not AIRLINE.exists(), reason="the shared traces are not beside the checkout")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The file as a stranger would begin with it: ingested and recorded."""
    folder = tmp_path_factory.mktemp("airline")
    assert main(["ingest", str(AIRLINE), "--out", str(folder / "ingested")]) == 0
    assert main(["data", "record", str(folder / "ingested"), "--out", str(folder / "recorded")]) == 0
    return folder


@pytest.fixture(scope="module")
def curated(folder):
    def curated(name, *settings):
        profile = {"name": "airline", "environment": {"kind": f"recorded:{folder / 'recorded'}"}}
        (folder / "profile.yaml").write_text(json.dumps(profile))
        options = [part for setting in settings for part in ("--set", setting)]
        command = ["curate", str(folder / "profile.yaml"), "--traces", str(folder / "ingested"), "--out", str(folder / name)]
        assert main([*command, *options]) == 0
        return folder / name

    return curated


@pytest.fixture(scope="module")
def episodes(curated):
    return curated("episodes", "curation.sets.sources=[logged]")


def test_logged_rewards_make_demonstrations_and_pairs_of_real_conversations(folder, episodes):
    """100 traces of 25 tasks, 31 of them successes; 15 tasks have one, and 2 of these are solved by doing nothing."""
    report = json.loads((episodes / "report.json").read_text())
    assert report["funnel"]["recorded"] == {
        "by": "episode", "traces": {"success": 31, "failure": 69, "unknown": 0},
        "traces_used": {"success": 31, "failure": 69, "unknown": 0}, "records": 100, "left_out": {"no user message": 0},
    }  # fmt: skip
    assert report["probes"]["dropped"] == {"no success is logged": 10, "solved by doing nothing": 2}
    assert report["funnel"]["unscored"] == 0 and report["labels"]["outcomes"]["logged"] == 52
    outcomes = pandas.read_parquet(folder / "ingested/traces.parquet").set_index("id")["outcome"]
    demonstrations, pairs = (
        pandas.read_parquet(episodes / f"sets/{name}.parquet") for name in ("demonstrations", "preference_pairs")
    )
    assert (len(demonstrations), len(pairs)) == (12, 17)
    assert set(outcomes[demonstrations["trace_id"]]) == set(outcomes[pairs["chosen_trace"]]) == {1.0}
    assert set(outcomes[pairs["rejected_trace"]]) == {0.0} and set(pairs["shared"]) == {"calls"}
    for chosen, rejected in zip(pairs["chosen"], pairs["rejected"], strict=True):
        assert json.loads(chosen)[0]["role"] == json.loads(rejected)[0]["role"] == "assistant" and chosen != rejected


def test_success_is_the_logs_and_not_a_traces_likeness_to_itself(folder, episodes, curated):
    report = json.loads((episodes / "report.json").read_text())
    rows = pandas.read_parquet(episodes / "episodes.parquet")
    logged = rows["trace_id"].map(pandas.read_parquet(folder / "ingested/traces.parquet").set_index("id")["outcome"])
    for split in ("train", "validation", "held_out"):
        assert report["deployed"][split]["success"] == pytest.approx(logged[rows["split"] == split].mean()), split
    assert 0.2 < logged.mean() < 0.5
    # A turn has no reward of its own, and nothing but itself to be compared with.
    turns = json.loads((curated("turns", "curation.by=turn") / "report.json").read_text())
    assert turns["deployed"]["train"] == {
        "episodes": 60, "unscored": 60, "success": None, "families": {}, "tiers": {},
    }  # fmt: skip
    recorded = turns["funnel"]["recorded"]
    assert (recorded["by"], recorded["records"]) == ("turn", 100) and recorded["traces"]["failure"] == 69
    assert recorded["traces_used"] == {"success": 29, "failure": 0, "unknown": 0}
    assert recorded["left_out"] == {"no successful trace calls a tool after this conversation": 760}


def test_known_solutions_are_what_a_warm_start_imitates(folder, episodes, curated):
    from tracewheel.config import WarmStartConfig
    from tracewheel.learner.warm_start.selection import episodes_to_imitate

    for name, count in (("episodes", 12), ("turns", 60)):
        place = episodes if name == "episodes" else curated(name, "curation.by=turn")
        chosen = episodes_to_imitate(WarmStartConfig(), place, "verified")
        assert len(chosen) == count and set(chosen["split"]) == {"train"} and chosen["solution"].all()
