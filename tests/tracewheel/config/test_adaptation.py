"""Settings of adapters: shapes by family, specialists, merging, and inconsistent settings."""

import pytest
from pydantic import ValidationError

from tracewheel.config import LoraConfig, LoraShape, MergeConfig, RetrainConfig
from tracewheel.policy.merge import weight_of

SMALL = {"rank": 4, "alpha": 8}


def profile(**sections):
    return RetrainConfig.model_validate({"name": "test", **sections})


def test_a_group_has_the_shape_that_its_families_share():
    lora = LoraConfig(families={"a": LoraShape(**SMALL), "b": LoraShape(**SMALL), "c": LoraShape(rank=2)})
    assert lora.of(("a", "b")) == LoraShape(**SMALL)
    assert lora.of(("d",)) is None
    for mixed in (("a", "c"), ("a", "d")):
        with pytest.raises(ValueError, match="need one shape"):
            lora.of(mixed)


@pytest.mark.parametrize(
    ("method", "space", "weight"),
    [("linear", "weights", 0.25), ("dare_linear", "weights", 0.25), ("ties", "weights", 1.0), ("dare_ties", "weights", 1.0),
     ("linear", "factors", 0.0625), ("ties", "factors", 1.0)],
)  # fmt: skip
def test_the_default_weight_gives_the_mean(method, space, weight):
    assert weight_of(MergeConfig(method=method, space=space), 4) == weight
    assert weight_of(MergeConfig(method=method, space=space, weight=0.7), 4) == 0.7


def test_a_merge_label_lists_settings_that_differ_from_the_defaults():
    assert MergeConfig(method="linear").label() == "linear"
    assert MergeConfig(density=0.2, rank=8).label() == "ties density 0.2 rank 8"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"warm_start": {"weights": "full"}}, "set learner.weights to 'full'"),
        ({"warm_start": {"lora": {"families": {"a": SMALL}}}}, "set training.specialists"),
        ({"training": {"specialists": {"groups": {}}}}, "at least 1 item"),
        ({"training": {"specialists": {"groups": {"one": []}}}}, "at least 1 item"),
        ({"training": {"specialists": {"groups": {"one": ["a"]}}}, "learner": {"weights": "full"}}, "are adapters"),
        (
            {"training": {"specialists": {"groups": {"one": ["a", "b"]}}}, "warm_start": {"lora": {"families": {"a": SMALL}}}},
            "a, b are in one group and need one shape",
        ),
        ({"training": {"specialists": {"groups": {"one": ["a"]}, "merges": [{"density": 0}]}}}, "greater than 0"),
    ],
)
def test_inconsistent_settings_are_errors(sections, message):
    with pytest.raises(ValidationError, match=message):
        profile(**sections)


def test_defaults_of_training_and_warm_start():
    config = profile()
    assert config.training.specialists is None
    assert (config.warm_start.weights, config.warm_start.warmup_steps, config.warm_start.lora.families) == ("lora", 10, {})
