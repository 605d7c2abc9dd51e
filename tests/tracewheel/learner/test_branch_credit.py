"""Rows of turns with credit, and the certificate of fidelity."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from tracewheel.core.types import Turn
from tracewheel.learner.fidelity import row_figures, token_figures, with_fidelity
from tracewheel.learner.scored_trajectories import agent_rewards, with_credit
from tracewheel.learner.trajectory_table import TrajectoryTable


def episode(credits, name="a", *, total=0.5, turn_rewards=None, **more):
    """An episode of a context token and two sampled tokens a turn."""
    turns = [Turn(1 + 3 * n, 3 + 3 * n, 0, 0, 2, credit=credit) for n, credit in enumerate(credits)]
    length = 3 * len(credits)
    mask = [int(at % 3 > 0) for at in range(length)]
    return {
        "id": name,
        "group": "g",
        "token_ids": list(range(length)),
        "action_mask": mask,
        "logprobs": [-0.5 * acted for acted in mask],
        "turns": json.dumps([turn.to_record() for turn in turns]),
        "stop_reason": "finished",
        "total": total,
        "turn_rewards": turn_rewards,
        "agent_rewards": {},
        **more,
    }


def test_without_credit_the_rows_are_as_they_were():
    table = pd.DataFrame([episode([None, None])])
    assert with_credit(table) is table


def test_turns_without_credit_are_context():
    [row] = with_credit(pd.DataFrame([episode([None, "", None], turn_rewards=[0.1, 0.2, 0.3])])).to_dict("records")
    assert row["action_mask"] == [0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert row["logprobs"] == [0.0, -0.5, -0.5, 0.0, 0.0, 0.0, 0.0, -0.5, -0.5]
    assert [turn["start"] for turn in json.loads(row["turns"])] == [1, 7]
    assert row["turn_rewards"] == [0.1, 0.3] and row["group"] == "g"


def test_each_agent_is_a_row_in_a_group_of_its_own_with_its_own_reward():
    rewards = agent_rewards({"v": 1.0, "v.agent.left": 0.2, "v.files": 1.0})
    assert rewards == {"left": 0.2}
    table = with_credit(pd.DataFrame([episode(["left", "right", "left"], agent_rewards=rewards)]))
    assert table["action_mask"].tolist() == [[0, 1, 1, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0, 0]]
    assert table["total"].tolist() == [0.2, 0.5]
    assert table["group"].nunique() == 2 and "g" not in set(table["group"])


def test_the_share_of_tokens_counts_what_was_lost_or_not_scored():
    counts = {
        "dropped.tools.web_search": 5,
        "refused.messages[0].content": 1,
        "refused.messages[7].content": 2,
        "refused.ä\n": 1,
    }
    asked = {"asked": 5, "refused": 1, "unmatched": 2, "lost_tokens": 4, **counts}
    branches = [{"reason": ""}, {"reason": "retry"}]
    table = pd.DataFrame(
        [
            episode([None, None], "a", requests=json.dumps(asked), branches=json.dumps(branches)),
            episode([None, None], "b", total=np.nan),
            episode([None, None], "c", stop_reason="infrastructure_failed"),
            episode([None, None], "d", total=np.nan, stop_reason="user_failed", fault="user"),
        ]
    )
    found = token_figures(table)
    assert found["fidelity_tokens"] == 4 / (4 + 4 + 4)
    assert (found["requests_unmatched"], found["branches_retry"]) == (2, 1) and "branches_edited" not in found
    counted = {name: value for name, value in found.items() if name.startswith(("dropped.", "refused."))}
    assert counted == {"dropped.tools.web_search": 5, "refused.messages.content": 3, "refused.__": 1}, "names of a metric"
    assert with_fidelity(found)["fidelity"] == found["fidelity_tokens"]


@pytest.mark.parametrize(("gap", "share"), [(0.0, 1.0), (0.1, 0.5), (float("nan"), 0.5)])
def test_rows_agree_where_their_own_tokens_do(gap, share):
    """Two rows that share the first turn: the second row's own turn differs."""
    frame = pd.DataFrame([episode([None, None, None]) | {"forks": "[[6, 2]]"}])
    proximal = torch.tensor(frame["logprobs"][0])
    proximal[7:] += gap
    table = TrajectoryTable(frame, {"proximal": [proximal], "current": [torch.ones(9)]})
    assert row_figures(table, 0.02) == {"fidelity_rows": share}
    earlier = TrajectoryTable(frame, {"proximal": [proximal], "current": [torch.zeros(9)]})
    assert row_figures(earlier, 0.02) == {}
