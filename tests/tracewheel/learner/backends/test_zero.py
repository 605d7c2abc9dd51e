"""Updates on real processes under ZeRO: the figures, weights and state files of one process."""

from pathlib import Path

import pytest

from tracewheel.config import UpdateSections
from tracewheel.core.files import read_json, write_json
from tracewheel.learner.backends.launch import update_job
from tracewheel.learner.update_files import UpdateFiles


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


def test_zero_3_learns_on_the_same_bfloat16_base_as_zero_2(on_two_stages):
    """The trajectories were sampled in float32: on a base in float32 the mismatch would be thousands of times smaller.

    Stage 3 computes LoRA in float32, as PEFT does; stage 2 rounds its factors, which is the rest of its mismatch.
    """
    two, three = (read_json(out / "metrics.json") for out in on_two_stages[2:])
    assert 1e-4 < three["sampler_mismatch_mean"] < two["sampler_mismatch_mean"] < 2e-3
    assert three["policy_loss"] == pytest.approx(two["policy_loss"], rel=0.02)
    assert three["grad_norm"] == pytest.approx(two["grad_norm"], rel=0.2)


@pytest.mark.slow
def test_zero_3_holds_the_base_in_the_policys_type(profile_with, inputs, adapter, in_bfloat16, on_two, tmp_path, torchrun):
    """Each process holds half the weights: a bfloat16 base in bfloat16, and adapters in float32."""
    held = {}
    for dtype, changes in (("float32", {}), ("bfloat16", in_bfloat16)):
        job = tmp_path / dtype / "job.json"
        job.parent.mkdir()
        profile = UpdateSections.of(profile_with(on_two(stage=3), **changes))
        files = UpdateFiles(*inputs, adapter.parent, adapter, tmp_path / "out")
        write_json(job, update_job(profile, files, iteration=1))
        torchrun(Path(__file__).with_name("loaded_types.py"), job)
        held[dtype] = [read_json(job.with_name(f"types-{rank}.json")) for rank in range(2)]
    for of_process, low in zip(held["float32"], held["bfloat16"], strict=True):
        assert of_process.keys() == {"base float32", "adapter float32"}
        assert low == {
            "base bfloat16": of_process["base float32"],
            "adapter float32": of_process["adapter float32"],
        }


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
