"""Specialists in one run: the tasks they see, what they start from, and the fate of their merges."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from flows.setup import resolve_config
from flows.specialists import improve_specialists
from tasks.engine.reading import begin_run
from tasks.stages.curate import curate_tasks
from tasks.stages.ingest import ingest_traces
from tasks.stages.warm_start import warm_start_policy
from tracewheel.core.files import read_json
from tracewheel.policy.merge import MERGES_FILE
from tracewheel.sampling.curriculum import make_sampler

GROUPS = {"names": ["pattern", "prefix"], "contents": ["list", "content"]}


@pytest.fixture(scope="module")
def specialists(profile, prefect_harness, tmp_path_factory):
    """A loop with two specialists, one with its own adapter shape: the run and its result."""
    folder = tmp_path_factory.mktemp("specialists")
    values = yaml.safe_load(Path(profile).read_text())
    values["curation"]["train_tasks"] = 12
    values["training"] |= {"iterations": 2, "tasks_per_iteration": 3, "validate_every": 2}
    values["training"]["specialists"] = {
        "groups": GROUPS,
        "iterations": 1,
        "merges": [{"method": "linear"}, {"method": "dare_ties", "density": 0.2}],
    }
    values["warm_start"]["lora"] = {"families": {family: {"rank": 4, "alpha": 8} for family in GROUPS["contents"]}}
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))

    def learn():
        run = begin_run(resolve_config(str(path), [], str(folder / "run")))
        with run.hold():
            traces = ingest_traces(run, snapshot=run.snapshot)
            curated = curate_tasks(run, traces=traces)
            start = warm_start_policy(run, curated=curated, demonstrations="verified")
            sampler = make_sampler(run.config, curated.path)
            return run, curated, improve_specialists(run, curated, run.adapted("start", start), sampler), sampler

    return learn


@pytest.fixture(scope="module")
def learned(specialists):
    return specialists()


def entries(run, stage):
    return [entry for entry in run.used if entry.stage == stage]


def test_specialists_are_trained_on_tasks_of_their_families(learned):
    run, curated, _, _ = learned
    families = pd.read_parquet(curated.path / "tasks.parquet").set_index("id")["family"]
    seen = [set(families[pd.read_parquet(entry.path / "trajectories.parquet")["task_id"]]) for entry in entries(run, "rollout")]
    assert len(seen) == len(GROUPS)
    for found, wanted in zip(seen, GROUPS.values(), strict=True):
        assert found
        assert found <= set(wanted)


def test_iterations_are_numbered_consecutively_and_merges_follow(learned):
    _, _, found, _ = learned
    assert list(found.updates) == [1, 2]
    names = [candidate.policy.name for candidate in found.candidates]
    assert names[:3] == ["start", "names-1", "contents-1"]
    assert [candidate.iteration for candidate in found.candidates] == sorted({c.iteration for c in found.candidates})


def test_a_specialist_with_its_own_shape_starts_from_a_warm_start_of_that_shape(learned):
    run, _, found, _ = learned
    ranks = {
        candidate.policy.name: json.loads((candidate.policy.weights / "adapter_config.json").read_text())["r"]
        for candidate in found.candidates
    }
    assert (ranks["names-1"], ranks["contents-1"]) == (16, 4)
    assert len(entries(run, "warm_start")) == 2


def test_every_merge_is_evaluated_and_accepted_ones_are_candidates(learned):
    run, _, found, _ = learned
    records = read_json(run.record.path / MERGES_FILE)
    assert [record["merge"] for record in records] == ["linear", "dare_ties density 0.2"]
    assert len(entries(run, "merge")) == 2
    rates = {candidate.policy.name: candidate.rate for candidate in found.candidates}
    for record in records:
        assert set(record["parts"]) == set(GROUPS)
        assert record["accepted"] == (record["rate"] >= max(record["parts"].values()))
        assert (f"merge {record['merge']}" in rates) == record["accepted"]
        assert record["used"] == (found.best.policy.name == f"merge {record['merge']}")


def test_specialists_share_one_posterior(learned):
    run, _, _, sampler = learned
    rolled = {
        task_id
        for entry in entries(run, "rollout")
        for task_id in pd.read_parquet(entry.path / "trajectories.parquet")["task_id"]
    }
    assert set(sampler.to_state()["evidence"]) == rolled


def test_a_second_run_finds_everything_stored(learned, specialists):
    run, _, found, _ = learned
    again, _, planned, _ = specialists()
    assert [candidate.rates for candidate in planned.candidates] == [candidate.rates for candidate in found.candidates]
    assert {(entry.stage, entry.key) for entry in again.used} == {(entry.stage, entry.key) for entry in run.used}
