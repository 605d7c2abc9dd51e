"""`tracewheel export-gguf --type`: what rounding does to the numbers, and that rounded weights are gated again."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from flows.cli import main
from tracewheel import DataError, EvaluateSections, PolicyRef, evaluate_split
from tracewheel_lab.gguf.quantised import card_section, gate_rounded, gguf_type, rounded, write_rounded


@pytest.fixture(scope="module")
def merged(make_adapter, base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantised")
    adapter = make_adapter(folder / "state")
    assert main(["export", str(adapter), "--base", base, "--format", "merged", "--out", str(folder / "merged")]) == 0
    return folder / "merged"


def test_32_neighbours_share_a_scale():
    from gguf import quants

    row = torch.zeros(1, 64)
    row[0, :3], row[0, 32] = torch.tensor([127.0, -2.0, 0.4]), 8.0
    eight = quants.dequantize(rounded(row, "q8_0"), gguf_type("q8_0"))
    assert eight[0, [0, 1, 2]].tolist() == [127.0, -2.0, 0.0], "steps of 127 / 127"
    four = quants.dequantize(rounded(row, "q4_0"), gguf_type("q4_0"))
    assert np.allclose(four[0, [0, 1, 32]], [127.0, 0.0, 8.0], rtol=1e-3), "steps of 127 / 8"
    assert rounded(torch.zeros(64), "q8_0") is None and rounded(torch.zeros(2, 48), "q4_0") is None


def test_what_is_played_is_what_the_file_holds(merged, tmp_path):
    from gguf import GGUFReader, quants

    from tracewheel_lab.gguf.model import write_gguf

    write_rounded(merged, tmp_path / "played", "q4_0")
    write_gguf(merged, tmp_path / "tiny.gguf", "tiny", kind="q4_0")
    held = {tensor.name: tensor for tensor in GGUFReader(tmp_path / "tiny.gguf").tensors}["blk.2.ffn_up.weight"]
    played, before = (load_file(folder / "model.safetensors") for folder in (tmp_path / "played", merged))
    name = "model.layers.2.mlp.up_proj.weight"
    assert (
        held.tensor_type.name == "Q4_0"
        and (tmp_path / "tiny.gguf").stat().st_size < 0.5 * (merged / "model.safetensors").stat().st_size
    )
    assert np.array_equal(quants.dequantize(held.data, held.tensor_type), played[name].numpy())
    assert not torch.equal(played[name], before[name])
    assert torch.equal(played["model.norm.weight"], before["model.norm.weight"])


@pytest.fixture
def curated(tasks, tmp_path):
    """A folder with held-out tasks alone."""
    pd.DataFrame([{**task.to_record(), "split": "held_out"} for task in tasks]).to_parquet(tmp_path / "tasks.parquet")
    return tmp_path


def test_rounded_weights_are_refused_where_the_policy_is_proven_better(merged, config, curated, tmp_path):
    small = {"samples": 1, "pass_at": (1,)}
    config = config.model_copy(
        update={
            "evaluation": config.evaluation.model_copy(update=small),
            "gate": config.gate.model_copy(update={"min_pairs": 2, "false_accepts": 0.9}),
        }
    )
    gated = tmp_path / "gated"
    evaluate_split(EvaluateSections.of(config), PolicyRef(str(merged)), curated, "held_out", gated)
    result = gate_rounded(config, merged, "q8_0", curated, gated)
    assert result["pairs"] > 2 and result["before"].keys() == result["after"].keys() == {"greedy", "sampled"}
    results = pd.read_parquet(gated / "results.parquet")
    solved = results.assign(greedy=1.0, sampled_successes=results["sampled_attempts"])
    solved.to_parquet(gated / "results.parquet")
    with pytest.raises(DataError, match="q4_0: rounding costs .* which is proven"):
        gate_rounded(config, merged, "q4_0", curated, gated)


def test_the_card_says_what_rounding_costs():
    result = {
        "before": {"greedy": 0.75, "sampled": 0.5},
        "after": {"greedy": 0.7, "sampled": None},
        "lost": 0.05,
        "interval": [-0.01, 0.11],
        "pairs": 40,
    }
    assert card_section("q4_0", result).splitlines()[3:] == [
        "Success on 40 held-out tasks:",
        "",
        "| weights | greedy | sampled |",
        "|---|---:|---:|",
        "| as it was gated | 75.0% | 50.0% |",
        "| q4_0 | 70.0% | – |",
        "",
        "Lost: 5.0% (-1.0% to 11.0%).",
    ]


def test_without_what_it_is_gated_with_nothing_is_written(merged, tmp_path, capsys):
    assert main(["export-gguf", str(merged), "--type", "q8_0", "--out", str(tmp_path / "out.gguf")]) == 2
    assert "--evaluation" in capsys.readouterr().err and not list(tmp_path.iterdir())
