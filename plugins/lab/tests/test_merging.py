"""Merged adapters against products worked out by hand and PEFT's own functions, and refused merges."""

import itertools
import json

import pytest
import torch
from peft import PeftModel, get_peft_model
from peft.utils.merge_utils import dare_linear, dare_ties, ties

from tracewheel.config import LoraConfig, PolicyConfig
from tracewheel.core.errors import AdapterMismatchError, DataError
from tracewheel.policy.adapters import check_adapter, peft_config, write_adapter
from tracewheel.policy.loading import load_base
from tracewheel_lab.merging import MergeConfig, Part, compare, merge

TARGETS = ("q_proj", "k_proj")
METHODS = ("linear", "ties", "dare_linear", "dare_ties")


@pytest.fixture(scope="module")
def make_adapter(base, tmp_path_factory):
    """Makes random adapters on two kinds of layers; with `like`, one that starts from the given adapter."""
    root = tmp_path_factory.mktemp("adapters")
    counter = itertools.count()

    def make(seed, rank=2, alpha=4, targets=TARGETS, like=None):
        torch.manual_seed(seed)
        shape = LoraConfig(rank=rank, alpha=alpha, targets=targets)
        model = get_peft_model(load_base(PolicyConfig(), base), peft_config(shape))
        if like:
            model = PeftModel.from_pretrained(load_base(PolicyConfig(), base), like, adapter_name="default", is_trainable=True)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.add_(torch.randn_like(parameter) * 0.02)
        folder = root / f"{next(counter)}" / "adapter"
        write_adapter(model, folder, "default", base, version=0)
        return folder

    return make


@pytest.fixture(scope="module")
def family(make_adapter):
    """A start and two adapters trained from it."""
    start = make_adapter(0)
    return start, make_adapter(1, like=start), make_adapter(2, like=start)


@pytest.fixture(scope="module")
def deltas(base):
    """What an adapter adds to each layer's weights: scaling times B A."""

    def of(folder):
        model = PeftModel.from_pretrained(load_base(PolicyConfig(), base), folder)
        layers = {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}
        return {
            name: (layer.lora_B["default"].weight @ layer.lora_A["default"].weight).detach() * layer.scaling["default"]
            for name, layer in layers.items()
            if "default" in layer.lora_A
        }

    return of


@pytest.fixture
def merged(config, deltas, tmp_path):
    """Merges, and gives what the result adds to each layer."""
    counter = itertools.count()

    def run(parts, settings, onto=None, seed=0):
        out = tmp_path / str(next(counter))
        out.mkdir()
        merge(config.model_copy(update={"seed": seed}), parts, settings, out, onto=onto)
        return deltas(out / "adapter")

    return run


def parts_of(family):
    start, one, two = family
    return [Part("one", one, start), Part("two", two, start)]


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-4)


def test_linear_is_the_weighted_sum_of_the_changes(family, merged, deltas):
    start, one, two = map(deltas, family)
    found = merged(parts_of(family), MergeConfig(method="linear", weight=0.7), onto=family[0])
    assert_equal(found, {name: start[name] + 0.7 * (one[name] + two[name] - 2 * start[name]) for name in start})
    mean = merged(parts_of(family), MergeConfig(method="linear"), onto=family[0])
    assert_equal(mean, {name: (one[name] + two[name]) / 2 for name in start})


def test_weight_one_composes_adapters_of_different_ranks_and_layers(make_adapter, merged, deltas):
    one, two = make_adapter(3, rank=2), make_adapter(4, rank=3, alpha=3, targets=("q_proj", "v_proj"))
    found = merged([Part("one", one), Part("two", two)], MergeConfig(method="linear", weight=1.0))
    ours, theirs = deltas(one), deltas(two)
    zero = torch.zeros(())
    assert_equal(found, {name: ours.get(name, zero) + theirs.get(name, zero) for name in ours | theirs})


def test_ties_by_hand(base, config, make_adapter, merged, deltas):
    """On one layer's entries: trim to the largest half of each, elect the sign of the sum, average what agrees."""
    one, two = make_adapter(5), make_adapter(6)
    found = merged([Part("one", one), Part("two", two)], MergeConfig(method="ties", density=0.5, rank=64))
    for name, ours in deltas(one).items():
        trimmed = []
        for change in (ours, deltas(two)[name]):
            threshold = change.abs().flatten().sort(descending=True).values[change.numel() // 2 - 1]
            trimmed.append(torch.where(change.abs() >= threshold, change, 0.0))
        sign = torch.where(trimmed[0] + trimmed[1] >= 0, 1.0, -1.0)
        agreeing = [torch.where(change.sign() == sign, change, 0.0) for change in trimmed]
        count = sum((change != 0).float() for change in agreeing).clamp(min=1.0)
        expected = sum(agreeing) / count
        u, s, v = torch.linalg.svd(expected, full_matrices=False)
        nearest = (u[:, :64] * s[:64]) @ v[:64]
        torch.testing.assert_close(found[name], nearest, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(
    ("method", "by_peft", "density"), [("ties", ties, 0.3), ("dare_linear", dare_linear, 1.0), ("dare_ties", dare_ties, 1.0)]
)
def test_changes_since_the_start_are_merged(method, by_peft, density, family, merged, deltas):
    """PEFT's function on the differences of the products, added to the start: no start is trimmed or counted twice.

    The random methods drop nothing here; the test of the seed covers what they drop.
    """
    settings = MergeConfig(method=method, density=density)
    found = merged(parts_of(family), settings, onto=family[0])
    start, one, two = map(deltas, family)
    rank = 2 * 3  # the ranks of both parts and of their start together
    for name in start:
        changes = [one[name] - start[name], two[name] - start[name]]
        expected = by_peft(changes, torch.full((2,), settings.weight_of(2)), density)
        u, s, v = torch.linalg.svd(expected, full_matrices=False)
        torch.testing.assert_close(found[name], start[name] + (u[:, :rank] * s[:rank]) @ v[:rank], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("space", ["weights", "factors"])
@pytest.mark.parametrize("method", METHODS)
def test_merging_equal_adapters_changes_nothing(method, space, make_adapter, merged, deltas):
    """With density 1 and the default weights, in either space."""
    one = make_adapter(7)
    found = merged([Part("one", one), Part("again", one)], MergeConfig(method=method, space=space, density=1.0))
    assert_equal(found, deltas(one))


def test_a_lower_rank_is_the_nearest_of_that_rank(family, merged, deltas):
    settings = MergeConfig(method="linear", rank=3)
    found = merged(parts_of(family), settings, onto=family[0])
    _, one, two = map(deltas, family)
    for name, value in found.items():
        u, s, v = torch.linalg.svd((one[name] + two[name]) / 2)
        torch.testing.assert_close(value, (u[:, :3] * s[:3]) @ v[:3], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("method", ["dare_linear", "dare_ties"])
def test_the_seed_fixes_dropped_entries_and_the_callers_generator_is_untouched(method, family, config, tmp_path, files_of):
    outs = []
    for number, seed in enumerate((1, 1, 2)):
        torch.manual_seed(number)
        before = torch.random.get_rng_state()
        out = tmp_path / str(number)
        out.mkdir()
        merge(config.model_copy(update={"seed": seed}), parts_of(family), MergeConfig(method=method), out, onto=family[0])
        assert torch.equal(torch.random.get_rng_state(), before)
        outs.append(files_of(out))
    assert outs[0] == outs[1]
    assert outs[0] != outs[2]


def test_a_merge_writes_an_adapter_and_its_record(family, base, config, tmp_path):
    record = merge(config, parts_of(family), MergeConfig(method="ties"), tmp_path, onto=family[0], version=9)
    assert check_adapter(tmp_path / "adapter", base) == 9
    assert json.loads((tmp_path / "merge.json").read_text()) == record
    assert list(record["parts"]) == ["one", "two"]
    assert record["settings"]["method"] == "ties"
    assert str(tmp_path) not in (tmp_path / "merge.json").read_text()


def test_adapters_that_cannot_be_merged_are_refused(family, make_adapter, other_base, config, tmp_path):
    with pytest.raises(DataError, match="at least two adapters"):
        merge(config, parts_of(family)[:1], MergeConfig(), tmp_path)
    elsewhere = config.model_copy(update={"policy": config.policy.model_copy(update={"base": other_base})})
    with pytest.raises(AdapterMismatchError, match="was trained for the base with hash"):
        merge(elsewhere, parts_of(family), MergeConfig(), tmp_path)
    different = [Part("one", family[1]), Part("two", make_adapter(8, rank=3))]
    with pytest.raises(DataError, match=r"the one rank that all adapters have, here \[2, 3\]"):
        merge(config, different, MergeConfig(space="factors"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_merge_is_accepted_if_not_worse_than_its_best_part():
    parts = {"one": 0.4, "two": 0.6}
    assert compare(0.6, parts)["accepted"]
    assert compare(0.7, parts) == {"rate": 0.7, "parts": parts, "best_part": "two", "best_part_rate": 0.6, "accepted": True}
    assert not compare(0.59, parts)["accepted"]
    assert not compare(None, parts)["accepted"], "unknown is not equal to 0, nor to anything"
    assert compare(0.4, {"one": 0.4, "two": None})["best_part"] == "one"
    assert not compare(0.4, {"one": None, "two": None})["accepted"]


@pytest.mark.parametrize(
    ("method", "space", "weight"),
    [("linear", "weights", 0.25), ("dare_linear", "weights", 0.25), ("ties", "weights", 1.0), ("dare_ties", "weights", 1.0),
     ("linear", "factors", 0.0625), ("ties", "factors", 1.0)],
)  # fmt: skip
def test_the_default_weight_gives_the_mean(method, space, weight):
    assert MergeConfig(method=method, space=space).weight_of(4) == weight
    assert MergeConfig(method=method, space=space, weight=0.7).weight_of(4) == 0.7
