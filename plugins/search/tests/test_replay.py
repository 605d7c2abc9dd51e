"""Replay: the weights, the bound on age, whole groups with their tokens as sampled, and an update that corrects for them."""

from dataclasses import replace
from math import isnan

import pandas as pd
import pytest

from tracewheel import (
    ConfigError,
    RolloutSections,
    Score,
    Trajectory,
    UpdateFiles,
    UpdateSections,
    load_config,
    policy_of,
    read_json,
    read_records,
    read_scores,
    roll_out,
    update,
)
from tracewheel_search.replay import ReplaySettings, drawn, most_stale, replayed, weight

OFF_POLICY = "learner.off_policy={proximal: recompute, correction: truncate, max_staleness: 2}"
KEPT = ("token_ids", "action_mask", "logprobs", "turns", "policy_version", "temperature", "messages", "final_state", "id")


def episode(task, number, version, reward, changes=(), **more):
    """An episode of one turn, tokens 1 and 2 of three, and its score; a reward of None is unscored."""
    turn = {"start": 1, "end": 3, "policy_version": version, "changes": [list(change) for change in changes]}
    oldest = min([version, *(new for _, new in changes)])
    name = f"{task}-{version}-{number}"
    made = Trajectory(
        name, task, task, number, number, oldest, 1.2, [7, 8, number], [0, 1, 1], [0.0, -0.25, -1.5], [turn], {"at": number},
        [{"role": "assistant", "content": name}], more.get("stop_reason", "finished"),
    )  # fmt: skip
    parts = {} if reward is None else {"success": float(reward >= 1.0)}
    return made, Score(name, task, task, "unscored" if reward is None else "scored", reward, parts, turn_rewards=None)


def rollout(*rows):
    return [each for each, _ in rows], [judged for _, judged in rows]


def group(task, version, rewards, **more):
    return [episode(task, number, version, reward, **more) for number, reward in enumerate(rewards)]


@pytest.fixture
def replay(tmp_path):
    def run(fresh, earlier, version=5, max_age=2, **settings):
        figures = replayed(fresh, earlier, version, max_age, ReplaySettings(**settings), 0, tmp_path / "out")
        scores = {each.trajectory_id: each for each in read_scores(tmp_path / "out" / "scores.parquet")}
        trajectories = read_records(tmp_path / "out" / "trajectories.parquet", Trajectory)
        return figures, trajectories, [scores[each.id] for each in trajectories]

    return run


def test_a_weight_is_the_mean_absolute_advantage_halved_by_age():
    assert weight([1.0, 0.0, 0.0, 0.0], 0, 2.0) == pytest.approx(0.375)  # (3/4 + 3 * 1/4) / 4
    assert weight([1.0, 1.0, 0.0, 0.0], 0, 2.0) == pytest.approx(0.5)
    assert weight([1.0, 0.5], 0, 2.0) == pytest.approx(0.25)
    assert weight([1.0, 1.0, 0.0, 0.0], 2, 2.0) == pytest.approx(0.25)
    assert weight([1.0, 1.0, 0.0, 0.0], 3, 1.0) == pytest.approx(0.0625)
    assert weight([1.0, 1.0, 1.0], 1, 2.0) == weight([1.0], 0, 2.0) == weight([], 0, 2.0) == 0.0


def test_a_draw_follows_the_weights_and_leaves_none_out_of_turn():
    weights = [0.375, 0.0, 0.125]
    firsts = [drawn(weights, 1, seed) for seed in range(4000)]
    assert sum(first == [0] for first in firsts) / 4000 == pytest.approx(0.75, abs=0.02)  # 0.375 / 0.5
    assert all(first in ([0], [2]) for first in firsts)
    assert drawn(weights, 5, 1) == [0, 2] and drawn([], 3, 0) == []
    assert drawn([0.5] * 50, 10, 3) == drawn([0.5] * 50, 10, 3) != drawn([0.5] * 50, 10, 4)


def test_age_is_bounded_by_the_oldest_token_of_the_group(replay):
    too_old = group("a", 2, [1.0, 0.0])  # 5 - 2 = 3
    within = group("b", 3, [1.0, 0.0])
    mixed = [*group("c", 4, [1.0]), episode("c", 1, 4, 0.0, changes=[[2, 2]])]  # one token of version 2
    figures, trajectories, _ = replay(rollout(), [rollout(*too_old), rollout(*within, *mixed)])
    assert [each.task_id for each in trajectories] == ["b", "b"]
    assert figures == {
        "groups": 3, "too_old": 2, "unknown": 0, "without_success": 0, "alike": 0, "replayed": 1, "mean_age": 2.0,
    }  # fmt: skip
    assert replay(rollout(), [rollout(*within)], max_age=1)[0]["replayed"] == 0


def test_tokens_of_another_policy_are_not_replayed(replay):
    relabelled, later = group("a", -1, [1.0, 0.0]), group("b", 6, [1.0, 0.0])
    updated = [*group("c", 5, [1.0]), episode("c", 1, 5, 0.0, changes=[[2, 6]])]
    figures, trajectories, _ = replay(rollout(), [rollout(*relabelled, *later, *updated)])
    assert figures["unknown"] == 3 and trajectories == []


def test_only_verified_and_divided_groups_are_replayed(replay):
    lost, graded = group("lost", 4, [0.0, 0.0]), group("graded", 4, [0.5, 0.0])
    alike, one = group("alike", 4, [1.0, 1.0]), group("one", 4, [1.0, None])
    failed = [*group("failed", 4, [1.0]), episode("failed", 1, 4, 0.0, stop_reason="infrastructure_failed")]
    figures, trajectories, _ = replay(rollout(), [rollout(*lost, *graded, *alike, *one, *failed)])
    assert figures["without_success"] == 2 and figures["alike"] == 3 and trajectories == []


def test_whole_groups_follow_the_fresh_ones_as_they_were_sampled(replay):
    fresh, old = rollout(*group("a", 5, [1.0, 0.0])), rollout(*group("a", 4, [1.0, 0.0, None]), *group("b", 4, [0.0, 1.0]))
    figures, trajectories, scores = replay(fresh, [old, fresh])
    assert figures["groups"] == figures["replayed"] == 2  # what is fresh is not replayed beside itself
    assert trajectories[:2] == fresh[0] and scores[:2] == fresh[1]
    for each, judged, before, scored in zip(trajectories[2:], scores[2:], *old, strict=True):
        assert all(getattr(each, name) == getattr(before, name) for name in KEPT)
        assert replace(judged, group=scored.group) == scored and judged.group == each.group
    assert len({each.group for each in trajectories}) == 3, "the groups of task a would be compared as one"
    assert replay(fresh, [old, fresh], groups=1)[0]["replayed"] == 1


def test_a_group_that_is_given_twice_is_one_group(replay):
    earlier = rollout(*group("a", 4, [1.0, 0.0]), *group("b", 4, [1.0, 0.0]))
    _, once, scores = replay(rollout(), [earlier], groups=1)
    figures, both, _ = replay(rollout(), [earlier, earlier, (once, scores)])
    assert (figures["groups"], figures["replayed"]) == (2, 2) and len({each.id for each in both}) == len(both) == 4


def test_a_learner_that_would_not_correct_is_refused():
    def config(*settings):
        return load_config("configs/tiny.yaml", list(settings))

    assert most_stale(config(OFF_POLICY)) == 2
    with pytest.raises(ConfigError, match="correction and a bound"):
        most_stale(config())
    with pytest.raises(ConfigError, match="correction and a bound"):
        most_stale(config("learner.off_policy={proximal: recompute, correction: truncate}"))
    with pytest.raises(ConfigError, match="'dpo' weighs no token"):
        most_stale(config("learner={kind: dpo}"))


def test_an_update_weighs_replayed_tokens_by_the_policies_and_drops_old_ones(config, base, tasks, make_adapter, tmp_path):
    """The replayed episodes are another policy's, so their ratios are not 1; with the bound at 0 the learner takes none."""
    make_adapter(tmp_path / "before", noise=0.05, version=0)
    make_adapter(tmp_path / "state", version=1)
    (tmp_path / "curated").mkdir()
    pd.DataFrame([{**task.to_record(), "split": "train"} for task in tasks]).to_parquet(tmp_path / "curated" / "tasks.parquet")
    own = config.model_copy(update={"rollout": config.rollout.model_copy(update={"group_size": 4})})
    rollouts = []
    for iteration, name in enumerate(("before", "state"), 1):
        out = tmp_path / f"rollout-{iteration}"
        out.mkdir()
        policy = policy_of(tmp_path / name, base)
        roll_out(RolloutSections.of(own), policy, tmp_path / "curated", [task.id for task in tasks], out, iteration=iteration)
        played = read_records(out / "trajectories.parquet", Trajectory)
        won = [float(each.sample == 0) for each in played]  # the base solves nothing: one of each group is called a success
        judged = [
            Score(each.id, each.task_id, each.group, "scored", reward, {"success": reward})
            for each, reward in zip(played, won, strict=True)
        ]
        rollouts.append((played, judged))
    old, fresh = rollouts
    figures = replayed(fresh, [old], 1, 2, ReplaySettings(), 0, tmp_path / "joined")
    assert figures["replayed"] == len(tasks) and figures["mean_age"] == 1.0
    found = {}
    for bound in (2, 0):
        learner = ["learner.kind=grpo", "learner.replay_path=null", OFF_POLICY.replace("2}", f"{bound}}}")]
        update_config = load_config("configs/tiny.yaml", ["threads=1", *learner])
        out = tmp_path / f"bound-{bound}"
        out.mkdir()
        files = UpdateFiles.of_folders(
            [tmp_path / "joined"], [tmp_path / "joined"], state=tmp_path / "state", reference=tmp_path / "state", out=out
        )
        update(UpdateSections.of(update_config), files, iteration=2)
        found[bound] = read_json(out / "metrics.json")
    assert found[2]["corrected_share"] > 0.0 == found[0]["corrected_share"]
    assert found[2]["stale_share"] == 0.0 < found[0]["stale_share"] and found[2]["kept_rows"] > found[0]["kept_rows"]
    assert found[2]["staleness_max"] == 1.0 and not isnan(found[2]["loss"])
    assert max(found[2]["sampler_mismatch_max"], found[0]["sampler_mismatch_max"]) < 1e-3, "only the state's own are compared"
