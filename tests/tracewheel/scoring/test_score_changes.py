"""What another rubric made of the same episodes."""

import pytest

from tracewheel.core.errors import DataError
from tracewheel.core.types import Score
from tracewheel.scoring.score import score_changes


def made(name, total, success=None, family="f"):
    status, parts = ("unscored", {}) if total is None else ("scored", {"success": float(success)})
    return Score(name, name, name, status, total, parts, family=family)


def test_flips_are_counted_by_family_and_named():
    before = [made("a", 1.0, 1), made("b", 0.0, 0), made("c", None), made("d", 0.5, 0, "g"), made("e", 0.5, 1, "g")]
    after = [made("e", None, family="g"), made("a", 0.4, 0), made("b", 0.0, 0), made("c", 1.0, 1), made("d", 1.0, 1, "g")]
    found = score_changes(before, after)
    assert found["examples"] == {"to_success": ["d"], "to_failure": ["a"], "to_unscored": ["e"], "to_scored": ["c"]}
    assert found["families"]["f"] == {
        "episodes": 3, "moved": 1, "to_success": 0, "to_failure": 1, "to_unscored": 0, "to_scored": 1,
        "reward": {"before": 0.5, "after": 0.2},
    }  # fmt: skip
    assert found["families"]["g"]["reward"] == {"before": 0.5, "after": 1.0}
    assert (found["episodes"], found["moved"]) == (5, 2)


def test_scores_of_other_episodes_are_refused():
    with pytest.raises(DataError, match="not of the same ones"):
        score_changes([made("a", 1.0, 1)], [made("b", 1.0, 1)])
