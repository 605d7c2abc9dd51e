"""The commands one after the other on a small curated folder, as a user calls them."""

import shlex
from argparse import ArgumentParser
from dataclasses import replace

import pandas as pd
import pytest
import yaml

from tracewheel import (
    ConfigError,
    DataError,
    LeakError,
    RolloutSections,
    Score,
    ScoreSections,
    Trajectory,
    check_training,
    load_tasks,
    policy_of,
    read_json,
    read_records,
    read_scores,
    roll_out,
    score,
    write_records,
)
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel_search.commands import credit_tools, credit_turns, explore, relabel, replay, search, train_process_model

CORRECTION = ["--set", "learner.off_policy={proximal: recompute, correction: truncate, max_staleness: 4}"]


def called(module, *words):
    parser = ArgumentParser()
    module.COMMAND.options(parser)
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_args([str(word) for word in words])
    result = module.COMMAND.run(options)
    card = module.COMMAND.card(options, result)
    assert card.title and all(each.startswith("tracewheel ") for each in card.next)
    assert all(shlex.quote(setting) in each for each in card.next for setting in options.overrides)  # what follows needs them
    return result


@pytest.fixture(scope="module")
def house(config, tasks, make_adapter, tmp_path_factory):
    """A profile, a policy, curated tasks, and a scored rollout of some of them."""
    root = tmp_path_factory.mktemp("house")
    (root / "curated").mkdir()
    rows = [{**task.to_record(), "split": "held_out" if number == 7 else "train"} for number, task in enumerate(tasks)]
    pd.DataFrame(rows).to_parquet(root / "curated" / "tasks.parquet")
    pd.DataFrame({"trace_id": []}).to_parquet(root / "curated" / "episodes.parquet")  # none logged
    make_adapter(root / "state")
    values = config.model_dump(mode="json", exclude_unset=True)
    values["rollout"]["temperature"] = 1.5
    (root / "profile.yaml").write_text(yaml.safe_dump(values))
    policy = policy_of(root / "state", config.policy.base)
    (root / "rollout").mkdir()
    ids = [task.id for task in tasks[:6]]
    roll_out(RolloutSections.of(config), policy, root / "curated", ids, root / "rollout", iteration=1)
    score(
        ScoreSections.of(config),
        load_tasks(root / "curated", "train"),
        root / "rollout" / "trajectories.parquet",
        root / "rollout",
    )
    return root


def common(house):
    return [house / "profile.yaml", "--state", house / "state"]


def episodes(house):
    return ["--trajectories", house / "rollout/trajectories.parquet", "--scores", house / "rollout/scores.parquet"]


def scored(house):
    return ["--curated", house / "curated", *episodes(house)]


def test_search_writes_pairs_of_training_tasks(house, tasks):
    out = house / "search"
    words = [*common(house), "--curated", house / "curated", "--budget", 800, "--width", 2, "--tasks", 8, "--out", out]
    found = called(search, *words)
    assert found["tasks"] == 7 and 0 < found["sampled_tokens"] <= 800
    played = {each.task_id for file in out.glob("waves/*/trajectories.parquet") for each in read_records(file, Trajectory)}
    assert tasks[7].id not in played and (out / "pairs" / "metrics.json").is_file()
    assert called(search, *words) == found


def test_a_process_model_credits_turns(house, tasks, monkeypatch):
    trained = called(
        train_process_model, *common(house), *scored(house), "--budget", 6000, "--continuations", 2, "--out", house / "model",
    )  # fmt: skip
    assert trained["sampled_tokens"] <= 6000 and trained["test"]["tasks"] == 2
    assert read_json(house / "model/process_model.json")["test"] == trained["test"]
    words = [*common(house), *scored(house), "--model", house / "model", "--out", house / "credited"]
    made = called(credit_turns, *words)
    before, after = (read_scores(house / folder / "scores.parquet") for folder in ("rollout", "credited"))
    assert made["credited"] == sum(item.total is not None for item in before)
    assert [(one.total, one.breakdown) for one in before] == [(one.total, one.breakdown) for one in after]
    assert all(sum(item.turn_rewards) == pytest.approx(item.total) for item in after)
    with pytest.raises(ConfigError, match="the outcome keeps at least half"):
        called(credit_turns, *words, "--kind", "shaping", "--weight", "0.7")


@pytest.mark.parametrize(
    ("module", "more"),
    [
        (train_process_model, ["--budget", 100]), (credit_tools, ["--bonus", 0.2]), (relabel, []),
        (credit_turns, ["--model", "absent"]), (replay, [*CORRECTION, "--earlier", "absent", "absent"]),
    ],
)  # fmt: skip
def test_nothing_is_learnt_from_a_held_out_task(house, tasks, tmp_path, module, more):
    held_out = tmp_path / "held_out.parquet"
    pd.read_parquet(house / "rollout/trajectories.parquet").assign(task_id=tasks[7].id).to_parquet(held_out)
    files = ["--trajectories", held_out, *episodes(house)[2:], "--curated", house / "curated"]
    with pytest.raises(LeakError, match=rf"held_out\.parquet: task {tasks[7].id} is no training task"):
        called(module, *common(house), *files, *more, "--out", tmp_path / "out")


def test_nothing_is_replayed_of_a_held_out_task(house, tasks, tmp_path):
    earlier = tmp_path / "earlier.parquet"
    pd.read_parquet(house / "rollout/trajectories.parquet").assign(task_id=tasks[7].id).to_parquet(earlier)
    files = [*scored(house), "--earlier", earlier, house / "rollout/scores.parquet"]
    with pytest.raises(LeakError, match=rf"earlier\.parquet: task {tasks[7].id} is no training task"):
        called(replay, *common(house), *files, *CORRECTION, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("module", "option", "value"),
    [
        (search, "--budget", 0), (search, "--tasks", -1), (search, "--width", 0), (search, "--visits", 0),
        (search, "--margin", 0),
        (search, "--exploration", "nan"), (train_process_model, "--continuations", 0), (replay, "--groups", "2.5"),
        (replay, "--half-life", -1), (credit_tools, "--over", 0), (explore, "--iteration", 0),
    ],
)  # fmt: skip
def test_a_number_that_makes_no_sense_is_a_usage_error(module, option, value, capsys):
    with pytest.raises(SystemExit) as stop:
        called(module, "p.yaml", option, value)
    assert stop.value.code == 2 and f"argument {option}: {value} is no " in capsys.readouterr().err


def test_a_budget_below_one_simulation_and_a_search_without_pairs_say_so(house):
    words = [*common(house), "--curated", house / "curated", "--tasks", 1, "--width", 1]
    with pytest.raises(DataError, match="--budget 1: does not reach for one simulation of the 1 tasks"):
        called(search, *words, "--budget", 1, "--out", house / "poor")
    parser = ArgumentParser()
    search.COMMAND.options(parser)
    out = house / "alone"
    options = parser.parse_args([str(word) for word in (*words, "--budget", 400, "--out", out)])
    card = search.COMMAND.card(options, called(search, *words, "--budget", 400, "--out", out))
    assert card.look_at.startswith("no two turns") and not card.next


def test_relabel_adds_the_successes_of_other_tasks(house, config):
    out = house / "relabelled"
    found = called(relabel, *common(house), *scored(house), "--out", out)
    assert 0 < found["relabelled"] <= found["reached"] <= found["failed"] <= found["episodes"]
    trajectories, scores = read_records(out / "trajectories.parquet", Trajectory), read_scores(out / "scores.parquet")
    assert len(trajectories) == len(scores) == found["episodes"] + found["relabelled"]
    held_out = {task.id for task in load_tasks(house / "curated", "held_out")}
    assert not held_out & {each.task_id for each in trajectories}
    check_training(house / "curated", out / "trajectories.parquet")  # as the update does, and the score that may come before
    score(ScoreSections.of(config), load_tasks(house / "curated", "train"), out / "trajectories.parquet", out / "again")
    after = {each.trajectory_id: each.total for each in read_scores(out / "again" / "scores.parquet")}
    assert after == {each.trajectory_id: each.total for each in scores}
    replayable = ["--earlier", out / "trajectories.parquet", out / "scores.parquet", "--out", house / "both"]
    called(replay, *common(house), *scored(house), *replayable, *CORRECTION)
    assert (house / "both" / "variants.parquet").read_bytes() == (out / "variants.parquet").read_bytes()


def test_relabel_of_an_environment_that_tells_no_goal_is_refused(house, monkeypatch):
    monkeypatch.delattr(WorkspaceEnvironment, "task_reached")
    with pytest.raises(ConfigError, match=r"environment workspace: tells no task .*task_reached"):
        called(relabel, *common(house), *episodes(house), "--curated", house / "curated", "--out", house / "none")


def test_a_world_that_breaks_down_is_named_and_nothing_is_made_of_the_rest(house, monkeypatch):
    def broken(self, tool, args):
        raise RuntimeError("no world")

    words, curated = common(house), ["--curated", house / "curated"]
    monkeypatch.setattr(WorkspaceEnvironment, "step", broken)
    for module, more in ((search, ["--budget", 800]), (explore, ["--epsilon", 0.5])):
        with pytest.raises(DataError, match=r"\d+ of \d+ episodes have no score, \d+ of them by RuntimeError.*no world"):
            called(module, *words, *curated, *more, "--out", house / f"broken-{module.__name__}")


def test_replay_adds_earlier_groups_for_a_learner_that_corrects(house):
    """The earlier rollout is the same one under other names, one episode of each task called a success."""
    earlier = house / "earlier"
    earlier.mkdir()
    before, judged = read_episodes(house / "rollout")
    renamed = [replace(each, id=f"earlier-{each.id}") for each in before]
    won = [
        replace(item, trajectory_id=each.id, total=float(each.sample == 0), breakdown={"success": float(each.sample == 0)})
        for each, item in zip(renamed, judged, strict=True)
    ]
    write_records(earlier / "trajectories.parquet", renamed, Trajectory)
    write_records(earlier / "scores.parquet", won, Score)
    files = ["--earlier", earlier / "trajectories.parquet", earlier / "scores.parquet", "--earlier", *episodes(house)[1::2]]
    words = [*common(house), *scored(house), *files, "--groups", 2, "--out", house / "replayed"]
    with pytest.raises(ConfigError, match="correction and a bound on age"):
        called(replay, *words)
    found = called(replay, *words, *CORRECTION)
    assert (found["fresh"], found["groups"], found["replayed"], found["max_age"]) == (len(before), 6, 2, 4)
    after, scores = read_episodes(house / "replayed")
    assert after[: len(before)] == before and len(after) == len(before) + 2 * len(before) // 6 and len(scores) == len(after)


def read_episodes(folder):
    known = {each.trajectory_id: each for each in read_scores(folder / "scores.parquet")}
    trajectories = read_records(folder / "trajectories.parquet", Trajectory)
    return trajectories, [known[each.id] for each in trajectories]
