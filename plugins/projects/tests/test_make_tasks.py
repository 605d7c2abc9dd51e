"""`tracewheel data make-tasks`: tasks that nobody has tried go the road of logs, and stay without a score."""

import argparse
import json
import random
import re

import pandas as pd
import pytest

from flows import cli
from tests.flows.test_cards import TYPED, shown
from tracewheel.config import load_config
from tracewheel.core.errors import DataError
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment
from tracewheel.environments.order_desk.stock import DESKS
from tracewheel.environments.order_desk.tasks import FAMILIES, make_task
from tracewheel.learner.warm_start.selection import episodes_to_imitate
from tracewheel_projects.commands.make_tasks import COMMAND


class Desk(OrderDeskEnvironment):
    """An order desk that makes and reads tasks."""

    families, tiers = FAMILIES, (2, 3)

    def make_tasks(self, n, seed):
        rng = random.Random(seed)
        return [make_task(FAMILIES[number % 4], 2 + number % 2, number % DESKS, rng) for number in range(n)]

    def tasks_from(self, path):
        return self.make_tasks(int(path.read_text()), 1)


KIND = f"{__name__}:Desk"


@pytest.fixture
def make(tmp_path, capsys):
    def run(*arguments):
        out = tmp_path / "tasks.jsonl"
        code = cli.main(["data", "make-tasks", *arguments, "--out", str(out), "--json"])
        printed = capsys.readouterr()
        return code, out, json.loads(printed.out or "{}"), printed.err

    return run


def test_generated_tasks_are_curated_without_a_score(make, tmp_path, capsys):
    code, out, counts, _ = make(KIND, "--n", "40", "--seed", "3")
    assert code == cli.DONE and counts["tasks"] == 40 and counts["tiers"] == {"2": 20, "3": 20}
    ingested, curated = tmp_path / "ingested", tmp_path / "curated"
    assert cli.main(["ingest", str(out), "--out", str(ingested), "--json"]) == cli.DONE
    settings = [
        f"environment.kind={KIND}", "curation.min_attempts=0", "curation.train_tasks=16", "curation.validation_tasks=8",
        "curation.held_out_tasks=8", "curation.harder_tasks=0",
    ]  # fmt: skip
    chosen = [part for setting in settings for part in ("--set", setting)]
    capsys.readouterr()
    assert cli.main(["curate", "configs/tiny.yaml", *chosen, "--traces", str(ingested), "--out", str(curated), "--json"]) == 0
    funnel = json.loads((curated / "report.json").read_text())["funnel"]
    assert (funnel["traces"], funnel["unscored"], funnel["dropped_traces"]) == (40, 40, {})
    tasks = pd.read_parquet(curated / "tasks.parquet")
    assert len(tasks) >= 32 and set(tasks["attempts"]) == {0} and tasks["pass_rate"].isna().all()
    with pytest.raises(DataError, match="no all episode in the training split"):
        episodes_to_imitate(load_config("configs/tiny.yaml").warm_start, curated, "all")


def test_tasks_of_a_file(make, tmp_path):
    (tmp_path / "count").write_text("3")
    assert make(KIND, "--from", str(tmp_path / "count"))[2]["tasks"] == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("verdict",), "environment"),
        (("bridged",), "environment"),
        ((KIND, "--from", "nowhere"), "nowhere: no such file"),
        ((KIND, "--args", "[1]"), "a kind with arguments is"),
    ],
)
def test_what_cannot_be_made_is_said_and_nothing_written(make, arguments, says):
    code, out, _, error = make(*arguments)
    assert code == cli.BAD_INPUT and says in error and not out.exists()


def test_its_card_fits_a_narrow_terminal(monkeypatch):
    counts = {"families": {"item": 2, "open": 1}, "tiers": {"2": 3}}
    result = {"out": "t.jsonl", "environment": "order_desk", "tasks": 3, **counts}
    text = shown(argparse.Namespace(**vars(TYPED), command=COMMAND), result, monkeypatch, columns=60)
    assert "3 tasks of order_desk written to t.jsonl" in text and "item 2, open 1" in text
    assert [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if len(line) > 60 and "next: " not in line] == []
