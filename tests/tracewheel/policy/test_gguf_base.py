"""Bases that are GGUF files: converted once, checked, refused with a reason."""

import json
import shutil

import numpy as np
import pytest
import torch

from tracewheel.config import PolicyConfig
from tracewheel.core.errors import ConfigError, DataError, InfrastructureError
from tracewheel.policy import gguf_base
from tracewheel.policy.adapters import base_folder, base_hash
from tracewheel.policy.loading import load_base, load_renderer

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")

WIDTH, HEADS, LAYERS, WIDE = 32, 2, 2, 64
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_gguf(path, architecture="llama", leave_out=()):
    """A tiny Llama with a byte-level tokenizer; its large matrices are Q4_1."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    writer = gguf.GGUFWriter(path, architecture)
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *bytes_to_unicode().values(), "Ġt"]
    writer.add_name("tiny")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(0)
    weights = {"token_embd.weight": (len(tokens), WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        weights |= {f"blk.{layer}.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
        weights |= {f"blk.{layer}.attn_{name}.weight": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        weights |= {f"blk.{layer}.ffn_{name}.weight": (WIDE, WIDTH) for name in ("gate", "up")}
        weights |= {f"blk.{layer}.ffn_down.weight": (WIDTH, WIDE)}
    given = {}
    for name, shape in weights.items():
        if name in leave_out:
            continue
        values = rng.normal(0.0 if len(shape) > 1 else 1.0, 0.1, shape).astype(np.float32)
        if len(shape) > 1:
            kind = gguf.GGMLQuantizationType.Q4_1
            blocks = gguf.quants.quantize(values, kind)
            writer.add_tensor(name, blocks, raw_dtype=kind)
            values = gguf.quants.dequantize(blocks, kind)
        else:
            writer.add_tensor(name, values)
        given[name] = values
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return given


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A GGUF file and its dequantised weights; the file is converted."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.Q4_1.gguf"
    return path, write_gguf(path), base_folder(str(path))


@pytest.fixture
def file(made, tmp_path):
    """A copy of the file, not converted yet."""
    return shutil.copyfile(made[0], tmp_path / "copy.gguf")


def test_the_weights_are_those_of_the_file_without_rounding(made):
    path, given, folder = made
    model = load_base(PolicyConfig(), str(path))
    assert torch.equal(model.model.embed_tokens.weight, torch.from_numpy(given["token_embd.weight"]))
    assert torch.equal(model.model.layers[1].mlp.down_proj.weight, torch.from_numpy(given["blk.1.ffn_down.weight"]))
    assert json.loads((folder / gguf_base.RECORD).read_text())["dtype"] == "float32"
    assert "quantization_config" not in (folder / "config.json").read_text()


def test_its_tokenizer_holds_a_conversation(made):
    renderer = load_renderer(str(made[0]), "hermes")
    ids = renderer.prompt_ids([{"role": "user", "content": "hi <|im_end|>"}], [])
    assert ids.count(renderer.end_of_turn_id) == 1  # the text's own is ordinary text
    assert renderer.decode(ids) == "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n"


def test_it_is_converted_once_and_a_damaged_conversion_is_made_again(made, monkeypatch):
    path, _, folder = made
    inode = (folder / "model.safetensors").stat().st_ino
    assert base_folder(str(path)) == folder
    assert (folder / "model.safetensors").stat().st_ino == inode
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    assert base_folder(str(path)) == folder
    assert (folder / "model.safetensors").read_bytes() == whole


def test_a_half_written_folder_is_not_used(file):
    folder = file.parent / gguf_base.CONVERTED / f"copy-{base_hash(str(file))}-v{gguf_base.VERSION}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert base_folder(str(file)) == folder
    assert (folder / "model.safetensors").is_file()


def test_the_hash_is_that_of_the_file_and_needs_no_conversion(made, file):
    assert base_hash(str(file)) == base_hash(str(made[0]))
    file.write_bytes(file.read_bytes() + b"more")
    assert base_hash(str(file)) != base_hash(str(made[0]))
    assert not (file.parent / gguf_base.CONVERTED).exists()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_refused(file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=r"copy\.gguf: not a whole GGUF file .*fetch it again"):
        base_folder(str(file))
    assert [path.name for path in (file.parent / gguf_base.CONVERTED).iterdir()] == [".gitignore"]


def test_a_missing_file_and_one_that_is_no_gguf_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.gguf: no such file"):
        base_folder(str(tmp_path / "none.gguf"))
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04 a zip")
    with pytest.raises(DataError, match=r"other\.gguf: not a GGUF file"):
        base_folder(str(other))
    other.write_bytes(b"GGUF" + bytes(range(256)) * 8)
    with pytest.raises(DataError, match=r"other\.gguf: not a whole GGUF file"):
        base_folder(str(other))


def test_an_architecture_that_transformers_cannot_read_is_named(tmp_path):
    write_gguf(tmp_path / "strange.gguf", architecture="rwkv6")
    with pytest.raises(DataError, match=r"strange\.gguf: transformers cannot read it .*rwkv6"):
        base_folder(str(tmp_path / "strange.gguf"))


def test_missing_weights_are_named_rather_than_drawn_at_random(tmp_path):
    write_gguf(tmp_path / "part.gguf", leave_out=("blk.1.attn_q.weight",))
    with pytest.raises(DataError, match=r"part\.gguf: lacks the weights .*layers\.1\.self_attn\.q_proj"):
        base_folder(str(tmp_path / "part.gguf"))


def test_without_the_gguf_package_the_error_says_what_to_install(file, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"copy\.gguf needs the gguf package: pip install"):
        base_folder(str(file))


def test_a_folder_that_cannot_be_written_to_is_named_with_a_way_out(file):
    (file.parent / gguf_base.CONVERTED).write_text("in the way")
    with pytest.raises(InfrastructureError, match=r"\.tracewheel: cannot be written to .*copy\.gguf.*copy or link the file"):
        base_folder(str(file))
