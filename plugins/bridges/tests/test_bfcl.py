"""The multi-turn entries of BFCL, in a Python with `bfcl-eval` (`make setup-standards`)."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracewheel.core.errors import DataError
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import kind_text
from tracewheel.environments import TEXT_TURN, close_environment, make_environment
from tracewheel.environments.base import play_calls
from tracewheel.scoring.verifiers import make_verifier

STANDARDS = Path(os.environ.get("TRACEWHEEL_STANDARDS", Path(__file__).parents[3] / ".venv-standards"))
PYTHON = STANDARDS / "bfcl" / "bin" / "python"
SPEC = give(kind_text("bfcl", {"python": str(PYTHON)}))
installed = pytest.mark.skipif(not PYTHON.exists(), reason="needs bfcl-eval: make setup-standards")


def entries(category):
    (folder,) = STANDARDS.glob("bfcl/lib/python3*/site-packages/bfcl_eval/data")
    return make_environment(SPEC).tasks_from(folder / f"BFCL_v4_{category}.json")


def reward(task, calls):
    environment = make_environment(SPEC)
    try:
        play_calls(environment, task, calls)
        return make_verifier(task.verifier).verify(task, environment.snapshot())[0]
    finally:
        close_environment(environment)


def ways(task):
    """The known calls; nothing; all but the last call; no call but every turn ended."""
    known = make_environment(SPEC).solution(task)
    return [known, [], [*known[:-2], known[-1]], [call for call in known if call[0] == TEXT_TURN]]


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"id": "simple_0", "question": []}\n')
    with pytest.raises(DataError, match=r"other\.json:1"):
        make_environment(SPEC).tasks_from(path)


@installed
@pytest.mark.slow
@pytest.mark.parametrize("category", ["multi_turn_base", "multi_turn_miss_param", "multi_turn_long_context"])
def test_the_known_calls_score_one_and_no_calls_zero(category):
    tasks = entries(category)
    assert len({task.fingerprint for task in tasks}) == len(tasks) == 200
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda task: [reward(task, calls) for calls in ways(task)[:2]], tasks))
    assert [task.initial_state["id"] for task, rewards in zip(tasks, found, strict=True) if rewards != [1.0, 0.0]] == []


@installed
@pytest.mark.slow
def test_sixteen_at_once_are_as_one_at_a_time():
    plays = [(task, calls) for task in entries("multi_turn_base")[:4] for calls in ways(task)]
    alone = [reward(*play) for play in plays]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda play: reward(*play), plays)) == alone
    assert set(alone) == {0.0, 1.0}


@installed
@pytest.mark.slow
def test_a_call_is_no_code():
    environment = make_environment(SPEC)
    try:
        environment.reset(entries("multi_turn_base")[0])
        for tool, args in (
            ("__import__", {"name": "os"}),
            ("ls", {"a=True) or __import__('os').abort(": 1}),
            ("cd", {"folder": "'); __import__('os').abort(); ('"}),
        ):
            assert environment.step(tool, args).fault == ""
        assert environment.step("cd", {"folder": "document"}).text
        assert environment.reply("Done.").text.startswith("Perform a detailed search")
    finally:
        close_environment(environment)
