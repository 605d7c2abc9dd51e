"""Adapters that lie: each attack on a real adapter is refused by name, and adapters of other makers load where they can."""

import json
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from tracewheel.config import PolicyConfig
from tracewheel.core.errors import ConfigError, WeightsError
from tracewheel.engines.vllm_base import AdapterFiles
from tracewheel.policy import weights_file
from tracewheel.policy.adapters import (
    ADAPTER_INFO,
    PolicyRef,
    base_hash,
    check_adapter,
    check_model,
    write_full_model,
    write_info,
)
from tracewheel.policy.loading import PolicyWeights, load_base, load_for_generation, load_policy_for_training
from tracewheel.policy.weights_file import read_header

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
Q_PROJ = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def copied(adapter, tmp_path):
    return Path(shutil.copytree(adapter, tmp_path / "adapter"))


@pytest.fixture
def refused(copied, base):
    """Checks that the copied adapter is refused, for a file and a tensor; returns the sentence."""

    def check(file, tensor=None):
        with pytest.raises(WeightsError) as caught:
            check_adapter(copied, base)
        assert (Path(caught.value.file).name, caught.value.tensor) == (file, tensor)
        return str(caught.value)

    return check


def rewrite(folder, change):
    """Change an adapter's tensors and write them as safetensors does."""
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def rewrite_header(folder, change):
    """Change the header of an adapter's weights and leave its numbers."""
    content = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    text = change(header) or json.dumps(header)
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text.encode() + content[8 + length :])


def configure(folder, **fields):
    (folder / CONFIG).write_text(json.dumps(json.loads((folder / CONFIG).read_text()) | fields))


class Exploit:
    def __reduce__(self):
        return (Path("pwned").write_text, ("x",))


def test_a_pickle_in_place_of_safetensors_is_refused_and_never_run(copied, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (copied / WEIGHTS).unlink()
    torch.save(Exploit(), copied / "adapter_model.bin")
    assert "runs code when it is loaded" in refused("adapter_model.bin")
    for write in (lambda path: torch.save(Exploit(), path), lambda path: path.write_bytes(pickle.dumps(Exploit()))):
        (copied / "adapter_model.bin").unlink(missing_ok=True)
        write(copied / WEIGHTS)
        assert "a pickle under another name" in refused(WEIGHTS)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["training_args.bin", "optimizer.pt", "checkpoint-2/rng_state.pth", "extra.PKL"])
def test_a_pickle_beside_the_weights_is_refused_too(copied, refused, name):
    (copied / name).parent.mkdir(exist_ok=True)
    (copied / name).write_bytes(pickle.dumps([]))
    assert "delete it" in refused(Path(name).name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_not_finite_is_found(copied, refused, dtype, value):
    def spoil(tensors):
        tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()})
        tensors[f"{Q_PROJ}.lora_B.weight"].view(-1)[-1] = value

    rewrite(copied, spoil)
    assert "not finite" in refused(WEIGHTS, f"{Q_PROJ}.lora_B.weight")


def test_numbers_are_looked_at_across_blocks(copied, base, monkeypatch):
    monkeypatch.setattr(weights_file, "BLOCK", 64)
    rewrite(copied, lambda tensors: tensors[f"{Q_PROJ}.lora_A.weight"][3, 100].fill_(float("nan")))
    with pytest.raises(WeightsError, match=r"q_proj\.lora_A\.weight: holds 1 or more"):
        check_adapter(copied, base)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_adapter_in_half_precision_is_accepted(copied, base, dtype):
    rewrite(copied, lambda tensors: tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()}))
    assert check_adapter(copied, base) == 3


def test_a_swapped_shape_is_refused(copied, refused):
    name = f"{Q_PROJ}.lora_A.weight"
    rewrite(copied, lambda tensors: tensors.update({name: tensors[name].T.contiguous()}))
    assert "has the shape [128, 4], and this base and the config's rank ask for [4, 128]" in refused(WEIGHTS, name)


def test_a_rank_that_the_config_does_not_name_is_refused(copied, refused):
    configure(copied, r=8)
    assert "ask for [8, " in refused(WEIGHTS, "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight")


def test_an_extra_and_a_missing_tensor_are_named(copied, refused):
    rewrite(copied, lambda tensors: tensors.update({"base_model.model.lm_head.weight": torch.zeros(432, 128)}))
    assert "is no part of the adapter" in refused(WEIGHTS, "base_model.model.lm_head.weight")
    rewrite(copied, lambda tensors: (tensors.pop("base_model.model.lm_head.weight"), tensors.pop(f"{Q_PROJ}.lora_B.weight")))
    assert "is missing" in refused(WEIGHTS, f"{Q_PROJ}.lora_B.weight")


def test_whole_numbers_in_place_of_weights_are_refused(copied, refused):
    name = f"{Q_PROJ}.lora_A.weight"
    rewrite(copied, lambda tensors: tensors.update({name: tensors[name].to(torch.int8)}))
    assert "is of type I8" in refused(WEIGHTS, name)


@pytest.mark.parametrize("keep", [0, 4, 8, 700, -1, -3000])
def test_a_truncated_file_is_refused(copied, refused, keep):
    content = (copied / WEIGHTS).read_bytes()
    (copied / WEIGHTS).write_bytes(content[:keep])
    refused(WEIGHTS)


def test_bytes_after_the_last_tensor_are_refused(copied, refused):
    with (copied / WEIGHTS).open("ab") as stream:
        stream.write(b"hidden")
    assert "its header explains" in refused(WEIGHTS)


def _overlap(header):
    header[SECOND]["data_offsets"] = header[FIRST]["data_offsets"]


def _hole(header):
    last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"][1])
    header[last]["data_offsets"] = [place + 4 for place in header[last]["data_offsets"]]


FIRST, SECOND = f"{Q_PROJ}.lora_A.weight", f"{Q_PROJ}.lora_B.weight"
LIES = {
    "overlapping offsets": (_overlap, "overlaps another tensor|unexplained"),
    "a hole": (_hole, "unexplained"),
    "a shape that its bytes do not fill": (lambda header: header[FIRST].update(shape=[4, 2**40]), "does not fill"),
    "a negative place": (lambda header: header[FIRST].update(data_offsets=[-8, 8]), "whole numbers from 0"),
    "a true for a number": (lambda header: header[FIRST].update(shape=[True, 128]), "whole numbers from 0"),
    "another key": (lambda header: header[FIRST].update(code="import os"), "its keys are"),
    "an entry that is none": (lambda header: header.update({FIRST: None}), "not that of a tensor"),
    "a tensor named twice": (lambda header: json.dumps(header)[:-1] + f', "{FIRST}": 1' + "}", "twice"),
    "a list": (lambda header: "[]", "not that of a safetensors file"),
    "no JSON": (lambda header: "{" * 2000, "not that of a safetensors file"),
}


@pytest.mark.parametrize("lie", LIES)
def test_headers_that_lie_are_refused(copied, base, lie):
    change, says = LIES[lie]
    rewrite_header(copied, change)
    with pytest.raises(WeightsError, match=says) as caught:
        check_adapter(copied, base)
    assert caught.value.file.endswith(WEIGHTS)


def test_a_header_of_surprising_length_is_not_read(copied, refused):
    content = (copied / WEIGHTS).read_bytes()
    (copied / WEIGHTS).write_bytes(struct.pack("<Q", 1 << 60) + content[8:])
    assert "names a header of 1,152,921,504,606,846,976 bytes" in refused(WEIGHTS)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"peft_type": "LOHA"}, "only LORA is loaded here"),
        ({"auto_map": {"AutoConfig": "evil--evil.Config"}}, "names code to run"),
        ({"trust_remote_code": True}, "run code from elsewhere"),
        ({"auto_mapping": {"base_model_class": "X", "parent_library": "os"}}, "names a module to import"),
        ({"auto_mapping": {"base_model_class": "X", "parent_library": "transformers/../../evil"}}, "names a module to import"),
        ({"megatron_core": "megatron.evil"}, "names a module to import"),
        ({"bias": "all"}, "train with bias 'none'"),
        ({"lora_bias": True}, "train without lora_bias"),
        ({"init_lora_weights": "pissa_niter_4"}, "convert it to plain LoRA"),
        ({"layer_replication": [[0, 2], [1, 3]]}, "other layers"),
        ({"something_new": {"of": "a later PEFT"}}, "not known here"),
        ({"r": 0}, "whole number from 1"),
        ({"r": "16"}, "whole number from 1"),
        ({"rank_pattern": {"q_proj": 2.5}}, "whole number from 1"),
        ({"lora_alpha": float("nan")}, "is nan"),
        ({"target_modules": []}, "names no layers"),
        ({"target_modules": "(a+)+$"}, "for ever to match"),
        ({"target_modules": "("}, "not a pattern"),
        ({"target_modules": ["no_such_layer"]}, "PEFT cannot lay it out"),
        ({"layers_to_transform": [99]}, "PEFT cannot lay it out"),
        ({"target_modules": ["embed_tokens"]}, "uses for input and output"),
    ],
)
def test_what_a_config_may_not_ask_for(copied, base, fields, says):
    configure(copied, **fields)
    with pytest.raises(WeightsError, match=says):
        check_adapter(copied, base)


def test_every_loader_makes_the_check(copied, base, config):
    rewrite(copied, lambda tensors: tensors[FIRST][0, 0].fill_(float("nan")))
    policy = PolicyRef(base, str(copied), 3)
    for load in (
        lambda: load_for_generation(PolicyConfig(), policy),
        lambda: load_policy_for_training(config, copied),
        lambda: AdapterFiles.of(policy),
    ):
        with pytest.raises(WeightsError, match="not finite"):
            load()


def test_a_change_of_the_files_is_seen(copied, base):
    assert check_adapter(copied, base) == 3
    (copied / "more.pkl").write_bytes(b"")
    with pytest.raises(WeightsError):
        check_adapter(copied, base)


def test_a_whole_model_is_checked_too(base, tmp_path):
    model = load_base(PolicyConfig(), base)
    write_full_model(model, tmp_path / "model", base, version=2)
    assert check_model(tmp_path / "model", base) == 2
    with torch.no_grad():
        model.model.norm.weight[5] = float("inf")
    write_full_model(model, tmp_path / "model", base, version=2)
    with pytest.raises(WeightsError, match=r"model\.norm\.weight: holds 1 or more"):
        check_model(tmp_path / "model", base)
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(WeightsError, match="pytorch_model"):
        check_model(tmp_path / "model", base)


FORMS = {
    "plain": {},
    "rsLoRA": {"use_rslora": True},
    "DoRA": {"use_dora": True},
    "ranks by layer": {"rank_pattern": {"q_proj": 2, "layers.1.mlp.up_proj": 7}, "alpha_pattern": {"q_proj": 3}},
    "two of the layers": {"layers_to_transform": [0, 2]},
    "a pattern": {"target_modules": r".*\.(q|v)_proj"},
    "all but one": {"target_modules": "all-linear", "exclude_modules": ["down_proj"]},
    "an embedding trained whole": {"modules_to_save": ["embed_tokens"]},
    "a layer trained whole": {"modules_to_save": ["norm"]},
    "some tokens": {"trainable_token_indices": [1, 5]},
}


@pytest.mark.parametrize("form", FORMS)
def test_adapters_made_by_plain_peft_are_loaded_as_peft_loads_them(base, tmp_path, form):
    """Written by PEFT's `save_pretrained`; the policy's logits are those of PEFT, and the base is restored after it."""
    torch.manual_seed(2)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "up_proj"], **FORMS[form]}
    theirs = get_peft_model(load_base(PolicyConfig(), base), PeftLoraConfig(**settings, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    theirs.save_pretrained(tmp_path, save_embedding_layers=False)
    write_info(tmp_path / ADAPTER_INFO, base_hash(base), 0)
    ids = torch.arange(1, 40)[None]
    with torch.no_grad():
        expected = PeftModel.from_pretrained(load_base(PolicyConfig(), base), tmp_path).eval()(input_ids=ids).logits
        plain = load_base(PolicyConfig(), base)(input_ids=ids).logits
        weights = PolicyWeights(PolicyConfig())
        weights.load(PolicyRef(base))
        found = weights.load(PolicyRef(base, str(tmp_path)))(input_ids=ids).logits
        after = weights.load(PolicyRef(base))(input_ids=ids).logits
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.allclose(found, plain, atol=1e-3)
    assert torch.equal(after, plain)


def test_what_vllm_does_not_compute_is_refused_before_it_is_asked(copied, base):
    configure(copied, use_dora=True)
    files = AdapterFiles(str(copied), weights_file_digest(copied))
    with pytest.raises(ConfigError, match="vLLM does not compute use_dora True: set rollout.engine.kind to 'transformers'"):
        files.check(max_rank=16)


def weights_file_digest(folder):
    from tracewheel.engines.vllm_base import _digest

    return _digest(str(folder))


def test_bits_of_infinities_are_those_of_numpy(tmp_path):
    """The bits that are looked at, against numpy, for all 65,536 numbers of 16 bits."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    kind, exponent = weights_file.EXPONENTS["F16"]
    assert ((bits & kind(exponent)) == exponent).sum() == (~np.isfinite(bits.view(np.float16))).sum()
    kind, exponent = weights_file.EXPONENTS["BF16"]
    finite = torch.isfinite(torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)).numpy()
    assert (((bits & kind(exponent)) == exponent) == ~finite).all()


def test_the_header_is_what_safetensors_reads(adapter):
    from safetensors import safe_open

    found = read_header(adapter / WEIGHTS)
    with safe_open(adapter / WEIGHTS, "pt") as file:
        assert {name: (stored.dtype, list(stored.shape)) for name, stored in found.items()} == {
            name: (file.get_slice(name).get_dtype(), file.get_slice(name).get_shape()) for name in list(file.keys())
        }
