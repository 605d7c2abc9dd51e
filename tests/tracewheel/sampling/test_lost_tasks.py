"""Which tasks a loop has lost."""

import pytest

from tracewheel.core.types import Score
from tracewheel.sampling.lost_tasks import LostTasks, in_words
from tracewheel.scoring.score import write_scores


def _success(reward):
    return {} if reward is None else {"success": float(reward >= 1.0)}


@pytest.fixture
def scores(tmp_path):
    """Writes one iteration's scores: rewards by task, None for an unscored sample."""

    def write(number, **groups):
        items = [
            Score(f"{number}-{task}-{s}", task, f"{task}-{number}", "unscored" if r is None else "scored", r, _success(r))
            for task, rewards in groups.items()
            for s, r in enumerate(rewards)
        ]
        write_scores(tmp_path / f"{number}.parquet", items)
        return [tmp_path / f"{number}.parquet"]

    return write


def test_a_task_is_lost_after_so_many_lost_groups_in_a_row_and_no_longer_once_solved(scores):
    seen = LostTasks(2, {})
    seen.observe(1, scores(1, a=[0.0, 0.0], b=[0.0, 1.0], c=[0.0, 0.0]))
    assert (seen.ids, seen.share) == ([], pytest.approx(2 / 3))
    seen.observe(2, scores(2, a=[0.0, 0.5], b=[0.0, 0.0], c=[1.0, 0.0]))
    assert (seen.ids, seen.won_in) == (["a"], {"b": 1, "c": 2}), "half a reward is no success"
    seen.observe(3, scores(3, b=[0.0]))
    assert seen.ids == ["a", "b"], "a task that was not played stays as it was"
    seen.observe(4, scores(4, a=[1.0]))
    assert (seen.ids, seen.share, seen.won_in["a"]) == (["b"], 0.0, 4)


def test_unscored_samples_say_nothing(scores):
    seen = LostTasks(1, {})
    seen.observe(1, scores(1, a=[None, None], b=[None, 0.0]))
    assert (seen.ids, seen.share) == (["b"], 1.0)
    seen.observe(2, scores(2, a=[None]))
    assert seen.share is None


def test_tasks_that_were_not_played_are_lost_where_most_groups_of_their_family_and_tier_are(scores):
    kin = {name: ("hard" if name in "abcdef" else "easy", 1) for name in "abcdefgh"}
    seen = LostTasks(1, kin)
    seen.observe(1, scores(1, a=[0.0], b=[0.0], c=[0.0], g=[1.0]))
    assert seen.ids == ["a", "b", "c"], "three groups tell nothing yet"
    seen.observe(2, scores(2, d=[1.0]))
    assert seen.ids == ["a", "b", "c", "e", "f"] and seen.played == ["a", "b", "c"]
    seen.observe(3, scores(3, a=[1.0], b=[1.0]))
    assert seen.ids == ["c"], "half of the groups are lost, not more"


@pytest.mark.parametrize(
    "shown, asked, unsolved, says",
    [
        (None, 0, 0, "What helps: imitate solutions"),
        ({}, 0, 3, "solution: none; solved afterwards: 1. Lost without a solution: 3. For these name a teacher"),
        ({"teacher": 2, "logs": 9}, 23, 3, "9 from logs, 2 from teacher (asked for 23)"),
        ({"teacher": 2}, 23, 3, "For these raise teacher.samples"),
        ({"logs": 2}, 0, 0, "2 from logs; solved afterwards: 1."),
    ],
    ids=["nothing is rescued", "nobody has a solution", "both have some", "a teacher was asked", "all have one"],
)
def test_a_run_says_what_it_lost_and_what_to_do(shown, asked, unsolved, says):
    said = in_words(0.95, 0.75, shown, 1, asked, unsolved)
    assert said.startswith("95% of the first groups were lost whole, 75% of the last") and says in said
    assert ("Lost without" in said) == bool(unsolved)
