"""Adapters and whole models on disk: bytes, the base they belong to, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file

from tracewheel.config import LoraConfig, PolicyConfig
from tracewheel.core.errors import AdapterMismatchError, DataError, InputError
from tracewheel.policy.adapters import (
    PolicyRef,
    base_commit,
    base_folder,
    base_hash,
    check_adapter,
    peft_config,
    policy_of,
    write_adapter,
    write_full_model,
)
from tracewheel.policy.loading import load_base, load_for_generation, load_policy_for_training, load_renderer


@pytest.fixture
def copied(adapter, tmp_path):
    return Path(shutil.copytree(adapter, tmp_path / "adapter"))


def test_a_rewritten_adapter_has_the_same_bytes(base, adapter, tmp_path, files_of):
    model = PeftModel.from_pretrained(load_base(PolicyConfig(), base), adapter, adapter_name="another", is_trainable=True)
    write_adapter(model, tmp_path / "adapter", "another", base, version=3)
    assert files_of(tmp_path / "adapter") == files_of(adapter)


def test_one_of_several_adapters_is_written_alone(base, adapter, tmp_path):
    model = PeftModel.from_pretrained(load_base(PolicyConfig(), base), adapter, adapter_name="policy", is_trainable=True)
    model.load_adapter(adapter, adapter_name="reference")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".policy." in name:
                parameter.mul_(2.0)
    for name, factor in (("policy", 2.0), ("reference", 1.0)):
        write_adapter(model, tmp_path / name, name, base, version=1)
        stored, original = (load_file(folder / "adapter_model.safetensors") for folder in (tmp_path / name, adapter))
        assert stored.keys() == original.keys()
        assert all(torch.equal(stored[key], original[key] * factor) for key in stored)


def test_an_adapter_holds_only_low_rank_matrices(adapter, base):
    assert all("lora_" in name for name in load_file(adapter / "adapter_model.safetensors"))
    weights = Path(base, "model.safetensors").stat().st_size
    assert (adapter / "adapter_model.safetensors").stat().st_size < weights / 2


def test_an_adapter_names_its_version_and_base(adapter, base):
    assert check_adapter(adapter, base) == 3
    assert json.loads((adapter / "adapter.json").read_text()) == {"base_hash": base_hash(base), "version": 3}


def test_peft_can_load_an_adapter(adapter, base):
    model = PeftModel.from_pretrained(load_base(PolicyConfig(), base), adapter)
    assert model.peft_config["default"].r == 4


def test_a_merged_adapter_gives_the_logits_of_an_unmerged_one(adapter, base):
    """Generation with the adapter merged equals PEFT's own forward pass, and differs from the base's."""
    ids = torch.arange(1, 60)[None]
    with torch.no_grad():
        merged = load_for_generation(PolicyConfig(), PolicyRef(base, str(adapter)))(input_ids=ids).logits
        beside = PeftModel.from_pretrained(load_base(PolicyConfig(), base), adapter).eval()(input_ids=ids).logits
        bare = load_for_generation(PolicyConfig(), PolicyRef(base))(input_ids=ids).logits
    assert torch.allclose(merged, beside, atol=1e-4)
    assert not torch.allclose(merged, bare, atol=1e-2)


def test_in_low_precision_an_adapter_stays_unmerged(adapter, base):
    config = PolicyConfig(dtype="bfloat16")
    model = load_for_generation(config, PolicyRef(base, str(adapter)))
    assert any("lora_A" in name for name, _ in model.named_parameters())


def test_the_base_hash_depends_on_weights_and_config_not_on_the_folder(base, other_base, tmp_path):
    elsewhere = shutil.copytree(base, tmp_path / "elsewhere")
    assert base_hash(str(elsewhere)) == base_hash(base)
    assert base_hash(other_base) != base_hash(base)
    config = json.loads((elsewhere / "config.json").read_text())
    (elsewhere / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5}))
    assert base_hash(str(elsewhere)) != base_hash(base)


def test_an_adapter_for_another_base_is_refused_with_both_named(adapter, base, other_base):
    with pytest.raises(AdapterMismatchError) as caught:
        check_adapter(adapter, other_base)
    for name in (str(adapter), other_base, base_hash(base), base_hash(other_base)):
        assert name in str(caught.value)
    with pytest.raises(AdapterMismatchError):
        load_for_generation(PolicyConfig(), PolicyRef(other_base, str(adapter)))


def test_a_folder_without_an_adapter_is_refused(copied, base, tmp_path):
    with pytest.raises(DataError, match="is not an adapter of Tracewheel"):
        check_adapter(tmp_path / "absent", base)
    (copied / "adapter_model.safetensors").unlink()
    with pytest.raises(DataError, match=r"adapter_model\.safetensors: no such file"):
        check_adapter(copied, base)
    for text in ("{", "[]", '{"version": 1}', '{"base_hash": "x", "version": "new"}'):
        (copied / "adapter.json").write_text(text)
        with pytest.raises(DataError, match="not the description of an adapter"):
            check_adapter(copied, base)


def test_a_missing_base_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds no \.safetensors file"):
        base_hash(str(tmp_path))
    for name in ("no-such/model", "data/elsewhere", str(tmp_path / "absent"), "not a name"):
        with pytest.raises(InputError, match="neither a folder nor a model"):
            base_folder(name)


def test_a_wrong_path_of_a_base_names_what_was_given_what_is_expected_and_what_is_near(tmp_path):
    (tmp_path / "models" / "smollm2").mkdir(parents=True)
    (tmp_path / "file").touch()
    for given, words in {
        tmp_path / "models" / "smolm2": ["does not exist", f"did you mean '{tmp_path / 'models' / 'smollm2'}'?"],
        tmp_path / "absent": ["names of models are OWNER/NAME", "config.json, the tokenizer, *.safetensors"],
        tmp_path / "file": ["it is a file", "give a model's folder"],
    }.items():
        with pytest.raises(InputError) as raised:
            base_folder(str(given))
        said = str(raised.value)
        assert said.startswith(f"policy.base: '{given}' is neither a folder nor a model")
        assert all(word in said for word in words), said
        assert "\n" not in said and "Repo id" not in said


@pytest.fixture(scope="module")
def state(base, tmp_path_factory):
    """A state folder with a whole model that is not the base."""
    model = load_base(PolicyConfig(), base)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 1e-3)
    folder = tmp_path_factory.mktemp("whole")
    write_full_model(model, folder / "model", base, version=5)
    return folder


def full(config, base=None):
    """The profile with `learner.weights` full, on another base if given."""
    policy = config.policy.model_copy(update={"base": base} if base else {})
    return config.model_copy(update={"policy": policy, "learner": config.learner.model_copy(update={"weights": "full"})})


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(1, 60)[None]).logits


def test_a_whole_model_is_its_own_base_with_the_lineage_of_the_profiles(state, base):
    policy = policy_of(state, base)
    assert policy == PolicyRef(str(state / "model"), None, 5)
    assert json.loads((state / "model" / "model.json").read_text()) == {"base_hash": base_hash(base), "version": 5}
    assert base_hash(policy.base) != base_hash(base)
    assert policy_of(state / "model", base) == policy


def test_an_adapters_state_and_the_adapter_itself_are_one_policy(adapter, base):
    assert policy_of(adapter.parent, base) == policy_of(adapter, base) == PolicyRef(base, str(adapter), 3)


def test_a_whole_model_keeps_its_logits_and_the_bases_tokenizer(state, base, config):
    policy = policy_of(state, base)
    trained = load_policy_for_training(full(config), state)
    assert torch.equal(logits(load_for_generation(PolicyConfig(), policy)), logits(trained))
    assert not torch.allclose(logits(trained), logits(load_base(PolicyConfig(), base)), atol=1e-3)
    messages = [{"role": "user", "content": "move /inbox/a.log"}]
    assert load_renderer(policy.base, "hermes").prompt_ids(messages, []) == load_renderer(base, "hermes").prompt_ids(
        messages, []
    )


def test_loaded_and_written_again_a_whole_model_has_the_same_bytes(state, base, config, tmp_path, files_of):
    model = load_policy_for_training(full(config), state)
    write_full_model(model, tmp_path / "model", base, version=5)
    assert files_of(tmp_path) == files_of(state)
    gathered = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    write_full_model(model, tmp_path / "gathered", base, version=5, weights=gathered)
    assert files_of(tmp_path / "gathered") == files_of(tmp_path / "model"), "of weights that others hold a share of"


def test_an_adapter_can_be_written_from_gathered_weights(adapter, base, tmp_path, files_of):
    model = PeftModel.from_pretrained(load_base(PolicyConfig(), base), adapter, adapter_name="policy")
    gathered = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    write_adapter(model, tmp_path / "adapter", "policy", base, version=3, weights=gathered)
    assert files_of(tmp_path / "adapter") == files_of(adapter)


def test_either_all_weights_or_only_the_adapter_are_trained(state, adapter, config):
    whole = load_policy_for_training(full(config), state)
    assert all(parameter.requires_grad for parameter in whole.parameters())
    adapted = load_policy_for_training(config, adapter.parent)
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name and ".policy." in name for name in trained)


def test_full_training_continues_from_an_adapter_in_float32(adapter, base, config):
    """Merged without rounding, even if the profile generates in a lower precision."""
    low = full(config)
    low = low.model_copy(update={"policy": low.policy.model_copy(update={"dtype": "bfloat16"})})
    model = load_policy_for_training(low, adapter.parent)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not any("lora_" in name for name, _ in model.named_parameters())
    folded = load_for_generation(PolicyConfig(), PolicyRef(base, str(adapter)))
    assert torch.equal(logits(model), logits(folded))


def test_a_whole_model_of_another_base_or_for_adapter_training_is_refused(state, other_base, config):
    with pytest.raises(AdapterMismatchError, match=r"whole.*was trained for the base with hash"):
        policy_of(state, other_base)
    with pytest.raises(AdapterMismatchError):
        load_policy_for_training(full(config, other_base), state)
    with pytest.raises(DataError, match="learner.weights is 'lora'"):
        load_policy_for_training(config, state)


def test_a_state_without_a_policy_or_with_two_is_refused(state, adapter, base, tmp_path):
    with pytest.raises(DataError, match="neither adapter/ nor model/"):
        policy_of(tmp_path, base)
    shutil.copytree(state, tmp_path / "both")
    shutil.copytree(adapter, tmp_path / "both" / "adapter")
    with pytest.raises(DataError, match="both adapter/ and model/"):
        policy_of(tmp_path / "both", base)
    (tmp_path / "empty" / "model").mkdir(parents=True)
    with pytest.raises(DataError, match=r"model\.json: no such file.*not a model of Tracewheel"):
        policy_of(tmp_path / "empty", base)
    shutil.copytree(state, tmp_path / "cut")
    (tmp_path / "cut" / "model" / "model.safetensors").unlink()
    with pytest.raises(DataError, match="is incomplete"):
        policy_of(tmp_path / "cut", base)


def test_a_model_of_the_hub_keeps_the_commit_at_which_it_was_found(base, tmp_path, monkeypatch):
    cached = tmp_path / "models--org--tiny"
    commits = {"main": "a" * 40, "other": "b" * 40}
    for name, commit in commits.items():
        (cached / "refs").mkdir(parents=True, exist_ok=True)
        (cached / "refs" / name).write_text(commit)
        shutil.copytree(base, cached / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert base_folder("org/tiny") == cached / "snapshots" / commits["main"]
    assert base_commit("org/tiny") == commits["main"] and base_commit(base) is None
    assert base_commit(f"org/tiny@{commits['other']}") == base_commit("org/tiny@other") == commits["other"]
    model = get_peft_model(load_base(PolicyConfig(), "org/tiny@other"), peft_config(LoraConfig(rank=2, alpha=4)))
    write_adapter(model, tmp_path / "adapter", "default", "org/tiny@other", version=1)
    written = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (written["base_model_name_or_path"], written["revision"]) == ("org/tiny", commits["other"])
