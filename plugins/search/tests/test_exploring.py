"""Forced heads are context; the bonus keeps failures below successes; evaluation and gate see neither."""

from argparse import ArgumentParser

import pandas as pd
import pytest
import yaml

from tracewheel import (
    ConfigError,
    EvaluateSections,
    LeakError,
    Request,
    RolloutSections,
    Score,
    ScoreSections,
    Trajectory,
    decide_gate,
    evaluate_split,
    load_tasks,
    policy_of,
    read_records,
    read_scores,
    rescored,
    score,
    success_of,
)
from tracewheel_search.commands import credit_tools
from tracewheel_search.commands import explore as explore_command
from tracewheel_search.exploring import ExploringEngine, ForcedHeads, Schedule, explore, with_forced
from tracewheel_search.tool_bonus import PART, novelties, tools_called, with_bonus

EPSILON = 0.4


@pytest.fixture(scope="module")
def house(config, base, tasks, make_adapter, tmp_path_factory):
    """A profile, a policy and curated tasks, the last of them held out; and rollouts with and without force."""
    root = tmp_path_factory.mktemp("exploring")
    (root / "curated").mkdir()
    rows = [{**task.to_record(), "split": "held_out" if number == 7 else "train"} for number, task in enumerate(tasks)]
    pd.DataFrame(rows).to_parquet(root / "curated" / "tasks.parquet")
    pd.DataFrame({"trace_id": []}).to_parquet(root / "curated" / "episodes.parquet")
    make_adapter(root / "state")
    (root / "profile.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    for name, epsilon in (("forced", EPSILON), ("free", 0.0)):
        explore(RolloutSections.of(config), policy_of(root / "state", base), tasks[:7], epsilon, root / name, iteration=1)
    return root


def played(house, name):
    return read_records(house / name / "trajectories.parquet", Trajectory)


def test_a_schedule_goes_in_a_line_and_is_capped():
    schedule = Schedule(start=0.4, end=0.1, over=4)
    assert [round(schedule.at(iteration), 6) for iteration in (1, 2, 3, 4, 9)] == [0.4, 0.3, 0.2, 0.1, 0.1]
    assert Schedule(start=0.4, over=1).at(1) == 0.0
    assert schedule.within(0.5, "epsilon") is schedule
    for start, end in ((0.6, 0.0), (0.1, 0.6), (-0.1, 0.0)):
        with pytest.raises(ConfigError, match="both are from 0 to 0.5"):
            Schedule(start=start, end=end).within(0.5, "epsilon")


def test_heads_are_drawn_as_often_as_asked_and_leave_room():
    heads = ForcedHeads(0.25, [[1, 2], [3, 4, 5]], seed=3)
    drawn = [heads.next(10) for _ in range(4000)]
    assert heads.taken == [len(head) for head in drawn]
    assert sum(map(bool, drawn)) / 4000 == pytest.approx(0.25, abs=0.02)
    assert drawn.count([1, 2]) / 4000 == pytest.approx(0.125, abs=0.02)
    tight = ForcedHeads(0.25, [[1, 2], [3, 4, 5]], seed=3)
    assert [tight.next(3) for _ in range(4000)] == [head if len(head) < 3 else [] for head in drawn]
    assert ForcedHeads(0.25, [], seed=3).next(10) == []


def test_a_forced_head_is_read_and_not_sampled(scripted_engine, renderer):
    inner = scripted_engine(renderer, [["a"], ["a"]])
    engine = ExploringEngine(inner)
    engine.explore(0, ForcedHeads(1.0, [[7, 8]], seed=0))
    engine.submit(Request(0, [5], 9))
    engine.explore(1, ForcedHeads(1.0, [[7, 8]], seed=0))
    engine.submit(Request(1, [5], 9, greedy=True))
    forced, greedy = engine.step()[0], engine.step()[0]
    assert inner.ids[0][:3] == [5, 7, 8] and forced.token_ids == inner.ids[0][1:]
    assert forced.logprobs[:2] == [0.0, 0.0] and forced.logprobs[2] == inner.says(3)
    assert len(forced.versions) == len(forced.token_ids)
    assert inner.ids[1][:1] == [5] and greedy.token_ids == inner.ids[1][1:], "a greedy session is never forced"


def test_forced_tokens_count_nowhere(house, base, config):
    policy = policy_of(house / "state", base)
    forced, free = played(house, "forced"), played(house, "free")
    turns = [turn for each in forced for turn in each.turns]
    begun = [turn for turn in turns if turn["forced"]]
    assert 0.2 < len(begun) / len(turns) < 0.6 and not any(turn["forced"] for each in free for turn in each.turns)
    for each in forced:
        sampled = [place for turn in each.turns for place in range(turn["start"], turn["end"])]
        assert [place for place, one in enumerate(each.action_mask) if one] == sampled
        assert all(each.logprobs[place] == 0.0 for place in set(range(len(each.token_ids))) - set(sampled))
    frame = pd.DataFrame([each.to_record() for each in forced])
    for each, values in zip(forced, rescored(config.policy, policy, frame), strict=True):
        assert values == pytest.approx(each.logprobs, abs=1e-3), "the log-probabilities are the policy's own, given the head"


def test_with_forced_by_hand():
    turns = [{"start": 2, "end": 5, "forced": 0}, {"start": 6, "end": 8, "forced": 0}]
    before = Trajectory(
        "t", "k", "k", 0, 0, 0, 1.0, list(range(8)), [0, 0, 1, 1, 1, 0, 1, 1], [0.0, 0.0, 0.0, 0.0, -3.0, 0.0, -4.0, -5.0],
        turns, {}, [], "finished",
    )  # fmt: skip
    after = with_forced(before, [2, 0])
    assert after.action_mask == [0, 0, 0, 0, 1, 0, 1, 1] and after.token_ids == before.token_ids
    assert [(turn["start"], turn["forced"]) for turn in after.turns] == [(4, 2), (6, 0)]
    with pytest.raises(ValueError):
        with_forced(before, [2])


def named(number, *tools):
    calls = [{"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": "{}"}}]} for name in tools]
    context = {"role": "assistant", "tool_calls": [{"function": {"name": "not its own", "arguments": "{}"}}]}
    turns = [{"start": 0, "end": 1}] * len(tools)
    return Trajectory(str(number), "k", "k", 0, 0, 0, 1.0, [], [], [], turns, {}, [context, *calls], "finished")


def judged(number, total, success, group="k", **more):
    parts = {} if success is None else {"success": success, "workspace": total}
    return Score(str(number), "k", group, "unscored" if total is None else "scored", total, parts, **more)


def test_a_bonus_is_the_share_of_others_that_are_unlike():
    assert novelties([("a",), ("a",), ("b",), ("a", "b")]) == pytest.approx([2 / 3, 2 / 3, 1.0, 1.0])
    assert novelties([("a",)]) == [0.0] and novelties([]) == []
    assert tools_called(named(0, "list", "move")) == ("list", "move")
    episodes = [named(0, "a"), named(1, "a"), named(2, "b"), named(3, "a", "b"), named(4, "c")]
    scores = [
        judged(0, 1.0, 1.0), judged(1, 0.0, 0.0), judged(2, 0.9, 0.0), judged(3, 0.0, 0.0, turn_rewards=[0.25, -0.25]),
        judged(4, None, None),
    ]  # fmt: skip
    found = with_bonus(episodes, scores, 0.25)
    # The success earns 0.25 * 2/3. The failure of 0.9 lacks 0.1, so it earns 0.05, not 0.25.
    assert [item.total for item in found[:4]] == pytest.approx([1.0 + 1 / 6, 1 / 6, 0.95, 0.25])
    assert found[3].turn_rewards == [0.25, 0.0] and found[4] == scores[4]
    assert [item.breakdown[PART] for item in found[:4]] == pytest.approx([1 / 6, 1 / 6, 0.05, 0.25])
    for before, after in zip(scores[:4], found[:4], strict=True):
        assert success_of(after) == success_of(before)
        assert {name: value for name, value in after.breakdown.items() if name != PART} == before.breakdown
    assert max(item.total for item in found[1:4]) < found[0].total
    assert with_bonus(episodes, scores, 0.0)[2].total == 0.9


def test_episodes_whose_success_is_unknown_and_other_groups_stay():
    episodes = [named(0, "a"), named(1, "b"), named(2, "b")]
    scores = [judged(0, 0.5, None), judged(1, 0.5, 0.0, "one"), judged(2, 0.5, 0.0, "other")]
    assert [item.total for item in with_bonus(episodes, scores, 0.25)] == [0.5, 0.5, 0.5]


def called(module, *words):
    parser = ArgumentParser()
    module.COMMAND.options(parser)
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_args([str(word) for word in words])
    result = module.COMMAND.run(options)
    assert module.COMMAND.card(options, result).title
    return result


def test_evaluation_and_gate_are_the_same_with_and_without(house, config, base, tasks, files_of):
    """Commands of both, then the same evaluations and the same verdict; episodes of other tasks get no bonus."""
    policies = {name: policy_of(folder, base) for name, folder in (("before", house / "state"), ("after", house / "state"))}
    evaluated = {}
    for when in ("without", "with"):
        if when == "with":
            common = [house / "profile.yaml", "--state", house / "state", "--curated", house / "curated"]
            found = called(
                explore_command, *common, "--epsilon", EPSILON, "--over", 3, "--iteration", 2, "--out", house / "explored"
            )
            assert found["epsilon"] == pytest.approx(EPSILON / 2) and found["forced_turns"] > 0
            held_out = {task.id for task in load_tasks(house / "curated", "held_out")}
            assert held_out and not held_out & {each.task_id for each in played(house, "explored")}
            score(ScoreSections.of(config), tasks, house / "explored/trajectories.parquet", house / "explored")
            files = ["--trajectories", house / "explored/trajectories.parquet", "--scores", house / "explored/scores.parquet"]
            before = read_scores(house / "explored/scores.parquet")
            credited = called(credit_tools, *common, *files, "--bonus", 0.2, "--out", house / "credited")
            assert credited["given"] > 0 and credited["weight"] == 0.2
            after = read_scores(house / "credited/scores.parquet")
            assert [success_of(item) for item in before] == [success_of(item) for item in after]
            assert read_scores(house / "explored/scores.parquet") == before
            with pytest.raises(ConfigError, match="bonus goes from 0.3"):
                called(credit_tools, *common, *files, "--bonus", 0.3, "--out", house / "other")
            rows = pd.read_parquet(house / "explored/trajectories.parquet").assign(task_id=tasks[7].id)
            rows.to_parquet(house / "held_out.parquet")
            words = ["--trajectories", house / "held_out.parquet", *files[2:], "--bonus", 0.2, "--out", house / "other"]
            with pytest.raises(LeakError, match="no training task"):
                called(credit_tools, *common, *words)
        folders = {name: house / when / name for name in policies}
        for name, folder in folders.items():
            folder.mkdir(parents=True)
            evaluate_split(EvaluateSections.of(config), policies[name], house / "curated", "held_out", folder)
        (house / when / "gate").mkdir()
        verdict = decide_gate(
            config.gate, folders["after"], folders["before"], house / when / "gate", baseline_name="before", trained=False
        )
        evaluated[when] = (verdict.to_record(), {name: files_of(folder) for name, folder in folders.items()})
        episodes = [each for file in folders["after"].rglob("trajectories.parquet") for each in read_records(file, Trajectory)]
        assert episodes and not any(turn["forced"] for each in episodes for turn in each.turns)
    assert evaluated["with"] == evaluated["without"]
