"""Advantages of tokens from a table of trajectories, by hand."""

import pandas as pd
import pytest
import torch

from tracewheel.config import PolicyGradientConfig
from tracewheel.learner.token_advantages import advantages_by_group, advantages_by_teacher
from tracewheel.learner.trajectory_table import TrajectoryTable

NO_KL = 0.0


def table_of(*totals):
    """Trajectories of one group: two observed tokens, then two sampled ones."""
    rows = [{"group": "a", "action_mask": [0, 0, 1, 1], "total": total, "reward": total} for total in totals]
    return TrajectoryTable(pd.DataFrame(rows))


@pytest.mark.parametrize(("threshold", "kept"), [(1.0, [0]), (0.5, [0, 1])])
def test_success_imitates_trajectories_from_a_threshold(threshold, kept):
    config = PolicyGradientConfig(kind="rejection_sampling", advantage={"threshold": threshold})
    positions, advantages = advantages_by_group(config, table_of(1.0, 0.5, 0.0), NO_KL)
    assert positions.tolist() == kept
    assert advantages == [[1.0] * 4] * 3


def test_a_group_without_variance_is_skipped_or_kept():
    for kind, kept in (("skip", []), ("keep", [0, 1])):
        config = PolicyGradientConfig(zero_variance={"kind": kind})
        positions, advantages = advantages_by_group(config, table_of(1.0, 1.0), NO_KL)
        assert positions.tolist() == kept
        assert advantages == [[0.0] * 4] * 2


def test_the_teachers_advantage_is_the_difference_of_logprobs_on_actions():
    frame = pd.DataFrame({"action_mask": [[0, 1, 1]], "logprobs": [[0.0, -1.0, -2.0]]})
    table = TrajectoryTable(frame, {"teacher": [torch.tensor([0.0, -0.5, -2.5, 0.0])]})
    assert advantages_by_teacher(table) == [[0.0, 0.5, -0.5]]
