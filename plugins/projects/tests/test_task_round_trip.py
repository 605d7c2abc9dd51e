"""A task that `make-tasks` wrote is the same after `ingest`, as curation reads it: one test for all environments with tasks."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from flows import cli
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import kind_text
from tracewheel.core.types import Trace
from tracewheel.curation.replay import replay_trace
from tracewheel.environments import ENVIRONMENTS, make_environment, open_environment
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment
from tracewheel.environments.running import close_resources
from tracewheel.environments.workspace.environment import WorkspaceEnvironment

GENERATED = ("examples.marketing_environment:Marketing", "order_desk", "refund_desk", "workspace")
KEPT = ("family", "tier", "prompt", "fingerprint", "verifier", "environment", "id", "initial_state", "goal")


def kept(tasks):
    return [{name: getattr(task, name) for name in KEPT} for task in tasks]


def read_back(kind, log, out):
    """The tasks that curation makes of a log."""
    assert cli.main(["ingest", str(log), "--out", str(out), "--json"]) == cli.DONE
    records = pd.read_parquet(out / "traces.parquet").to_dict("records")
    with open_environment(kind) as environment:
        return [replay_trace(Trace.from_record(record), environment).task for record in records]


@pytest.mark.parametrize(("kind", "args"), [*((kind, {}) for kind in GENERATED), ("order_desk", {"noisy": True})])
def test_generated_tasks_survive_the_road(tmp_path, kind, args):
    check_generated(tmp_path, kind, args)


def check_generated(tmp_path, kind, args):
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


def check_read(tmp_path, kind, args, source, families):
    """Tasks of a file, or of lines, come back from a log of them."""
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
    assert cli.main(["data", "make-tasks", "workspace", "--n", "60", "--out", str(log), "--json"]) == cli.DONE
    assert cli.main(["ingest", str(log), "--out", str(ingested), "--json"]) == cli.DONE
    settings = [
        "environment.kind=workspace", "curation.min_attempts=0", "curation.train_tasks=24", "curation.validation_tasks=12",
        "curation.held_out_tasks=12", "curation.harder_tasks=0",
    ]  # fmt: skip
    chosen = [part for setting in settings for part in ("--set", setting)]
    words = ["curate", "configs/tiny.yaml", *chosen, "--traces", str(ingested), "--out", str(curated), "--json"]
    assert cli.main(words) == cli.DONE
    made = {task.fingerprint: (task.family, task.tier) for task in make_environment("workspace").make_tasks(60, 0)}
    tasks = pd.read_parquet(curated / "tasks.parquet")
    found = dict(zip(tasks["fingerprint"], zip(tasks["family"], tasks["tier"], strict=True), strict=True))
    assert found == {name: made[name] for name in found}
    assert {family for family, _ in found.values()} == set(WorkspaceEnvironment.families)
    assert {tier for _, tier in found.values()} == set(WorkspaceEnvironment.tiers)


def test_no_environment_that_makes_tasks_is_left_out():
    core = [name for name in ENVIRONMENTS if ENVIRONMENTS.place(name).startswith("tracewheel.")]
    makers = {name for name in core if hasattr(ENVIRONMENTS[name], "make_tasks")}
    assert makers == {name for name in GENERATED if ":" not in name}


class Forgetful(OrderDeskEnvironment):
    """Makes every task one of tier 9."""

    def task_from_log(self, prompt, logged):
        return replace(super().task_from_log(prompt, logged), tier=9)


def test_an_environment_that_loses_the_tier_is_told(tmp_path, capsys):
    out = tmp_path / "tasks.jsonl"
    assert cli.main(["data", "make-tasks", f"{__name__}:Forgetful", "--n", "4", "--out", str(out)]) == cli.BAD_INPUT
    assert "with the tier 9 instead of 2" in capsys.readouterr().err and not out.exists()
