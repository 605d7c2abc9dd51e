"""`tracewheel export-gguf`: merged weights as a GGUF file, read again; what is sent to llama.cpp's converter."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from flows.cli import main
from tracewheel import content_hash

SPLITS = [
    {"type": "Digits", "individual_digits": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
]


@pytest.fixture(scope="module")
def merged(make_adapter, base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    adapter = make_adapter(folder / "state")
    given = ["export", str(adapter), "--base", base, "--format", "merged", "--name", "tiny", "--out", str(folder / "merged")]
    assert main(given) == 0
    return folder / "merged"


@pytest.fixture
def changed(merged, tmp_path):
    """The model with other values in one of its files."""

    def change(file, values):
        folder = Path(shutil.copytree(merged, tmp_path / "changed"))
        (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | values))
        return folder

    return change


def converted(folder, out, *more):
    return main(["export-gguf", str(folder), "--out", str(out), *map(str, more)])


def fields_of(reader):
    return {name: field.contents() for name, field in reader.fields.items()}


def test_the_prompt_of_a_pair_goes_beside_the_file(changed, tmp_path, capsys):
    system = {"system": "Tidy.", "tools": {}, "demonstrations": []}
    prompt = {**system, "digest": content_hash(system, length=16)}
    folder, out = changed("export.json", {"prompt": prompt["digest"]}), tmp_path / "tiny.gguf"
    assert converted(folder, out) == 2 and "prompt.json: is gone" in capsys.readouterr().err
    (folder / "prompt.json").write_text(json.dumps({**prompt, "system": "Other."}))
    assert converted(folder, out) == 2 and "the prompt was changed" in capsys.readouterr().err and not out.exists()
    (folder / "prompt.json").write_text(json.dumps(prompt))
    assert converted(folder, out) == 0 and json.loads((tmp_path / "tiny.prompt.json").read_text()) == prompt
    assert "it is a pair with" in capsys.readouterr().out


def test_a_gguf_file_holds_the_weights_the_tokenizer_and_the_template(merged, base, tmp_path):
    from gguf import GGUFReader

    assert converted(merged, tmp_path / "tiny.gguf") == 0
    reader, weights = GGUFReader(tmp_path / "tiny.gguf"), load_file(merged / "model.safetensors")
    fields = fields_of(reader)
    tensors = {tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in reader.tensors}
    assert torch.equal(tensors["blk.2.ffn_up.weight"].view(256, 128), weights["model.layers.2.mlp.up_proj.weight"])
    assert torch.equal(tensors["blk.0.attn_q_norm.weight"], weights["model.layers.0.self_attn.q_norm.weight"])
    assert len(tensors) == len(weights)
    tokenizer = AutoTokenizer.from_pretrained(base)
    assert len(fields["tokenizer.ggml.tokens"]) == 432
    assert fields["tokenizer.ggml.tokens"][258] == "<|im_end|>" and fields["tokenizer.ggml.token_type"][258] == 3
    assert fields["tokenizer.ggml.eos_token_id"] == tokenizer.eos_token_id
    assert fields["tokenizer.chat_template"] == tokenizer.chat_template
    assert (fields["general.name"], fields["general.architecture"], fields["qwen3.attention.key_length"]) == (
        "tiny",
        "qwen3",
        32,
    )
    assert converted(merged, tmp_path / "again.gguf") == 0
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "tiny.gguf").read_bytes()
    copied = tmp_path / "copied.gguf"
    assert converted(merged, copied, "--tokenizer", tmp_path / "tiny.gguf") == 0
    assert fields_of(GGUFReader(copied))["tokenizer.ggml.tokens"] == fields["tokenizer.ggml.tokens"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM is none of"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rotations are scaled"),
        ({"use_sliding_window": True}, "sliding window"),
    ],
)
def test_other_architectures_are_sent_to_llama_cpps_converter(changed, tmp_path, change, says, capsys):
    assert converted(changed("config.json", change), tmp_path / "out.gguf") == 2
    said = capsys.readouterr().err
    assert says in said and "convert_hf_to_gguf.py" in said
    assert not list(tmp_path.glob("*.gguf")) and not list(tmp_path.glob(".partial*"))


def test_a_tokenizer_is_known_by_the_rule_by_which_it_splits_text(changed, merged, tmp_path, capsys):
    from gguf import GGUFReader

    model = json.loads((merged / "tokenizer.json").read_text())["model"]
    *kept, (_, number) = sorted(model["vocab"].items(), key=lambda item: item[1])
    model |= {"vocab": {**dict(kept), "ab": number}, "merges": [["a", "b"]]}
    told = {"model": model, "pre_tokenizer": {"type": "Sequence", "pretokenizers": SPLITS}}
    folder = changed("tokenizer.json", told)
    assert converted(folder, tmp_path / "out.gguf") == 0
    assert fields_of(GGUFReader(tmp_path / "out.gguf"))["tokenizer.ggml.pre"] == "smollm"
    steps = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, SPLITS[1]]}
    (folder / "tokenizer.json").write_text(
        json.dumps(json.loads((folder / "tokenizer.json").read_text()) | {"pre_tokenizer": steps})
    )
    assert converted(folder, tmp_path / "other.gguf") == 2
    assert "splits text by Whitespace" in capsys.readouterr().err


def test_rows_of_a_head_are_interleaved_for_llama(changed, merged, tmp_path):
    """llama.cpp rotates neighbouring numbers: a row of a head's first half stands beside that of its second."""
    from gguf import GGUFReader

    weights = load_file(merged / "model.safetensors")
    folder = changed("config.json", {"architectures": ["LlamaForCausalLM"]})
    own = {name: tensor for name, tensor in weights.items() if "q_norm" not in name and "k_norm" not in name}
    save_file(own, folder / "model.safetensors")
    assert converted(folder, tmp_path / "out.gguf") == 0
    (found,) = (one for one in GGUFReader(tmp_path / "out.gguf").tensors if one.name == "blk.0.attn_q.weight")
    before = weights["model.layers.0.self_attn.q_proj.weight"]
    after = torch.from_numpy(found.data.copy()).view_as(before)
    for row, of in enumerate((0, 16, 1, 17)):  # a head has 32 rows
        assert torch.equal(after[row], before[of])


def test_an_adapter_is_sent_to_the_merge(make_adapter, tmp_path, capsys):
    assert converted(make_adapter(tmp_path), tmp_path / "out.gguf") == 2
    assert "--format merged" in capsys.readouterr().err
