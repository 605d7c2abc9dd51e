"""UCT by hand, a bandit whose best arm is known, and a game whose values are known."""

import itertools
import math
import random

import pytest

from tracewheel_search.tree import Node, Tree, upper_bound


def test_a_tree_of_two_levels_by_hand():
    """Width 2, c = 1. Turn a succeeds in 2 of 3 simulations, b in 1 of 2; then N = 5, ln 5 = 1.6094."""
    tree = Tree(2, 1.0)
    root = tree.root
    assert tree.select() is root
    tree.add(root, [(1,), (10,)], 1.0, "t0")
    assert tree.select() is root
    tree.add(root, [(2,), (20,)], 0.0, "t1")
    a, b = root.children[(1,)], root.children[(2,)]
    assert (a.value, b.value, root.value) == (1.0, 0.0, 0.5)
    assert upper_bound(a, 1.0) == pytest.approx(1.0 + math.sqrt(math.log(2)))
    assert tree.select() is a
    tree.add(a, [(11,)], 0.0, "t2")  # a: 1 of 2, and sampled out
    assert a.drawn == 2 and tree.select() is b
    tree.add(b, [(21,)], 1.0, "t3")
    assert tree.select() is None
    tree.add(a, [(10,)], 1.0, "t4")
    assert (root.visits, root.total, a.visits, a.total) == (5, 3.0, 3, 2.0)
    assert upper_bound(a, 1.0) == pytest.approx(2 / 3 + math.sqrt(1.6094379 / 3), abs=1e-7)
    assert upper_bound(b, 1.0) == pytest.approx(1 / 2 + math.sqrt(1.6094379 / 2), abs=1e-7)
    assert [node.depth for node in tree.nodes()] == [0, 1, 2, 2, 1, 2, 2]
    assert a.children[(10,)].visits == 2 and [node.depth for node in a.children[(11,)].path()] == [2, 1, 0]


def test_exploration_decides_between_a_good_and_a_rare_child():
    """Values 0.6 of 9 and 0.4 of 1: with c = 0.1 the first bound is larger, with c = 1 the second."""
    bounds = {}
    for exploration in (0.1, 1.0):
        root = Node(visits=10)
        good, rare = Node(root, 1, visits=9, total=5.4), Node(root, 1, visits=1, total=0.4)
        bounds[exploration] = [upper_bound(good, exploration), upper_bound(rare, exploration)]
    assert bounds[0.1] == pytest.approx([0.6 + 0.1 * math.sqrt(math.log(10) / 9), 0.4 + 0.1 * math.sqrt(math.log(10))])
    assert bounds[0.1][0] > bounds[0.1][1] and bounds[1.0][0] < bounds[1.0][1]


@pytest.mark.parametrize("seed", range(5))
def test_most_simulations_go_to_the_best_arm_of_a_bandit(seed):
    """Three arms with chances 0.2, 0.5 and 0.8; whatever is said after the arm does not matter."""
    rng, chances = random.Random(seed), {(0,): 0.2, (1,): 0.5, (2,): 0.8}
    tree, arms = Tree(3, 1.0), itertools.cycle(chances)
    for number in range(400):
        node = tree.select()
        turns = [(rng.randrange(10**9),) for _ in range(12 - max(1, node.depth))]
        turns = [next(arms), *turns] if node is tree.root else turns
        arm = turns[0] if node is tree.root else next(each for each in node.path() if each.depth == 1)
        ids = arm if isinstance(arm, tuple) else next(k for k, v in tree.root.children.items() if v is arm)
        tree.add(node, turns, float(rng.random() < chances[ids]), f"t{number}")
    visits = {ids: child.visits for ids, child in tree.root.children.items()}
    assert sum(visits.values()) == 400 and visits[(2,)] > 250 > visits[(1,)] > visits[(0,)]
    assert tree.root.children[(2,)].value == pytest.approx(0.8, abs=0.1)


def test_the_values_of_a_game_that_is_played_out_are_exact():
    """Three turns of 0 or 1; won with 1,1,x or 0,0,0. A player that says 0 and then 1 at each node plays each game once."""

    def won(game):
        return float(game[:2] == (1, 1) or game == (0, 0, 0))

    tree = Tree(2, 1.0)
    for number in range(8):
        node = tree.select()
        game = [
            next(ids for ids, child in each.parent.children.items() if child is each)[0] for each in node.path() if each.parent
        ]
        game, here = game[::-1], node
        first = len(game)
        while len(game) < 3:
            game.append(min(1, here.drawn if here else 0))
            here = here.children.get((game[-1],)) if here else None
        tree.add(node, [(said,) for said in game[first:]], won(tuple(game)), f"g{number}")
    assert tree.select() is None
    value = {node.source + str(node.depth): node.value for node in tree.nodes()}
    assert len(value) == 15 and tree.root.value == 3 / 8
    zero, one = tree.root.children[(0,)], tree.root.children[(1,)]
    assert (zero.value, one.value) == (1 / 4, 1 / 2)
    assert (zero.children[(0,)].value, zero.children[(1,)].value) == (1 / 2, 0.0)
    assert (one.children[(0,)].value, one.children[(1,)].value) == (0.0, 1.0)


def test_an_episode_without_a_score_counts_for_no_value_and_is_not_tried_for_ever():
    tree = Tree(2, 1.0)
    tree.add(tree.root, [(1,)], None, "t0")
    assert tree.root.visits == 0 and not tree.root.children and math.isnan(tree.root.value)
    tree.add(tree.root, [(1,)], math.nan, "t1")
    assert tree.select() is None
