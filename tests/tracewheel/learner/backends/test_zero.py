"""Updates on real processes under ZeRO: the figures, weights and state files of one process."""

import pytest


def test_zero_2_gives_the_update_of_one_process(alone, on_two_stages, adapter, assert_same_update, distance):
    assert_same_update(alone[0], on_two_stages[0])
    assert distance(on_two_stages[0], adapter.parent) > 1e-3


def test_zero_3_resumes_the_state_of_one_process(alone, on_two_stages, assert_same_update, distance):
    assert_same_update(alone[1], on_two_stages[1])
    assert distance(on_two_stages[1], alone[0]) > 1e-3


def test_one_process_resumes_the_state_of_two(run, alone, on_two_stages, five_steps, assert_same_update):
    """The second update in one process, from the state that two wrote."""
    resumed, _ = run(five_steps, state=on_two_stages[0], iteration=2)
    assert_same_update(alone[1], resumed)


@pytest.mark.slow
def test_offload_and_layouts_do_not_change_the_update(updates_in_turn, alone, five_steps, on_two, assert_same_update):
    """Offload of the optimiser or of everything; packed and shared layouts; recomputed activations."""
    variants = [
        on_two(stage=2, offload="optimizer"),
        on_two(stage=3, offload="optimizer"),
        on_two(stage=3, offload="all", overlap_comm=False),
        on_two(stage=3) | {"layout": "packed"},
        on_two(stage=3) | {"layout": "shared_prefix", "gradient_checkpointing": True},
    ]
    for out in updates_in_turn(*((five_steps | variant, alone[0], 2) for variant in variants)):
        assert_same_update(alone[1], out)


@pytest.mark.slow
def test_three_processes_give_the_update_of_one(run, updates_in_turn, alone, five_steps, assert_same_update):
    learner = five_steps | {"backend": {"kind": "deepspeed", "stage": 3}}
    [out] = updates_in_turn((learner, alone[0], 2), processes=3)
    assert_same_update(alone[1], out)
