"""What a run needs, from the figures of a pass worked out by hand, and what is refused."""

import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import ConfigError
from tracewheel.rollout.foresight import GIB, Foreseen, Lengths, Need, foresee, seconds_of_stages
from tracewheel.rollout.measured_pass import Extra, PassFigures

LENGTHS = Lengths(prompt=100.0, sampled=50.0, whole=200.0, longest=300, demonstrations=40)
FIGURES = PassFigures(
    imports=GIB // 2,
    base=2 * GIB,
    gpu_base=0,
    load=Extra(0, 5.0, GIB),
    training=(Extra(400, 4.0, 1 * GIB), Extra(1200, 12.0, 3 * GIB)),
    forward=Extra(1200, 3.0, 0),
    reading=Extra(800, 2.0, 0),
    sampling=Extra(100, 5.0, 0),
    position=1 << 20,
)


def profile(**sections):
    return RetrainConfig.model_validate({"name": "t", **sections})


def test_a_micro_batch_needs_what_its_tokens_add():
    """1 GiB at 400 tokens and 3 at 1,200 are 0.0025 GiB a token: 4,096 of them need 10.24 GiB, 2,048 need 5.12."""
    few = {"rollout": {"engine": {"slots": 2}}}
    small = profile(warm_start={"micro_batch_tokens": 2048, "batch_size": 64}, learner={"micro_batch_tokens": 2048}, **few)
    for config, gib in ((profile(warm_start={"batch_size": 64}, **few), 10.24), (small, 5.12)):
        (main,) = foresee(config, FIGURES, LENGTHS)
        (need,) = [need for need in main.needs if "micro-batch" in need.part]
        assert need.bytes / GIB == pytest.approx(gib, rel=1e-3)
        assert main.peak / GIB == pytest.approx(0.5 + 0.34 + 2 + gib, abs=0.02)


def test_the_cache_and_a_second_base_count_where_they_are_more():
    """40 rows of 512 positions at 1 MiB are 20 GiB, and the engine has a base of its own beside a kept learner."""
    (kept,) = foresee(profile(), FIGURES, LENGTHS)
    assert {need.part: need.bytes / GIB for need in kept.needs}["keys and values of 40 conversations"] == 20
    assert [need.part for need in kept.needs].count("the engine's base") == 1
    (alone,) = foresee(profile(placement={"keep_learner": False}), FIGURES, LENGTHS)
    assert kept.peak - alone.peak == 2 * GIB
    (few,) = foresee(profile(rollout={"engine": {"slots": 4}}, placement={"keep_learner": False}), FIGURES, LENGTHS)
    assert any("micro-batch" in need.part for need in few.needs), "4 rows need less than a micro-batch, and never both at once"


@pytest.mark.parametrize(
    ("sections", "advice"),
    [
        ({}, "set rollout.engine.slots to at most 16"),
        ({"rollout": {"engine": {"slots": 2}}}, "set learner.micro_batch_tokens to at most 1800"),
        (
            {"rollout": {"engine": {"slots": 2}}, "learner": {"gradient_checkpointing": False}},
            "set learner.gradient_checkpointing to true",
        ),
        ({"policy": {"dtype": "float32"}}, "set policy.dtype to bfloat16"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_setting_to_change(sections, advice):
    config = profile(policy=sections.pop("policy", {"dtype": "bfloat16"}), **sections)
    (main,) = foresee(config, FIGURES, LENGTHS)
    main.check(main.peak, "resources.memory_gib")
    with pytest.raises(ConfigError, match=rf"this run needs about .* are available \(resources.memory_gib\): .*{advice}"):
        main.check(main.peak - 1, "resources.memory_gib")


def test_nothing_is_refused_where_the_limit_is_unknown():
    endless = Foreseen((Need("base", 1 << 60),), "main memory")
    endless.check(None, "resources.memory_gib")
    with pytest.raises(ConfigError, match="this run needs about"):
        endless.check(1 << 40, "resources.memory_gib")


def test_seconds_are_those_of_the_tokens():
    """A training token takes 0.01 s, a forward pass 0.0025, reading 0.0025, sampling 0.05."""
    found = seconds_of_stages(profile(training={"tasks_per_iteration": 2}), FIGURES, LENGTHS)
    assert found["warm_start"] == pytest.approx(2 * 40 * 200 * 0.01 + 5)
    assert found["rollout"] == found["collect"] == pytest.approx(50 * 0.05 + (50 + 100 / 8) * 0.0025)
    assert found["evaluate"] == pytest.approx(50 * 0.05 + (50 + 100 * 2 / 3) * 0.0025)
    shared = 200 - 100 * 7 / 8
    assert found["update"] == pytest.approx(16 * shared * (0.7 * 0.01 + 0.0025))


def test_figures_survive_their_record():
    from dataclasses import asdict

    assert PassFigures.from_record(asdict(FIGURES)) == FIGURES
