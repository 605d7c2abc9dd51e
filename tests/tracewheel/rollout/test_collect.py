"""Collecting a claimed batch: a rollout's files, and how old its tokens are."""

import dataclasses

import pytest

from tracewheel.core.files import read_json, read_records
from tracewheel.core.types import Task, Trajectory
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.collect import age_figures, collect
from tracewheel.rollout.orders import Order
from tracewheel.rollout.rollout import rollout_metrics
from tracewheel.rollout.trajectory_queue import TrajectoryQueue


def trajectory(name, sample, turns, length=8, **changes):
    mask = [0] * length
    for turn in turns:
        mask[turn["start"] : turn["end"]] = [1] * (turn["end"] - turn["start"])
    oldest = min([turn["policy_version"] for turn in turns] + [v for turn in turns for _, v in turn.get("changes", [])])
    values = {"id": name, "task_id": "t", "group": "t#0.0", "sample": sample, "seed": sample, "policy_version": oldest}
    values |= {"temperature": 1.0, "token_ids": list(range(length)), "action_mask": mask, "logprobs": [-0.5 * m for m in mask]}
    values |= {"turns": turns, "final_state": {}, "messages": [{"role": "assistant", "content": name}]}
    return Trajectory(**{**values, "stop_reason": "finished", **changes})


PURE = trajectory("pure", 0, [{"start": 2, "end": 4, "policy_version": 4, "forced": 0}])
# Tokens 2 and 3 by version 3, 4 by version 4, and a turn of version 4 with tokens 6 and 7.
MIXED = trajectory(
    "mixed",
    1,
    [
        {"start": 2, "end": 5, "policy_version": 3, "changes": [[4, 4]], "forced": 0},
        {"start": 6, "end": 8, "policy_version": 4, "forced": 0},
    ],
)


def test_ages_are_of_sampled_tokens():
    figures = age_figures([PURE, MIXED], version=4)
    assert figures == {"staleness_mean": pytest.approx(2 / 7), "staleness_max": 1.0, "mixed_episodes": 1}


def test_trajectories_without_sampled_tokens_have_no_age():
    silent = trajectory("silent", 0, [{"start": 2, "end": 2, "policy_version": 0, "forced": 0}])
    assert age_figures([silent], version=9) == {"mixed_episodes": 0}


def test_failed_episodes_count_in_no_figure_whether_sampled_before_an_update_or_by_workers(config, tasks, tmp_path):
    """Diversity and ages are those of the other episodes; and an old failed episode does not make its group too old."""
    failed = {"stop_reason": "infrastructure_failed", "messages": [{"role": "assistant", "content": "cut"}]}
    old = [{"start": 2, "end": 3, "policy_version": 0, "forced": 0}]
    broken = [trajectory("cut", 2, old, **failed), dataclasses.replace(trajectory("none", 3, old, **failed), turns=[])]
    queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "run", max_staleness=1)
    queue.publish(PolicyRef("base", None, 4))
    queue.issue([Order(0, 5, tasks[0].to_record(), variant=False, samples=4, seed=1, temperature=1.0)])
    (order,) = queue.lease("w", 1)
    queue.complete(order, "w", [PURE, MIXED, *broken])
    by_workers = collect(queue.claim(5, 1, 4), tmp_path / "out")
    before_update = rollout_metrics([PURE, MIXED, *broken])
    whole = rollout_metrics([PURE, MIXED]) | age_figures([PURE, MIXED], version=4)
    figures = ("group_diversity", "distinct_tool_sequences", "staleness_mean", "staleness_max", "mixed_episodes")
    assert {name: by_workers[name] for name in figures} == {name: whole[name] for name in figures}
    assert {name: before_update[name] for name in figures[:2]} == {name: whole[name] for name in figures[:2]}
    assert (by_workers["episodes"], by_workers["dropped_groups"]) == (4, 0)


def test_a_batch_becomes_the_files_of_a_rollout(config, tasks, tmp_path):
    queue = TrajectoryQueue.open(tmp_path / "queue.sqlite", "run", max_staleness=1)
    queue.publish(PolicyRef("base", None, 4))
    queue.issue([Order(0, 5, tasks[0].to_record(), variant=True, samples=2, seed=1, temperature=1.0)])
    (order,) = queue.lease("w", 1)
    queue.complete(order, "w", [PURE, MIXED])
    outs = [tmp_path / "out", tmp_path / "again"]
    results = [collect(queue.claim(5, 1, 4), out) for out in outs]
    assert results[0] == results[1] == read_json(outs[0] / "metrics.json")
    assert results[0]["episodes"] == 2
    assert results[0]["generated_tokens"] == 7
    assert results[0]["dropped_groups"] == 0
    assert read_records(outs[0] / "trajectories.parquet", Trajectory) == [PURE, MIXED]
    assert read_records(outs[0] / "variants.parquet", Task) == [tasks[0]]
    for file in outs[0].iterdir():
        assert file.read_bytes() == (outs[1] / file.name).read_bytes()
