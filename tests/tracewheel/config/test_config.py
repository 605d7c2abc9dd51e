"""Profiles: the shipped ones parse; errors name the key."""

from pathlib import Path

import pytest
import yaml

from tracewheel.config import PolicyGradientConfig, RetrainConfig, load_config
from tracewheel.config.profile import WITHOUT_DEFAULT
from tracewheel.core.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture
def profile(tmp_path):
    def write(values):
        path = tmp_path / "profile.yaml"
        path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
        return path

    return write


PROFILES = [path for path in sorted(CONFIGS.glob("*.yaml")) if not path.name.endswith("base.yaml")]  # of `base-policy`


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_every_shipped_profile_names_what_a_run_needs_and_is_read_back_as_it_is_stored(path):
    config = load_config(path)
    config.require_run()
    assert RetrainConfig.model_validate(config.model_dump(mode="json")) == config


def test_nothing_of_the_demo_is_a_default():
    said = str(RetrainConfig(name="x").model_dump())
    assert "data/" not in said and "workspace" not in said


@pytest.mark.parametrize("key", WITHOUT_DEFAULT)
def test_a_key_without_default_is_named_when_it_is_required(key):
    with pytest.raises(ConfigError, match=f"{key}: not set"):
        RetrainConfig(name="x").require(key)


def test_a_policy_gradient_is_not_trained_on_a_part_of_the_distribution():
    """At 0.9 and temperature 1 the stored log-probabilities are off by up to 0.1 nats a token, while the mismatch reads 0."""
    profile = load_config(CONFIGS / "tiny.yaml", ["rollout.top_p=0.9", "evaluation.top_p=0.9"])
    with pytest.raises(ConfigError, match=r"rollout.top_p is 0.9: .* set it to 1.0"):
        profile.require_run()
    load_config(CONFIGS / "tiny.yaml", ["evaluation.top_p=0.9"]).require_run()
    dpo = {name: value for name, value in profile.model_dump(mode="json").items() if name != "learner"}
    RetrainConfig.model_validate(dpo | {"learner": {"kind": "dpo"}}).require_run()


def test_the_aims_are_absent_by_default():
    assert RetrainConfig(name="x").aims.harder is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "x", "trainig": {}}, "trainig: no such key"),
        ({"name": "x", "training": {"iteration": 3}}, "training.iteration: no such key"),
        ({"name": "x", "learner": {"kind": "dpo", "kl": 0.1}}, "learner.kl: no such key: another learner.kind has it"),
        ({"name": "x", "training": {"iterations": "many"}}, "training.iterations: Input should be a valid integer"),
        ({"name": "x", "training": {"iterations": 0}}, "training.iterations: Input should be greater"),
        ({"name": "x", "sampler": {"kind": "best"}}, "sampler.kind"),
        ({"name": "x", "rollout": {"engine": {"kind": "abacus"}}}, "rollout.engine"),
        ({"name": "x", "rollout": {"max_tokens": 10}}, "rollout.max_turn_tokens is larger than rollout.max_tokens"),
        ({"name": "x", "evaluation": {"samples": 1}}, "evaluation.pass_at asks for more samples"),
        ("- a list", "a mapping of keys"),
        ("a: [", "cannot be read as YAML"),
        ("", "a mapping of keys"),
    ],
)
def test_invalid_profiles_name_the_key(profile, values, message):
    path = profile(values)
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")) as raised:
        load_config(path)
    assert str(path) in str(raised.value)


def test_a_profile_without_a_name_has_that_of_its_file(profile):
    assert load_config(profile({"seed": 1})).name == "profile"


@pytest.mark.parametrize(
    ("section", "full", "lora"),
    [("warm_start", 2e-5, 2e-4), ("learner", 1e-6, 3e-5)],
)
def test_the_default_rate_follows_the_weights_and_a_set_one_stays(profile, section, full, lora):
    rates = {}
    for weights in ("full", "lora"):
        rates[weights] = getattr(load_config(profile({"learner": {"weights": "full"}, section: {"weights": weights}})), section)
    assert (rates["full"].learning_rate, rates["lora"].learning_rate) == (full, lora)
    resolved = rates["full"].model_dump() | {"weights": "lora"}
    assert type(rates["full"]).model_validate(resolved).learning_rate == full, "a resolved profile holds every choice"
    assert load_config(profile({section: {"learning_rate": 0.5}})).model_dump()[section]["learning_rate"] == 0.5


TINY = {
    "warm_start": {"epochs": 4, "batch_size": 32, "learning_rate": 1e-3, "gradient_checkpointing": False},
    "rollout": {"max_tokens": 400, "max_turn_tokens": 48},
    "learner": {"learning_rate": 1e-3, "constant_length": 128, "gradient_checkpointing": False, "minibatches": 4},
    "training": {"tasks_per_iteration": 32},
    "evaluation": {"samples": 4, "pass_at": (1, 4)},
    "comparison": {"warm_starts": "both", "policies": "all"},
}
SHORT = {
    "warm_start": TINY["warm_start"] | {"epochs": 1},
    "training": {"tasks_per_iteration": 6, "validate_every": 1},
    "evaluation": {"samples": 2, "pass_at": (1, 2)},
}


@pytest.mark.parametrize("name", ["tiny", "tiny-async", "tiny-vllm", "tiny-short"])
def test_the_tiny_profiles_keep_their_own_rates_lengths_and_sizes(name):
    config = load_config(CONFIGS / f"{name}.yaml").model_dump()
    for section, values in (TINY | (SHORT if name == "tiny-short" else {})).items():
        assert config[section] | values == config[section], section
    assert config["rollout"]["engine"]["slots"] == 256


def test_all_errors_are_reported_at_once(profile):
    with pytest.raises(ConfigError, match=r"bar: no such key.*foo: no such key"):
        load_config(profile({"name": "x", "foo": 1, "bar": 2}))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="is a folder; a profile is a YAML file"):
        load_config(tmp_path)
    with pytest.raises(ConfigError, match="nowhere.yaml: no such config file"):
        load_config(tmp_path / "nowhere.yaml")


def test_overrides_are_yaml_values_under_dotted_keys(profile):
    config = load_config(
        profile({"name": "x", "training": {"iterations": 3}}),
        ["seed=7", "training.iterations=4", "evaluation.pass_at=[1, 2]", "warm_start.replay.path=null", "name=a=b"],
    )
    assert (config.seed, config.training.iterations, config.evaluation.pass_at) == (7, 4, (1, 2))
    assert config.warm_start.replay.path is None
    assert config.name == "a=b"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "expected key=value"),
        ("=3", "expected key=value"),
        ("seed=[", "not YAML"),
        ("seed.deep=3", "'seed' holds a value"),
        ("training.iterations=none", "training.iterations"),
        ("nothing.here=1", "nothing: no such key"),
    ],
)
def test_invalid_overrides_name_the_key(profile, override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(profile({"name": "x", "seed": 1}), [override])


def test_profiles_are_frozen(profile):
    with pytest.raises(ValueError, match="frozen"):
        load_config(profile({"name": "x"})).seed = 3


@pytest.mark.parametrize(
    ("learner", "weight"),
    [({}, 0.0), ({"kind": "ppo"}, 0.0), ({"kl": {"target": 0.1}}, 0.01), ({"kl": 0.02}, 0.02), ({"kind": "rloo"}, 0.01)],
)
def test_there_is_a_kl_only_where_profile_or_preset_asks_for_one(learner, weight):
    assert PolicyGradientConfig(**learner).kl.weight == weight
