"""Failed episodes that solved another task: the same turns under its prompt, and an update that weighs them."""

import pandas as pd
import pytest

from tracewheel import (
    RolloutSections,
    ScoreSections,
    Trajectory,
    UpdateFiles,
    UpdateSections,
    load_config,
    policy_of,
    read_json,
    read_records,
    read_scores,
    roll_out,
    score,
    success_of,
    update,
)
from tracewheel_search.continuing import Player
from tracewheel_search.hindsight import never_trained_on, relabelled, task_solved

SAMPLES = 4


@pytest.fixture(scope="module")
def played(config, base, tasks, make_adapter, tmp_path_factory):
    """A policy, and its scored episodes in folders of a rollout."""
    root = tmp_path_factory.mktemp("hindsight")
    make_adapter(root / "state")
    (root / "curated").mkdir()
    pd.DataFrame([{**task.to_record(), "split": "train"} for task in tasks]).to_parquet(root / "curated" / "tasks.parquet")
    pd.DataFrame({"trace_id": []}).to_parquet(root / "curated" / "episodes.parquet")
    own = config.model_copy(update={"rollout": config.rollout.model_copy(update={"group_size": SAMPLES})})
    (root / "rollout").mkdir()
    ids, policy = [task.id for task in tasks], policy_of(root / "state", base)
    roll_out(RolloutSections.of(own), policy, root / "curated", ids, root / "rollout", iteration=1)
    score(ScoreSections.of(own), tasks, root / "rollout" / "trajectories.parquet", root / "rollout")
    return root, own


def read(folder):
    scores = {each.trajectory_id: each for each in read_scores(folder / "scores.parquet")}
    trajectories = read_records(folder / "trajectories.parquet", Trajectory)
    return trajectories, [scores[each.id] for each in trajectories]


@pytest.fixture(scope="module")
def made(played, base, tasks):
    root, own = played
    trajectories, scores = read(root / "rollout")
    player = Player(RolloutSections.of(own), policy_of(root / "state", base), 16)
    known, out = {task.id: task for task in tasks}, root / "out"
    return relabelled(player, ScoreSections.of(own), trajectories, scores, known, set(), out), player, out


def after_the_prompt(trajectory, row):
    return row[trajectory.turns[0]["start"] :]


def test_an_episode_of_another_task_has_the_tokens_that_were_sampled(made, played):
    figures, player, out = made
    before, _ = read(played[0] / "rollout")
    trajectories, scores = read(out)
    assert trajectories[: len(before)] == before and player.sampled == 0
    new = trajectories[len(before) :]
    assert 3 <= len(new) == figures["relabelled"] <= figures["reached"] <= figures["failed"]
    sources = {(each.seed, each.sample): each for each in before}
    for each, judged in zip(new, scores[len(before) :], strict=True):
        source = sources[each.seed, each.sample]
        assert each.task_id != source.task_id
        for row in ("token_ids", "action_mask", "logprobs"):
            assert after_the_prompt(each, getattr(each, row)) == after_the_prompt(source, getattr(source, row))
        asked = [next(one["content"] for one in row.messages if one["role"] == "user") for row in (each, source)]
        assert asked[0] != asked[1] and each.final_state == source.final_state
        assert success_of(judged) == 1.0 and each.policy_version == -1


def test_tasks_that_must_not_be_trained_on_are_never_reached(made, played, tasks):
    root, _ = played
    trajectories, scores = read(root / "rollout")
    known = {task.id: task for task in tasks}
    failed = [each for each, judged in zip(trajectories, scores, strict=True) if success_of(judged) == 0.0]
    reached = {found.fingerprint for each in failed if (found := task_solved(each, known[each.task_id], set()))}
    assert reached
    assert not any(task_solved(each, known[each.task_id], reached) for each in failed)


def test_the_reserve_is_not_trained_on_either(tasks, tmp_path):
    pd.DataFrame([{**tasks[0].to_record(), "split": "train"}]).to_parquet(tmp_path / "tasks.parquet")
    pd.DataFrame([{**tasks[1].to_record(), "split": "reserve"}]).to_parquet(tmp_path / "reserve.parquet")
    assert never_trained_on(tmp_path) == {tasks[1].fingerprint}


def test_the_update_weighs_them_by_the_policy_under_the_new_prompt(made, played):
    root, _ = played
    correction = "learner.off_policy={proximal: recompute, correction: truncate}"
    learner = ["learner.kind=rejection_sampling", "learner.learning_rate=0.001", "learner.replay_path=null", correction]
    config = load_config("configs/tiny.yaml", ["threads=1", *learner])
    for name, folder in (("with", made[2]), ("without", root / "rollout")):
        files = UpdateFiles.of_folders([folder], [folder], state=root / "state", reference=root / "state", out=root / name)
        (root / name).mkdir()
        update(UpdateSections.of(config), files, iteration=1)
    figures, plain = (read_json(root / name / "metrics.json") for name in ("with", "without"))
    assert plain["corrected_share"] == 0.0 < figures["corrected_share"]
    assert max(one["sampler_mismatch_max"] for one in (figures, plain)) < 1e-3, "they are not this policy's"
