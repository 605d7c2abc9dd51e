"""The shipped agent as an unmodified program has the same episodes as our own loop."""

import pytest


def same(found, expected):
    """Check that an episode has the same tokens and outcome."""
    for name in ("id", "token_ids", "action_mask", "turns", "forks", "task_id", "sample", "seed", "branches"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-3), (
        "up to rounding, which depends on who else is in a pass"
    )
    assert {**found.final_state, "program": None} == {**expected.final_state, "program": None}


@pytest.mark.parametrize(
    "preload", [pytest.param([], id="started", marks=pytest.mark.slow), pytest.param(["openai", "httpx"], id="preloaded")]
)
def test_an_unmodified_program_has_the_episodes_of_the_built_in_loop(played, tasks, example, preload):
    expected = played(tasks, samples=2)
    found = played(tasks, {"command": example, "preload": preload, "seconds": 300}, samples=2)
    alike = 0
    for one, other in zip(found, expected, strict=True):
        if any(turn["malformed"] for turn in other.turns):
            continue  # a malformed call is a text for a program, which has no call to answer
        same(one, other)
        alike += 1
    assert alike > len(tasks)
