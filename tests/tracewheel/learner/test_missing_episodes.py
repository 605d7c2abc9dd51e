"""Episodes that could not be scored, or that the infrastructure failed: everything is as if they had never been sampled."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.config import BatchAdvantageConfig, GroupAdvantageConfig, LeaveOneOutAdvantageConfig
from tracewheel.core.files import read_json, read_records, write_records
from tracewheel.core.types import Trajectory
from tracewheel.learner.advantages.group import group_statistics, zero_variance_share
from tracewheel.learner.advantages.trajectories import trajectory_advantages, turn_advantages

ADVANTAGES = [
    GroupAdvantageConfig(kind="group", scale=True),
    GroupAdvantageConfig(kind="group", scale=False),
    LeaveOneOutAdvantageConfig(kind="leave_one_out"),
    BatchAdvantageConfig(kind="batch", center="group"),
    BatchAdvantageConfig(kind="batch", center="batch"),
]
# Those that compare rewards in different ways; the others differ in their loss alone.
LEARNERS = [{"kind": "dapo"}]
SLOW = [
    {"kind": "rloo"},
    {"kind": "dpo"},
    {"kind": "reinforce"},
    {"kind": "ppo"},
    {"kind": "rejection_sampling"},
    {"kind": "gspo"},
]
COUNTED = {"unscored_share", "masked_share"}

episodes = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 1.0]), st.booleans()), min_size=1, max_size=12
)


@settings(max_examples=50)
@given(episodes)
def test_every_statistic_of_groups_is_that_of_the_scored_episodes(drawn):
    groups = [group for group, _, _ in drawn]
    rewards = torch.tensor([reward if scored else math.nan for _, reward, scored in drawn], dtype=torch.double)
    kept = [number for number, (_, _, scored) in enumerate(drawn) if scored]
    left, left_groups = rewards[kept], [groups[number] for number in kept]
    for config in ADVANTAGES:
        assert trajectory_advantages(config, rewards, groups)[kept].tolist() == (
            trajectory_advantages(config, left, left_groups).tolist()
        )
        turns = [[reward / 2, reward / 2] for reward in rewards.tolist()]
        whole = turn_advantages(config, turns, groups, 0.9)
        assert [whole[n] for n in kept] == turn_advantages(config, [turns[n] for n in kept], left_groups, 0.9)
    assert zero_variance_share(rewards, groups) == zero_variance_share(left, left_groups)
    one, other = group_statistics(rewards, groups), group_statistics(left, left_groups)
    assert one.mean[one.index][kept].tolist() == other.mean[other.index].tolist()
    assert one.std[one.index][kept].tolist() == other.std[other.index].tolist()


@pytest.fixture(scope="module")
def with_missing(trajectories, rewards, tmp_path_factory):
    """The trajectories with others between them: failed at the second turn, failed before any token, never scored."""
    whole = read_records(trajectories, Trajectory)
    mixed, marks = [], []
    for number, (trajectory, reward) in enumerate(zip(whole, rewards, strict=True)):
        if number % 5 == 0:
            mixed.append(dataclasses.replace(_cut(trajectory), id=f"cut-{number}", sample=90))
            mixed.append(dataclasses.replace(_begun(trajectory), id=f"begun-{number}", sample=91))
        if number % 5 == 2:
            mixed.append(dataclasses.replace(trajectory, id=f"unscored-{number}", sample=92))
        marks += [None] * (len(mixed) - len(marks))
        mixed.append(trajectory)
        marks.append(reward)
    path = tmp_path_factory.mktemp("missing") / "trajectories.parquet"
    write_records(path, mixed)
    return path, marks


def _cut(trajectory):
    """An episode whose environment broke after the first turn, by an older policy."""
    end = trajectory.turns[0]["end"]
    columns = {name: getattr(trajectory, name)[:end] for name in ("token_ids", "action_mask", "logprobs")}
    turns = [trajectory.turns[0] | {"policy_version": 0}]
    return dataclasses.replace(trajectory, **columns, turns=turns, policy_version=0, stop_reason="infrastructure_failed")


def _begun(trajectory):
    """An episode whose environment could not be reset."""
    start = trajectory.turns[0]["start"]
    columns = {name: getattr(trajectory, name)[:start] for name in ("token_ids", "action_mask", "logprobs")}
    return dataclasses.replace(trajectory, **columns, turns=[], stop_reason="infrastructure_failed")


@pytest.mark.parametrize(
    "learner", [*LEARNERS, *(pytest.param(values, marks=pytest.mark.slow) for values in SLOW)], ids=lambda item: item["kind"]
)
def test_an_update_is_that_of_the_scored_episodes(run, with_missing, files_of, learner):
    """The same bytes of the adapter, the optimiser, the critic; the same metrics but for the counts of what is missing."""
    path, marks = with_missing
    alone, metrics = run(learner)
    out, found = run(learner, trajectories=path, rewards=marks)
    assert {key: value for key, value in found.items() if key not in COUNTED | LENGTHS} == {
        key: value for key, value in metrics.items() if key not in COUNTED | LENGTHS
    }
    assert found["unscored_share"] == sum(mark is None for mark in marks) / len(marks)
    skipped = {"metrics.json"}
    assert _without(files_of(out), skipped) == _without(files_of(alone), skipped)
    assert read_json(out / "metrics.json") == found


# An episode that only its verifier failed was sampled to its end: its length counts.
LENGTHS = {"generated_tokens", "trajectory_tokens", "truncated_share", "staleness_mean"}


def _without(files, names):
    return {name: content for name, content in files.items() if name not in names}


def test_lengths_do_not_count_where_the_infrastructure_broke(run, trajectories, rewards, tmp_path):
    _, metrics = run()
    whole = read_records(trajectories, Trajectory)
    broken = [dataclasses.replace(cut(whole[0]), id=f"broken-{n}", sample=90 + n) for n, cut in enumerate((_cut, _begun))]
    write_records(tmp_path / "trajectories.parquet", [*broken, *whole])
    _, found = run(trajectories=tmp_path / "trajectories.parquet", rewards=[None, None, *rewards])
    assert _without(found, COUNTED) == _without(metrics, COUNTED)
