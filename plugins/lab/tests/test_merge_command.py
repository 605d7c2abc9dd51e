"""`tracewheel merge`: which merges are kept or refused, and that a refusal leaves nothing behind."""

import json
import random
import shutil

import pandas as pd
import pytest
import torch
from peft import get_peft_model

from flows.cli import main
from tracewheel.config import LoraConfig, PolicyConfig
from tracewheel.core.files import read_json, write_json
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.out_folder import visible_files
from tracewheel.environments.workspace.tasks import make_task
from tracewheel.policy.adapters import ADAPTER_INFO, check_adapter, peft_config, write_adapter, write_full_model
from tracewheel.policy.loading import load_base
from tracewheel_lab import merge_check


@pytest.fixture(scope="module")
def states(base, tmp_path_factory):
    """Three state folders with small adapters."""
    root = tmp_path_factory.mktemp("states")
    for seed, name in enumerate(("start", "one", "two")):
        torch.manual_seed(seed)
        model = get_peft_model(load_base(PolicyConfig(), base), peft_config(LoraConfig(rank=2, alpha=2, targets=("q_proj",))))
        with torch.no_grad():
            for parameter in (value for key, value in model.named_parameters() if "lora_B" in key):
                parameter.normal_(0.0, 0.01)
        write_adapter(model, root / name / "adapter", "default", base, version=seed)
    return root


@pytest.fixture(scope="module")
def curated(tmp_path_factory):
    rng = random.Random(3)
    rows = [make_task(family, 1, rng).to_record() | {"split": "validation"} for family in ("pattern", "list")]
    folder = tmp_path_factory.mktemp("curated")
    pd.DataFrame(rows).to_parquet(folder / "tasks.parquet")
    return folder


@pytest.fixture
def run(profile, states, capsys):
    """Merges the two adapters with further options: exit code, result, standard error."""

    def call(*arguments):
        given = ["merge", profile, "--adapter", f"one={states / 'one'}", "--adapter", f"two={states / 'two'}", "--json"]
        code = main([str(argument) for argument in [*given, *arguments]])
        captured = capsys.readouterr()
        return code, json.loads(captured.out.splitlines()[-1]), captured.err

    return call


@pytest.fixture
def rates(monkeypatch):
    """Makes evaluations return given success rates, in the order of the policies: the parts, then the merge."""

    def say(*values):
        left = list(values)

        def evaluate(config, policy, curated, split, out):
            out.mkdir(parents=True)
            rate = {"rate": left.pop(0)}
            write_json(out / "evaluation.json", {"greedy": rate, "sampled": rate})
            return {"greedy": rate, "sampled": rate}

        monkeypatch.setattr(merge_check, "evaluate_split", evaluate)

    return say


def test_a_merge_and_its_parts_are_evaluated_by_real_episodes(run, curated, base, states, tmp_path):
    out = tmp_path / "merged"
    options = ("--method", "ties", "--density", 0.3, "--start", states / "start", "--curated", curated)
    code, result, _ = run(*options, "--out", out)
    assert code == 0, result
    assert check_adapter(out / "adapter", base) == 2, "the version of the newest part"
    record = read_json(out / "merge.json")
    assert (record["settings"]["method"], record["settings"]["density"]) == ("ties", 0.3)
    assert record["onto"] == digest_of(states / "start" / "adapter")
    assert {folder.name for folder in (out / "validation").iterdir()} == {"one", "two", "merged"}
    for folder in (out / "validation").iterdir():
        assert len(pd.read_parquet(folder / "results.parquet")) == 2


def test_a_merge_no_worse_than_its_best_part_is_kept_with_the_comparison(run, rates, curated, tmp_path):
    rates(0.2, 0.5, 0.5)
    code, result, _ = run("--curated", curated, "--out", tmp_path / "out")
    assert (code, result["accepted"], result["best_part"]) == (0, True, "two")
    assert read_json(tmp_path / "out" / "comparison.json")["parts"] == {"one": 0.2, "two": 0.5}


def test_a_worse_merge_is_refused_and_changes_nothing(run, rates, curated, tmp_path):
    out = tmp_path / "out"
    (out / "adapter").mkdir(parents=True)
    for name in ("merge.json", "adapter/earlier"):
        (out / name).touch()
    rates(0.2, 0.5, 0.4)
    code, result, shown = run("--curated", curated, "--out", out)
    assert code == 3
    assert "the merge reaches 0.400 on the validation split, two alone 0.500" in shown
    assert result["rates"] == {"one": 0.2, "two": 0.5, "merged": 0.4}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert visible_files(out) == ["adapter/earlier", "merge.json"]


def test_an_unevaluated_merge_needs_the_option(run, base, curated, tmp_path):
    code, result, _ = run("--out", tmp_path / "out")
    assert code == 2
    assert "--unevaluated" in result["error"]
    code, result, _ = run("--unevaluated", "--curated", curated, "--out", tmp_path / "out")
    assert code == 2
    code, result, _ = run("--unevaluated", "--method", "linear", "--rank", 3, "--out", tmp_path / "out")
    assert (code, result["evaluated"], result["rank"]) == (0, False, 3)
    assert check_adapter(tmp_path / "out" / "adapter", base) == 2


def test_bad_parts_of_a_merge_are_named(run, base, states, tmp_path):
    foreign = shutil.copytree(states / "start", tmp_path / "foreign")
    write_json(foreign / "adapter" / ADAPTER_INFO, {"base_hash": "another", "version": 1})
    write_full_model(load_base(PolicyConfig(), base), tmp_path / "whole" / "model", base, version=0)
    cases = [
        (("--adapter", f"three={foreign}"), "was trained for the base with hash another"),
        (("--adapter", f"three={tmp_path / 'whole'}"), "three: a whole model"),
        (("--adapter", f"three={tmp_path / 'absent'}"), "no such folder"),
        (("--adapter", f"one={states / 'start'}"), "names must be distinct"),
        (("--adapter", f"merged={states / 'start'}"), "the name of the result"),
        (("--adapter", "three"), "expected NAME=DIR"),
        (("--adapter", f"../three={states / 'start'}"), "without a slash"),
        (("--density", 0), "--density: Input should be greater than 0"),
        (("--space", "factors", "--rank", 7), "keeps the one rank"),
    ]
    for arguments, message in cases:
        code, result, _ = run(*arguments, "--unevaluated", "--out", tmp_path / "out")
        assert code == 2, arguments
        assert message in result["error"]
        assert not (tmp_path / "out").exists()
