"""A learner that chooses between GRPO and rejection sampling by the first groups, and keeps its choice."""

import pytest

from tracewheel.core.files import read_records
from tracewheel.core.types import Score, Trajectory
from tracewheel.learner.auto import CHOICE_FILE, KINDS, alternatives, as_kind, says
from tracewheel.scoring.score import write_scores

LOST, MIXED, SOLVED = [0.0] * 4, [0.0, 1.0, 0.0, 0.0], [1.0] * 4


@pytest.mark.parametrize(
    "groups, kind, shares",
    [
        ([LOST, LOST, MIXED], "rejection_sampling", (2 / 3, 1 / 3, 0.0)),
        ([MIXED, MIXED, SOLVED], "grpo", (0.0, 2 / 3, 1 / 3)),
        ([[float("nan")] * 4, LOST, MIXED], "rejection_sampling", (1 / 2, 1 / 2, 0.0)),
    ],
    ids=["most are lost", "none is", "half are, and one is not scored"],
)
def test_the_first_groups_choose_and_later_ones_change_nothing(learn, same_weights, groups, kind, shares):
    auto, figures = learn("auto", groups)
    assert tuple(figures[f"first_{name}"] for name in ("lost", "some", "solved")) == pytest.approx(shares)
    assert same_weights(auto, learn(kind, groups)[0])
    assert not same_weights(auto, learn(*{*KINDS} - {kind}, groups)[0])
    assert says(figures).startswith(f"{kind}, as of the first groups {shares[0]:.0%} are lost")
    others = [MIXED, SOLVED, MIXED] if kind == "rejection_sampling" else [LOST, LOST, MIXED]
    later, again = learn("auto", others, state=auto, iteration=2)
    assert again["first_lost"] == figures["first_lost"] and (later / CHOICE_FILE).is_file()
    assert same_weights(later, learn(kind, others, state=auto, iteration=2)[0])


@pytest.fixture
def learn(profile_with, success_file, trajectories, adapter, tmp_path):
    from tracewheel.learner.update import update
    from tracewheel.learner.update_files import UpdateFiles

    def run(kind, groups, state=adapter.parent, iteration=1, success_file=success_file):
        out = tmp_path / f"{kind}-{iteration}"
        scores = success_file(out.with_suffix(".parquet"), trajectories, [one for group in groups for one in group])
        files = UpdateFiles([trajectories], [scores], state, adapter, out)
        return out, update(profile_with({"kind": kind, "minibatches": 1}), files, iteration=iteration)

    return run


def test_lost_groups_whose_rewards_differ_teach_grpo(learn):
    def partial_file(path, trajectories, rewards):
        played = zip(read_records(trajectories, Trajectory), rewards, strict=True)
        write_scores(path, [Score(t.id, t.task_id, t.group, "scored", reward, {"success": 0.0}) for t, reward in played])
        return path

    _, figures = learn("auto", [[0.0, 0.5, 0.0, 0.0]] * 3, success_file=partial_file)
    assert (figures["first_lost"], figures["first_some"]) == (0.0, 1.0) and says(figures).startswith("grpo")


def test_its_other_choices_stay_and_what_it_chooses_is_refused(profile_with):
    from tracewheel.config import PolicyGradientConfig

    given = profile_with({"kind": "auto", "lost_tasks": {"rows": 3}}).learner
    assert PolicyGradientConfig.model_validate(given.model_dump()) == given, "a resolved profile is read again"
    for one, kind in zip(alternatives(given), KINDS, strict=True):
        named = profile_with({"kind": kind, "lost_tasks": {"rows": 3}}).learner
        assert one == named == as_kind(given, kind)
    with pytest.raises(ValueError, match="kind 'auto' chooses advantage, surrogate, zero_variance"):
        profile_with({"kind": "auto", "zero_variance": {"kind": "keep"}})
