"""`tracewheel data make-tasks` of code, without isolation."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from flows import cli
from plugins.projects.tests.test_make_tasks import make  # noqa: F401 (a fixture)
from tracewheel.core.kinds import kind_text
from tracewheel.core.machine import UNSAFE_LOCAL
from tracewheel.environments import make_environment
from tracewheel.environments.base import play_calls
from tracewheel.scoring.verifiers import make_verifier

HUMAN_EVAL = {
    "task_id": "Own/0", "prompt": "def half(x):\n", "entry_point": "half", "canonical_solution": "    return x / 2\n",
    "test": "def check(candidate):\n    assert candidate(4) == 2\n    assert candidate(5) == 2.5\n",
}  # fmt: skip
UNSAFE = {"sandbox": {"kind": "unsafe_local"}}


def test_a_benchmark_is_tried_without_isolation_with_the_flag_alone(make, tmp_path, monkeypatch):  # noqa: F811
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
