"""`tracewheel export`: an adapter in two forms, loaded again without us; the card; what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from flows.cli import main
from tracewheel.config import LoraConfig, PolicyConfig
from tracewheel.core.fingerprint import digest_of
from tracewheel.policy.adapters import PolicyRef, base_hash, check_adapter, check_model, digests_of, peft_config
from tracewheel.policy.loading import load_base, load_for_generation
from tracewheel.traces.forgotten import NOBODY
from tracewheel_prompts.prompt import Prompt

IDS = torch.arange(1, 50)[None]
SECRET = "kent@example.com"
SUMMARY = {
    "run_id": "abc123",
    "n_held_out": 24,
    "success": {"base": 0.25, "rl": 0.5, "warm_start": None},
    "sampled": {"rl": 0.4},
    "harder": {"rl": 0.1},
    "intervals": {"success": {"rl": [0.3, 0.7], "base": [0.1, 0.4]}, "sampled": {"rl": None}, "harder": {"rl": [0.0, 0.2]}},
    "gate": {
        "verdict": "promoted",
        "baseline": "base",
        "pairs": 24,
        "difference": 0.25,
        "interval": [0.05, 0.45],
        "reasons": [],
    },
    "intake": {"found": 786, "read": 786, "kept": 762, "examples": {"not JSON": f"{SECRET}.jsonl:3"}},
    "splits": {"sides": {"train": 300, "test": 24}},
}
# As a run writes it at its end, with names that a card must not have.
LINEAGE = {
    "schema": 2,
    "git": {"commit": "f" * 40, "branch": SECRET, "changed": True, "remote": SECRET},
    "project": None,
    "environment": {"file": "environment.txt", "sha256": "1" * 64, "packages": 275},
    "machine": {"kind": {"system": "Linux", "architecture": "x86_64", "processor": "AMD EPYC", "gpus": []}, "threads": 2},
    "inputs": {f"{SECRET}.jsonl": "e" * 64},
    "packages": {"torch": "2.13.0"},
    "parent": {"version": "7", "run_id": "earlier", "digest": "2" * 64},
    "datasets": {
        "traces": {"entry": "ingest-1", "digest": "3" * 64},
        "curated": {"entry": "curate-1", "digest": "4" * 64},
        "splits": {"file": "splits.parquet", "sha256": "5" * 64},
    },
    "iterations": {"rl": {"1": {}, "2": {}}},
    "chosen": {"policy": "rl", "iteration": 2, "model_version": "8"},
    "evaluations": {"rl": {"held_out": {"entry": "evaluate-1", "digest": "6" * 64}}},
    "gate": {"verdict": "promoted", "file": "gate.json", "sha256": "7" * 64},
    "learned": {"file": "learned.parquet", "sha256": "8" * 64, "traces": 289},
}
SNAPSHOT = {"files": [{"name": f"{SECRET}.jsonl", "slices": [{"sha256": "e" * 64, "line": 1, "next_line": 787}]}]}


@pytest.fixture(scope="module")
def adapter(make_adapter, tmp_path_factory):
    """An adapter on the base that is not the identity, of version 3."""
    return make_adapter(tmp_path_factory.mktemp("state"))


@pytest.fixture
def other_base(base, tmp_path):
    """The same base with other weights."""
    folder = Path(shutil.copytree(base, tmp_path / "other"))
    weights = {name: tensor * 1.01 for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def run(adapter, base, tmp_path):
    """The record of a complete run, whose adapter it holds."""
    folder = tmp_path / "runs" / "abc123"
    shutil.copytree(adapter, folder / "adapter")
    config = {"policy": {"base": base}, "learner": {"kind": "grpo", "learning_rate": 0.001}, "seed": 0}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for name, value in {"summary": SUMMARY, "snapshot": SNAPSHOT, "lineage": LINEAGE}.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def exported(capsys, *arguments):
    capsys.readouterr()  # libraries print, too
    assert main(["export", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


@pytest.fixture(scope="module")
def expected(adapter, base):
    return logits(load_for_generation(PolicyConfig(), PolicyRef(base, str(adapter))))


def test_a_run_as_merged_weights_loads_without_peft(run, base, expected, tmp_path, capsys):
    result = exported(capsys, run, "--format", "merged", "--out", tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert not hasattr(model, "peft_config")
    assert torch.equal(logits(model), expected)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == AutoTokenizer.from_pretrained(base).chat_template
    assert check_model(tmp_path / "out", base) == 3
    assert result["files"].keys() | {"export.json"} == {path.name for path in (tmp_path / "out").iterdir()}
    first = bytes_of(tmp_path / "out")
    exported(capsys, run, "--format", "merged", "--out", tmp_path / "out")
    assert bytes_of(tmp_path / "out") == first


@pytest.fixture
def on_half(adapter, base, tmp_path):
    """The base in bfloat16, and the adapter for it, so many times as strong."""

    def made(strength):
        half = Path(shutil.copytree(base, tmp_path / "half"))
        load_base(PolicyConfig(dtype="bfloat16"), base).save_pretrained(half)
        moved = Path(shutil.copytree(adapter, tmp_path / "adapter"))
        info = json.loads((moved / "adapter.json").read_text()) | {"base_hash": base_hash(str(half))}
        (moved / "adapter.json").write_text(json.dumps(info))
        file = moved / "adapter_model.safetensors"
        save_file({n: t * (strength if "lora_B" in n else 1.0) for n, t in load_file(file).items()}, file)
        return moved, half

    return made


def test_a_base_in_bfloat16_is_rounded_once_after_the_sum(on_half, tmp_path, capsys):
    moved, half = on_half(8.0)
    result = exported(capsys, moved, "--base", half, "--format", "merged", "--out", tmp_path / "out")
    assert 0.0 < result["rounding"] < 0.2 * result["effect"]
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert merged.dtype == torch.bfloat16
    precise = PeftModel.from_pretrained(load_base(PolicyConfig(base=str(half)), str(half)), moved).merge_and_unload()
    weight = "model.layers.1.mlp.up_proj.weight"
    assert torch.equal(merged.get_parameter(weight), precise.get_parameter(weight).to(torch.bfloat16))


def test_a_merge_that_rounding_would_undo_is_refused(on_half, tmp_path, capsys):
    """bfloat16 loses more than half of what this adapter changes; float32 holds it."""
    moved, half = on_half(1.0)
    given = ["export", str(moved), "--base", str(half), "--format", "merged", "--out", str(tmp_path / "out")]
    assert main(given) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "rounding takes 6" in said and "--dtype float32, or with --format adapter" in said
    assert not (tmp_path / "out").exists()
    result = exported(capsys, *given[1:], "--dtype", "float32")
    assert result["dtype"] == "float32" and result["effect"] > 0.0 and result["rounding"] < 0.01 * result["effect"]


def test_a_run_as_an_adapter_loads_with_plain_peft(run, base, expected, tmp_path, capsys):
    result = exported(capsys, run, "--format", "adapter", "--base-name", "someone/base", "--out", tmp_path / "out")
    model = PeftModel.from_pretrained(load_base(PolicyConfig(), base), tmp_path / "out")
    assert torch.allclose(logits(model), expected, atol=1e-4)
    assert check_adapter(tmp_path / "out", base) == 3
    config = (tmp_path / "out" / "adapter_config.json").read_text()
    assert json.loads(config)["base_model_name_or_path"] == "someone/base"
    assert str(tmp_path) not in config and result["dtype"] == "float32"


def test_a_pair_is_exported_with_its_prompt(run, tmp_path, capsys):
    """As a run with a section of the wheel of prompts leaves it, and one whose environment holds a prompt."""
    prompt = Prompt(system="Tidy.", demonstrations=("Request: a",))
    config = yaml.safe_load((run / "config.yaml").read_text())
    words = [run, "--format", "adapter", "--out", tmp_path / "out"]
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"environment": prompt.environment("workspace", {})}))
    assert exported(capsys, *words)["prompt"] == prompt.digest
    assert Prompt.from_record(json.loads((tmp_path / "out" / "prompt.json").read_text())) == prompt

    (run / "config.yaml").write_text(yaml.safe_dump(config | {"prompt": {"reflection": {"endpoint": "e", "model": "m"}}}))
    (run / "prompt.json").write_text(json.dumps({"prompt": prompt.to_record(), "policy": "base"}))
    result = exported(capsys, *words)
    assert result["prompt"] == prompt.digest and "prompt.json" in result["files"]
    assert Prompt.from_record(json.loads((tmp_path / "out" / "prompt.json").read_text())) == prompt
    assert f"under the prompt in `prompt.json` (digest `{prompt.digest}`)" in " ".join(
        (tmp_path / "out" / "README.md").read_text().split()
    )
    (run / "prompt.json").write_text(json.dumps({"prompt": prompt.to_record() | {"system": "Other."}}))
    assert main(["export", *map(str, words)]) == 2 and "the prompt was changed" in capsys.readouterr().err
    (run / "prompt.json").unlink()
    assert main(["export", *map(str, words)]) == 2 and "prompt.json: is gone" in capsys.readouterr().err


def test_the_card_is_valid_and_holds_no_word_of_the_logs(run, tmp_path, capsys):
    (run / "code.txt").write_text(SECRET)
    exported(
        capsys,
        run,
        "--format",
        "adapter",
        "--base-name",
        "someone/base",
        "--dataset",
        "someone/logs",
        "--out",
        tmp_path / "out",
    )
    text = (tmp_path / "out" / "README.md").read_text()
    data = ModelCard(text).data
    assert (data.base_model, data.license, data.library_name, data.datasets) == (
        "someone/base",
        "unknown",
        "peft",
        ["someone/logs"],
    )
    figures = {result.metric_name: (result.metric_value, result.metric_args) for result in data.eval_results}
    assert figures["greedy success"] == (0.5, {"interval_95": [0.3, 0.7]})
    assert figures["sampled success"] == (0.4, None)
    for told in (
        "786",
        "e" * 64,
        "Promoted: +25.0 points over the base",
        "between +5.0 and +45.0 points",
        "`abc123`",
        "f" * 40,
        "25.0% (10.0% to 40.0%)",
        "licence",
        "with changes",
        "version 7, run `earlier`",
        "| iteration | 2 of 2 |",
        "| traces that the policy learned from | 289 |",
        "Linux, x86_64, AMD EPYC; threads 2",
        *(str(digit) * 64 for digit in range(1, 9)),
    ):
        assert told in text
    for kept in (SECRET, str(tmp_path), "jsonl"):
        assert kept not in text


def test_the_card_of_a_run_of_an_earlier_version_has_what_that_one_noted(run, tmp_path, capsys):
    (run / "lineage.json").write_text(json.dumps({"git": None, "inputs": {}, "packages": {"torch": "2.13.0"}}))
    exported(capsys, run, "--format", "adapter", "--out", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "| torch | 2.13.0 |" in text and "commit |" not in text and "learned from" not in text


def test_a_policy_that_learnt_from_somebody_forgotten_is_refused(run, adapter, tmp_path, capsys, monkeypatch):
    work = run.parent
    NOBODY.adding(["a" * 64], digests_of(adapter).values()).write(work)
    copy = Path(shutil.copytree(adapter, tmp_path / "elsewhere" / "copy"))
    (copy / "README.md").write_text("its card: the folder has another digest, its weights have not")
    for number, given in enumerate(([run], [run / "adapter"], [copy, "--run", run])):
        assert main(["export", *map(str, given), "--format", "adapter", "--out", str(tmp_path / f"out-{number}")]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "somebody who was forgotten" in said and "tracewheel retrain" in said and "forgotten.json" in said
        assert not (tmp_path / f"out-{number}").exists()
    monkeypatch.chdir(work.parent)  # the usual work folder lies here
    assert main(["export", str(copy), "--format", "merged", "--out", str(tmp_path / "out")]) == 2
    NOBODY.adding(["a" * 64], ["0" * 64]).write(work)
    exported(capsys, run, "--format", "adapter", "--out", tmp_path / "out")


@pytest.fixture(scope="module")
def registry(adapter, tmp_path_factory):
    """A store with two versions of a model, the first of which is champion: as a run registers them."""
    import mlflow

    uri = f"sqlite:///{tmp_path_factory.mktemp('registry')}/mlflow.db"
    client = mlflow.MlflowClient(uri, uri)
    experiment = client.create_experiment("own", artifact_location=f"{tmp_path_factory.mktemp('artifacts')}")
    of = client.create_run(experiment).info.run_id
    client.create_registered_model("agent")
    for number in ("1", "2"):
        client.log_artifacts(of, str(adapter), f"adapters/{number}")
        tags = {"adapter_digest": digest_of(adapter), "weights": "adapter", "run_id": "abc123"}
        source = f"{client.get_run(of).info.artifact_uri}/adapters/{number}"
        client.create_model_version("agent", source, of, tags=tags)
    client.set_registered_model_alias("agent", "champion", "1")
    return uri, client, Path(client.get_run(of).info.artifact_uri.removeprefix("file://"))


def test_the_prompt_of_a_registered_pair_comes_from_what_mlflow_has_of_its_run(registry, base, tmp_path, capsys):
    uri, _, artifacts = registry
    prompt = Prompt(system="Tidy.")
    profile = {"policy": {"base": base}, "prompt": {"reflection": {"endpoint": "e", "model": "m"}}}
    (artifacts / "config.yaml").write_text(yaml.safe_dump(profile))
    (artifacts / "lineage.json").write_text(json.dumps({"prompt": {"prompt": prompt.to_record()}}))
    words = ["agent@champion", "--uri", uri, "--base", base, "--format", "merged", "--out", tmp_path / "pair"]
    assert exported(capsys, *words)["prompt"] == prompt.digest
    assert Prompt.from_record(json.loads((tmp_path / "pair" / "prompt.json").read_text())) == prompt
    (artifacts / "lineage.json").write_text("{}")
    assert main(["export", *map(str, words)]) == 2 and "prompt.json: is gone" in capsys.readouterr().err
    (artifacts / "config.yaml").unlink()
    assert main(["export", *map(str, words)]) == 0
    assert "name it with --run if a prompt belongs" in " ".join(capsys.readouterr().out.split())


def test_a_registered_version_is_fetched_checked_and_exported(registry, base, expected, tmp_path, capsys):
    uri, client, artifacts = registry
    for number, named in enumerate(("agent/1", "agent@champion", "models:/agent/2")):
        result = exported(
            capsys, named, "--uri", uri, "--base", base, "--format", "merged", "--out", tmp_path / f"out-{number}"
        )
        assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / f"out-{number}")), expected)
        assert result["policy_version"] == 3

    def refused(named, says):
        given = ["export", named, "--uri", uri, "--base", base, "--format", "adapter", "--out", str(tmp_path / "out")]
        assert main(given) == 1
        assert says in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "out").exists()

    refused("agent/9", "version=9) not found")
    refused("agent@nobody", "nobody")
    client.set_model_version_tag("agent", "1", "forgotten", "2026-11-01")
    refused("agent@champion", "learnt from somebody who was forgotten since (2026-11-01); name another version")
    weights = artifacts / "adapters" / "2" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\1\2\3\4")
    refused("agent/2", "the registry's files are not those that were registered")


def test_an_adapter_of_plain_peft_is_adopted_for_the_base_that_one_names(base, tmp_path, capsys):
    theirs = get_peft_model(load_base(PolicyConfig(), base), peft_config(LoraConfig(rank=2, alpha=4)))
    theirs.save_pretrained(tmp_path / "theirs")
    given = ["export", str(tmp_path / "theirs"), "--base", base, "--format", "adapter", "--out"]
    assert main([*given, str(tmp_path / "out")]) == 2
    assert "--adopt" in capsys.readouterr().err
    assert main([*given, str(tmp_path / "out"), "--adopt"]) == 0
    assert check_adapter(tmp_path / "out", base) == 0
    assert (tmp_path / "out" / "probe.json").is_file()
    (tmp_path / "theirs" / "training_args.bin").write_bytes(b"")
    assert main([*given, str(tmp_path / "two"), "--adopt"]) == 2
    assert "training_args.bin" in capsys.readouterr().err


def test_what_is_not_known_is_said(adapter, base, tmp_path, capsys):
    result = exported(capsys, adapter, "--format", "adapter", "--out", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "licence of the base is unknown" in text and "No figure is known of it" in text
    assert (result["run_id"], result["license"]) == (None, "unknown")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "neither a folder nor a version of the registry"),
        (["{adapter}", "--base", "{other}"], "was trained for the base with hash"),
        (["{run}", "--run", "{adapter}"], "no run's record"),
    ],
)
def test_what_cannot_be_exported_leaves_nothing(arguments, says, run, adapter, other_base, tmp_path, capsys):
    places = {"adapter": adapter, "other": other_base, "run": run}
    given = [argument.format(**places) for argument in arguments]
    assert main(["export", *given, "--format", "merged", "--out", str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".partial*"))


def test_an_incomplete_run_and_a_folder_of_ones_own_are_refused(run, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    assert main(["export", str(run), "--format", "adapter", "--out", str(tmp_path / "mine")]) == 2
    assert "notes.txt" in capsys.readouterr().err
    (run / "summary.json").unlink()
    assert main(["export", str(run), "--format", "adapter", "--out", str(tmp_path / "out")]) == 2
    assert "the run is not complete" in capsys.readouterr().err


def test_the_old_spelling_of_a_gguf_export_answers_with_the_new_one(run, tmp_path, capsys):
    assert main(["export", str(run), "--format", "gguf", "--out", str(tmp_path / "out")]) == 2
    assert "tracewheel export-gguf" in capsys.readouterr().err
