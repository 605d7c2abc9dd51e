"""Branches share their parent's ids; a search keeps its budget, goes on after a kill, and its pairs train the DPO learner."""

import random
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from tracewheel import (
    ConfigError,
    DataError,
    Observation,
    PolicyRef,
    RolloutSections,
    Trajectory,
    UpdateFiles,
    UpdateSections,
    read_records,
    read_scores,
    update,
)
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel_search.continuing import Branch, Player, branch_seed, new_tokens, sampled_turns, within
from tracewheel_search.pairs import PairSettings, cut, node_pairs, write_pairs
from tracewheel_search.searching import Search, SearchSettings, tree_of_group
from tracewheel_search.tree import Tree

BUDGET = 900


@pytest.fixture(scope="module")
def player(config, base):
    hot = config.model_copy(update={"rollout": config.rollout.model_copy(update={"temperature": 2.0})})
    return Player(RolloutSections.of(hot), PolicyRef(base), 16)


@pytest.fixture(scope="module")
def searched(config, player, tasks, tmp_path_factory):
    out = tmp_path_factory.mktemp("search") / "out"
    search = Search(config, player, tasks[:3], SearchSettings(budget=BUDGET, width=2), out)
    return search, search.run(), out


def waves(out):
    return sorted((out / "waves").iterdir())


def test_a_branch_shares_the_ids_and_log_probabilities_of_its_parent(player, tasks):
    parent = next(
        each
        for number in range(40)
        for each in player.play([Branch(tasks[0], number, branch_seed(0, tasks[0], number))])
        if len(each.turns) >= 3
    )
    before = player.sampled
    branches = [Branch(tasks[0], 90 + n, branch_seed(1, tasks[0], n), parent, 2) for n in range(12)]
    played = player.play(branches)
    end = parent.turns[1]["end"]
    for branch, each in zip(branches, played, strict=True):
        assert each.token_ids[:end] == parent.token_ids[:end] and each.logprobs[:end] == parent.logprobs[:end]
        assert each.turns[:2] == parent.turns[:2] and branch.prefix == end
        inside = [any(turn["start"] <= place < turn["end"] for turn in each.turns) for place in range(len(each.token_ids))]
        assert [bool(one) for one in each.action_mask] == inside
        assert all(value == 0.0 for value, one in zip(each.logprobs, each.action_mask, strict=True) if not one)
    assert player.sampled - before == sum(new_tokens(*both) for both in zip(branches, played, strict=True))
    assert len({tuple(each.token_ids) for each in played}) > 1
    assert player.play(branches) == played


def test_an_episode_left_after_one_turn_is_the_beginning_of_the_whole_one(player, tasks):
    branches = [Branch(task, 0, branch_seed(3, task, 0)) for task in tasks[:4]]
    whole, one = player.play(branches), player.play(branches, 1)
    for full, first in zip(whole, one, strict=True):
        assert len(first.turns) == 1 and first.token_ids == full.token_ids[: len(first.token_ids)]
        assert player.was_left(first) == (len(full.turns) > 1)
    assert player.most_tokens(branches[0]) == 400 and player.most_tokens(branches[0], 1) == 48
    assert player.most_tokens(Branch(tasks[0], 0, 0, whole[0], 1)) <= 400 - whole[0].turns[0]["end"]


def test_a_world_that_answers_otherwise_is_refused(player, tasks, monkeypatch):
    parent = next(
        each
        for number in range(60)
        for each in player.play([Branch(tasks[1], number, branch_seed(0, tasks[1], number))])
        if len(each.turns) >= 2 and each.turns[0]["calls"]
    )
    monkeypatch.setattr(WorkspaceEnvironment, "step", lambda self, tool, args: Observation("otherwise"))
    with pytest.raises(DataError, match=r"environment 'workspace': episode .* answered otherwise before turn 3"):
        player.play([Branch(tasks[1], 0, 1, replace(parent, turns=parent.turns), 2)])


def test_programs_of_their_own_are_refused(config, base):
    harness = config.rollout.model_copy(update={"harness": object()})
    with pytest.raises(ConfigError, match="cannot go on from a turn"):
        Player(RolloutSections.of(config).model_copy(update={"rollout": harness}), PolicyRef(base), 2)
    with pytest.raises(DataError, match="only turns that our own loop sampled"):
        sampled_turns(
            Trajectory("t", "k", "k", 0, 0, 0, 1.0, [1], [1], [0.0], [{"start": 0, "end": 1, "forced": 1, "policy_version": 0}],
                       {}, [], "finished")
        )  # fmt: skip


def test_within_counts_what_may_be_sampled():
    assert [within(budget, [3, 4, 5]) for budget in (2, 3, 7, 11, 12)] == [0, 1, 2, 2, 3]


def test_a_search_keeps_its_budget_and_its_trees_hold_what_was_sampled(searched):
    search, found, out = searched
    played = [each for wave in waves(out) for each in read_records(wave / "trajectories.parquet", Trajectory)]
    scores = [each for wave in waves(out) for each in read_scores(wave / "scores.parquet")]
    assert found["simulations"] == len(played) == len(scores) >= 3
    assert 0 < found["sampled_tokens"] == search.tokens <= BUDGET
    for name, tree in search.trees.items():
        own = [item.breakdown["success"] for item in scores if item.task_id == name]
        assert (tree.root.visits, tree.root.total) == (len(own), sum(own))
        for node in tree.nodes():
            if node.parent:
                turns = sampled_turns(search.trajectories[node.source])
                assert node.parent.children[turns[node.depth - 1].token_ids] is node
            assert node.ended or node.visits == sum(child.visits for child in node.children.values())


def test_a_search_that_was_killed_goes_on_and_gives_the_same_bytes(config, player, tasks, searched, tmp_path, files_of):
    _, found, out = searched
    half = tmp_path / "half"
    shutil.copytree(out, half)
    for wave in waves(half)[1:]:
        shutil.rmtree(wave)
    (half / "waves" / ".partial-00002-1").mkdir()  # as a kill leaves it
    before = player.sampled
    again = Search(config, player, tasks[:3], SearchSettings(budget=BUDGET, width=2), half)
    assert again.run() == found and 0 < player.sampled - before < found["sampled_tokens"]
    assert files_of(half / "waves") == files_of(out / "waves")
    with pytest.raises(DataError, match=r"search\.json: is of a search with another profile, other settings"):
        Search(config, player, tasks[:3], SearchSettings(budget=BUDGET, width=3), half)
    settings = SearchSettings(budget=BUDGET, width=2)
    colder = config.model_copy(update={"rollout": config.rollout.model_copy(update={"temperature": 0.5})})
    moved = [*tasks[:2], replace(tasks[2], initial_state={"files": {}})]
    for other in (
        (colder, tasks[:3], settings),
        (config, moved, settings),
        (config, tasks[:3], settings.model_copy(update={"critic": "m"})),
    ):
        with pytest.raises(DataError, match="another profile, other settings, tasks or policy"):
            Search(other[0], player, other[1], other[2], half)


def test_a_critic_values_single_turns(config, player, tasks, tmp_path):
    seen = []

    def critic(trajectories):
        seen.extend(trajectories)
        return [0.25] * len(trajectories)

    search = Search(config, player, tasks[:2], SearchSettings(budget=400, width=2, simulations=3), tmp_path / "out", critic)
    found = search.run()
    assert seen and found["sampled_tokens"] <= 400
    depths = [node.depth for tree in search.trees.values() for node in tree.nodes()]
    assert len(depths) - 2 <= found["simulations"]
    assert all(each == search.trajectories[each.id] for each in seen)
    left = [n for tree in search.trees.values() for n in tree.nodes() if n.parent and not n.ended and not n.children]
    assert left and all(node.value == 0.25 for node in left)


def trajectory(name, turns, mask_to=None):
    """Turns of given ids after the prompt [1, 2], each but the last answered with [9]."""
    ids, mask, spans = [1, 2], [0, 0], []
    messages = [{"role": "user", "content": "Do."}]
    for number, turn in enumerate(turns):
        spans.append({"start": len(ids), "end": len(ids) + len(turn), "calls": 1, "malformed": 0, "policy_version": 0})
        ids, mask = ids + list(turn), mask + [1] * len(turn)
        messages.append({"role": "assistant", "content": str(turn)})
        if number < len(turns) - 1:
            ids, mask = [*ids, 9], [*mask, 0]
            messages.append({"role": "tool", "content": "ok"})
    logprobs = [-0.5 * one for one in mask]
    return Trajectory(name, "k", "k", 0, 0, 0, 1.0, ids, mask, logprobs, spans, {}, messages, "finished")


def test_pairs_by_hand(tmp_path):
    """Siblings (3,) with value 2/3 and (4,) with 0, of three and two simulations; below (3,) both were seen once only."""
    tree = Tree(9, 1.0)
    known = {}
    for name, turns, value in (
        ("a", [(3,), (5, 6)], 1.0),
        ("b", [(4,), (5, 7)], 0.0),
        ("c", [(3,), (5, 8)], 0.0),
        ("d", [(4,), (7, 7)], 0.0),
        ("e", [(3,), (5, 6)], 1.0),
    ):
        known[name] = trajectory(name, turns)
        tree.add(tree.root, turns, value, name)
    (pair,) = node_pairs(tree, PairSettings())
    assert (pair.chosen.source, pair.rejected.source, pair.margin) == ("a", "b", pytest.approx(2 / 3))
    assert [each.margin for each in node_pairs(tree, PairSettings(visits=1))] == [1.0, pytest.approx(2 / 3)]
    assert node_pairs(tree, PairSettings(margin=0.7)) == []
    figures = write_pairs(tmp_path, {"k": tree}, known, PairSettings())
    assert figures == {"pairs": 1, "tasks_with_pairs": 1, "margin": pytest.approx(2 / 3), "turn": 1.0}
    rows, scores = read_records(tmp_path / "trajectories.parquet", Trajectory), read_scores(tmp_path / "scores.parquet")
    assert [(row.token_ids, row.action_mask) for row in rows] == [([1, 2, 3], [0, 0, 1]), ([1, 2, 4], [0, 0, 1])]
    assert [item.total for item in scores] == [1.0, 0.0] and scores[0].breakdown == {
        "value": pytest.approx(2 / 3),
        "visits": 3.0,
    }
    assert rows[0].group == rows[1].group and [message["role"] for message in rows[0].messages] == ["user", "assistant"]


def test_a_turn_that_is_the_beginning_of_its_sibling_makes_no_pair():
    tree = Tree(9, 1.0)
    for value, turn in ((1.0, (3,)), (1.0, (3,)), (0.0, (3, 4)), (0.0, (3, 4))):
        tree.add(tree.root, [turn], value, "t")
    assert node_pairs(tree, PairSettings()) == []


def test_a_cut_trajectory_ends_with_its_turn():
    whole = trajectory("a", [(3,), (5, 6), (7,)])
    part = cut(whole, 2)
    assert part.token_ids == [1, 2, 3, 9, 5, 6] and part.turns == whole.turns[:2]
    assert [message["role"] for message in part.messages] == ["user", "assistant", "tool", "assistant"]


def test_the_pairs_of_a_group_train_the_dpo_learner(config, player, tasks, adapter_state, tmp_path):
    """The learner reads the files as they are: its pairs are those that were written, and its loss is on the turns alone."""
    from tracewheel.learner.dpo.preferences import preference_pairs

    group = player.play([Branch(tasks[0], n, branch_seed(5, tasks[0], n)) for n in range(6)])
    tree = tree_of_group(group, [float(number % 2) for number in range(6)])
    made = write_pairs(tmp_path / "pairs", {tasks[0].id: tree}, {each.id: each for each in group}, PairSettings(visits=1))
    assert made["pairs"] >= 1
    files = [tmp_path / "pairs" / name for name in ("trajectories.parquet", "scores.parquet")]
    table = pd.read_parquet(files[0]).assign(total=pd.read_parquet(files[1])["total"])
    pairs = preference_pairs(table, per_group=4, margin=0.5, rng=random.Random(0))
    assert len(pairs) == made["pairs"]
    for pair in pairs:
        for side in (pair.chosen, pair.rejected):
            assert set(side.action_mask) == {1}  # a part of one turn: nothing was observed between
    dpo = {"kind": "dpo", "learning_rate": 1e-3, "gradient_checkpointing": False, "minibatches": 1, "replay_rows": 0}
    learner = type(config).model_validate({**config.model_dump(exclude_unset=True), "learner": dpo})
    given = UpdateFiles(files[:1], files[1:], adapter_state, adapter_state / "adapter", tmp_path / "next")
    figures = update(UpdateSections.of(learner), given, iteration=1)
    assert figures["pairs"] == made["pairs"] and figures["steps"] == 1.0
    assert (tmp_path / "next" / "adapter").is_dir()


@pytest.fixture(scope="module")
def adapter_state(make_adapter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    make_adapter(folder)
    return folder
