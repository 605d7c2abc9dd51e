"""`tracewheel data make-tasks`: tasks that nobody has tried go the road of logs, and stay without a score."""

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from flows import cli
from tracewheel.config import load_config
from tracewheel.core.errors import DataError
from tracewheel.core.kinds import kind_text
from tracewheel.core.machine import UNSAFE_LOCAL
from tracewheel.environments import make_environment
from tracewheel.environments.episode import play_calls
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment
from tracewheel.environments.order_desk.stock import DESKS
from tracewheel.environments.order_desk.tasks import FAMILIES, make_task
from tracewheel.learner.warm_start.selection import episodes_to_imitate
from tracewheel.scoring.verifiers import make_verifier


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


HUMAN_EVAL = {
    "task_id": "Own/0", "prompt": "def half(x):\n", "entry_point": "half", "canonical_solution": "    return x / 2\n",
    "test": "def check(candidate):\n    assert candidate(4) == 2\n    assert candidate(5) == 2.5\n",
}  # fmt: skip
UNSAFE = {"sandbox": {"kind": "unsafe_local"}}


def test_a_benchmark_is_tried_without_isolation_with_the_flag_alone(make, tmp_path, monkeypatch):
    monkeypatch.setenv(UNSAFE_LOCAL, "0")  # the flag sets it, and the test's end takes it back
    source = tmp_path / "lines.jsonl"
    source.write_text(json.dumps(HUMAN_EVAL) + "\n")
    words = ("code", "--from", str(source), "--args", json.dumps(UNSAFE))
    code, out, _, error = make(*words)
    assert code == cli.BAD_INPUT and "say --unsafe-local if that is meant" in error and not out.exists()
    code, out, counts, error = make(*words, "--unsafe-local")
    assert (code, counts["tasks"]) == (cli.DONE, 1), error
    assert os.environ[UNSAFE_LOCAL] == "1"
    record = json.loads(out.read_text())
    task = make_environment(kind_text("code", UNSAFE)).task_from_log(record["messages"][-1]["content"], record["environment"])
    assert totals(task) == (1.0, 0.0)


@pytest.mark.parametrize("family", ["function", "cli", "etl"])
def test_code_is_judged_alike_without_isolation(monkeypatch, family):
    monkeypatch.setenv(UNSAFE_LOCAL, "1")
    task = next(task for task in make_environment(kind_text("code", UNSAFE)).make_tasks(8, 2) if task.family == family)
    with ThreadPoolExecutor(2) as threads:  # runs at once share the folder /tmp
        assert list(threads.map(totals, [task, task])) == [(1.0, 0.0)] * 2


def totals(task):
    """What the known solution is worth, and what no work is."""
    found = []
    for calls in (make_environment(task.environment).solution(task), [("submit", {})]):
        environment = make_environment(task.environment)
        play_calls(environment, task, calls)
        found.append(make_verifier(task.verifier).judge(task, environment.snapshot()).total)
    return tuple(found)
