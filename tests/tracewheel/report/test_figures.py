"""The metrics and plots for DVC are the report's figures."""

import csv
import json
from dataclasses import replace

from tracewheel.report.figures import write_figures
from tracewheel.report.results import results_of


def test_metrics_and_plots_are_the_reports_figures(run, tmp_path):
    finished = run()
    for folders in finished.evaluations.values():
        for folder in folders:
            (folder / "evaluation.json").write_text('{"generated_tokens": 100.0}')
    for place in ("1/rollout", "1/rollout-1", "content/2/rollout"):
        (tmp_path / "rl" / place).mkdir(parents=True)
        (tmp_path / "rl" / place / "metrics.json").write_text('{"episodes": 8, "generated_tokens": 50}')
    results = replace(finished.results, best_iteration=8)
    out = tmp_path / "figures"
    out.mkdir()
    metrics = write_figures(results, tmp_path / "rl", out)

    data = results_of(finished.curated, finished.evaluations)
    assert metrics == json.loads((out / "metrics.json").read_text())
    assert metrics["cost"] == {"training_episodes": 24, "training_tokens": 150, "evaluation_tokens": 100 * 8}
    assert metrics["eval"]["rl"].keys() == {"held_out", "harder", "sampled"}
    assert metrics["eval"]["base"] == {
        "held_out": data.policy("base").greedy.value,
        "harder": data.policy("base").harder.value,
    }
    assert metrics["gate"]["verdict"] == finished.summary["gate"]["verdict"]
    assert metrics["train"]["iterations"] == 10 and metrics["train"]["validation_greedy"] == results.validation[8]["greedy"]
    assert metrics["train"]["kl"] == results.updates[10]["kl"]

    families = list(csv.DictReader((out / "families.csv").open()))
    groups = {(f"{group.name}, held-out", key) for group in data.groups["By family, held-out"] for key in group.rates}
    assert groups <= {(row["group"], row["policy"]) for row in families}
    assert {row["group"] for row in csv.DictReader((out / "tiers.csv").open())} == {g.name for g in data.groups["By tier"]}
    training = list(csv.DictReader((out / "training.csv").open()))
    assert [row["kl"] for row in training if row["iteration"] == "4"] == [""]


def test_what_is_unknown_is_left_out(run, tmp_path):
    finished = run()
    for folders in finished.evaluations.values():
        for folder in folders:
            (folder / "evaluation.json").write_text('{"generated_tokens": 0.0}')
    (tmp_path / "rl").mkdir()
    out = tmp_path / "figures"
    out.mkdir()
    results = replace(finished.results, gate={"verdict": "refused"}, updates={}, validation={}, best_iteration=None)
    metrics = write_figures(results, tmp_path / "rl", out)
    assert metrics["gate"] == {"verdict": "refused"} and metrics["train"] == {"iterations": 0}
    assert (out / "learning.csv").read_text() == "iteration,greedy,sampled\n"
