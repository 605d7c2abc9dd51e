"""A task that `make-tasks` wrote is the same after `ingest`, as curation reads it: one test for all environments with tasks."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from flows import cli
from tracewheel.core.given_kinds import give
from tracewheel.core.kinds import kind_text
from tracewheel.core.types import Trace
from tracewheel.curation.replay import replay_trace
from tracewheel.environments import ENVIRONMENTS, make_environment, open_environment
from tracewheel.environments.math.environment import MathEnvironment
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment
from tracewheel.environments.running import close_resources

TESTS = Path(__file__).parents[1] / "tracewheel" / "environments"
STANDARDS = Path(os.environ.get("TRACEWHEEL_STANDARDS", Path(__file__).parents[2] / ".venv-standards"))
GYM = STANDARDS / "reasoning_gym" / "bin" / "python"
GENERATED = (
    "assistant", "code", "examples.marketing_environment:Marketing", "math", "order_desk", "patch", "reasoning_gym",
    "refund_desk", "retrieval", "terminal", "workspace",
)  # fmt: skip
GYM_ARGS = {"python": str(GYM), "datasets": ["chain_sum", "family_relationships"]}
BOX_ARGS = {"sandbox": {"limits": {"seconds": 5}}}  # they are part of the verifier's name, too
MATH_LINES = [
    {"problem": "Find x.", "level": "Level 4", "type": "Algebra", "solution": r"So $x = \boxed{\frac{1}{2}}$."},
    {"problem": "Count.", "level": "Level 2", "type": "Counting & Probability", "solution": r"It is \boxed{7}."},
]
BFCL_LINE = {"id": "multi_turn_base_0", "question": [[{"role": "user", "content": "Move the file."}]]}
HUMAN_EVAL_LINE = {
    "task_id": "Own/0", "prompt": "def half(x):\n", "entry_point": "half", "canonical_solution": "    return x / 2\n",
    "test": "def check(candidate):\n    assert candidate(4) == 2\n    assert candidate(5) == 2.5\n",
}  # fmt: skip
KEPT = ("family", "tier", "prompt", "fingerprint", "verifier", "environment", "id", "initial_state", "goal")
boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


def kept(tasks):
    return [{name: getattr(task, name) for name in KEPT} for task in tasks]


def read_back(kind, log, out):
    """The tasks that curation makes of a log."""
    assert cli.main(["ingest", str(log), "--out", str(out), "--json"]) == cli.DONE
    records = pd.read_parquet(out / "traces.parquet").to_dict("records")
    with open_environment(kind) as environment:
        return [replay_trace(Trace.from_record(record), environment).task for record in records]


@pytest.mark.parametrize(
    ("kind", "args"),
    [(kind, GYM_ARGS if kind == "reasoning_gym" else {}) for kind in GENERATED]
    + [("order_desk", {"noisy": True})]
    + [(kind, BOX_ARGS) for kind in ("code", "patch", "terminal")],
    ids=[*GENERATED, "noisy order_desk", "code, other limits", "patch, other limits", "terminal, other limits"],
)
def test_generated_tasks_survive_the_road(tmp_path, kind, args):
    if kind == "reasoning_gym" and not GYM.exists():
        pytest.skip("needs reasoning-gym: make setup-standards")
    spec, log = give(kind_text(kind, args)), tmp_path / "tasks.jsonl"
    words = [
        "data",
        "make-tasks",
        kind,
        *(["--args", json.dumps(args)] if args else []),
        "--n",
        "24",
        "--seed",
        "7",
        "--out",
        str(log),
    ]
    assert cli.main([*words, "--json"]) == cli.DONE
    try:
        with open_environment(spec) as environment:
            made = environment.make_tasks(24, 7)
            families, tiers = set(environment.families), set(environment.tiers)
        assert {task.family for task in made} == families and len({task.tier for task in made}) == len(tiers) > 1
        assert kept(read_back(spec, log, tmp_path / "ingested")) == kept(made)
    finally:
        close_resources()


@pytest.mark.parametrize(
    ("kind", "args", "source", "families"),
    [
        ("math", {}, TESTS / "math" / "gsm8k_lines.jsonl", {("gsm8k", 1)}),
        ("math", {}, MATH_LINES, {("Algebra", 4), ("Counting & Probability", 2)}),
        ("retrieval", {"corpora": "corpora"}, TESTS / "retrieval" / "samples" / "hotpotqa.json", None),
        ("retrieval", {"corpora": "corpora"}, TESTS / "retrieval" / "samples" / "musique.jsonl", None),
        ("bfcl", {"python": "python3"}, [BFCL_LINE], {("multi_turn_base", 1)}),
        pytest.param("code", {}, [HUMAN_EVAL_LINE], {("humaneval", 1)}, marks=boxed),
    ],
    ids=["gsm8k", "MATH", "hotpotqa", "musique", "bfcl", "humaneval"],
)
def test_tasks_of_files_survive_the_road(tmp_path, monkeypatch, kind, args, source, families):
    monkeypatch.chdir(tmp_path)
    if isinstance(source, list):
        source, lines = tmp_path / "lines.jsonl", source
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = tmp_path / "tasks.jsonl"
    words = [
        "data",
        "make-tasks",
        kind,
        *(["--args", json.dumps(args)] if args else []),
        "--from",
        str(source),
        "--out",
        str(log),
    ]
    assert cli.main([*words, "--json"]) == cli.DONE
    spec = give(kind_text(kind, args))
    made = make_environment(spec).tasks_from(source)
    assert made and families in (None, {(task.family, task.tier) for task in made})
    if kind == "bfcl":  # its tools are known to the other project alone, which a replay starts
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        found = [make_environment(spec).task_from_log(line["messages"][-1]["content"], line["environment"]) for line in lines]
    else:
        found = read_back(spec, log, tmp_path / "ingested")
    assert kept(found) == kept(made)


def test_family_and_tier_come_as_far_as_the_curated_tasks(tmp_path):
    log, ingested, curated = tmp_path / "tasks.jsonl", tmp_path / "ingested", tmp_path / "curated"
    assert cli.main(["data", "make-tasks", "math", "--n", "60", "--out", str(log), "--json"]) == cli.DONE
    assert cli.main(["ingest", str(log), "--out", str(ingested), "--json"]) == cli.DONE
    settings = [
        "environment.kind=math", "curation.min_attempts=0", "curation.train_tasks=24", "curation.validation_tasks=12",
        "curation.held_out_tasks=12", "curation.harder_tasks=0",
    ]  # fmt: skip
    chosen = [part for setting in settings for part in ("--set", setting)]
    words = ["curate", "configs/tiny.yaml", *chosen, "--traces", str(ingested), "--out", str(curated), "--json"]
    assert cli.main(words) == cli.DONE
    made = {task.fingerprint: (task.family, task.tier) for task in make_environment("math").make_tasks(60, 0)}
    tasks = pd.read_parquet(curated / "tasks.parquet")
    found = dict(zip(tasks["fingerprint"], zip(tasks["family"], tasks["tier"], strict=True), strict=True))
    assert found == {name: made[name] for name in found}
    assert {family for family, _ in found.values()} == set(MathEnvironment.families)
    assert {tier for _, tier in found.values()} == set(MathEnvironment.tiers)


def test_no_environment_that_makes_tasks_is_left_out():
    makers = {name for name, made in ENVIRONMENTS.items() if hasattr(made, "make_tasks")}
    assert makers == {name for name in GENERATED if ":" not in name}


class Forgetful(OrderDeskEnvironment):
    """Makes every task one of tier 9."""

    def task_from_log(self, prompt, logged):
        return replace(super().task_from_log(prompt, logged), tier=9)


def test_an_environment_that_loses_the_tier_is_told(tmp_path, capsys):
    out = tmp_path / "tasks.jsonl"
    assert cli.main(["data", "make-tasks", f"{__name__}:Forgetful", "--n", "4", "--out", str(out)]) == cli.BAD_INPUT
    assert "with the tier 9 instead of 2" in capsys.readouterr().err and not out.exists()
