"""Answers compared by math-verify: a table of our own, its project's own cases, and workers that hang."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracewheel.core.types import Task
from tracewheel.scoring.verifiers import episode_from, make_verifier
from tracewheel_worlds.math.pool import HUNG, LONGEST, MathPool
from tracewheel_worlds.math.units import without_unit
from tracewheel_worlds.math.verifier import marked

pytest.importorskip("math_verify")
CASES = json.loads(Path(__file__).with_name("math_cases.json").read_text())
PUBLISHED = json.loads(Path(__file__).with_name("math_verify_cases.json").read_text())["cases"]


@pytest.fixture(scope="module")
def pool():
    with_two = MathPool(2, 30.0)
    yield with_two
    with_two.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case_table(case):
    goal = {"answer": case["gold"]} | ({"unit": case["unit"]} if "unit" in case else {})
    text = case.get("text", "")
    text = text["repeat"] * text["times"] if isinstance(text, dict) else text
    task = Task("t", "math", "f", 1, "How many?", {}, goal, "math", "t")
    state = {"answer": case["state"]} if "state" in case else {}
    verdict = make_verifier("math").verify_episode(task, episode_from([{"role": "assistant", "content": text}], 0, state))
    assert verdict.total == case["total"], verdict


@pytest.mark.parametrize("step", [pytest.param(8, id="every eighth"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_the_published_cases_of_math_verify_agree(pool, step):
    """The verdicts of its own tests on texts that are short; a right answer that is not read counts as not equal there."""
    wrong = []
    for case in PUBLISHED[::step]:
        options = {name: tuple(value) if name == "formats" else value for name, value in case.get("options", {}).items()}
        try:
            equal = pool.compare(case["gold"], case["answer"], **options).equal
        except ValueError:
            equal = False
        if equal != bool(case["equal"]):
            wrong.append(case)
    assert len(PUBLISHED) > 200 and wrong == []


def test_a_comparison_that_hangs_is_wrong_and_its_worker_is_killed():
    pool = MathPool(1, 30.0)
    try:
        assert pool.compare("\\boxed{3}", "3").equal
        worker = pool._idle[0]._process
        began = time.monotonic()
        pool._seconds = 2.0
        found = pool.compare("\\boxed{3}", "\\boxed{(9^{9^{9^{9}}})!}")
        pool._seconds = 30.0
        assert (found.equal, found.why) == (False, HUNG) and time.monotonic() - began < 20
        assert worker.poll() == -signal.SIGKILL
        assert pool.compare("3", "3").equal
    finally:
        pool.close()


def test_a_worker_that_was_killed_is_replaced(pool):
    assert pool.compare("3", "3").equal
    for worker in pool._idle:
        worker._process.send_signal(signal.SIGSTOP)
    stopped = list(pool._idle)
    pool._seconds, before = 1.0, pool._seconds
    try:
        with pytest.raises(ValueError, match="is not read in 1 seconds"):
            pool.compare("3", "3")
    finally:
        pool._seconds = before
        for worker in stopped:
            if worker._process.poll() is None:
                worker._process.send_signal(signal.SIGCONT)
    assert pool.compare("3", "3").equal


def test_many_threads_share_two_workers(pool):
    asked = [(str(number), str(number + number % 3)) for number in range(60)]
    with ThreadPoolExecutor(32) as threads:
        found = list(threads.map(lambda pair: pool.compare(*pair).equal, asked))
    assert found == [number % 3 == 0 for number in range(60)]
    assert len(pool._idle) <= 2


def test_an_answer_that_is_too_long_is_never_sent(pool):
    assert pool.compare("3", "3" * (LONGEST + 1)).why.startswith("longer than")


def test_a_right_answer_that_is_no_mathematics_leaves_the_episode_unscored(pool):
    with pytest.raises(ValueError, match="not read as mathematics"):
        pool.compare("", "3")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_workers_end_with_their_parent_and_see_no_secrets():
    script = (
        "import sys, time\nfrom tracewheel_worlds.math.pool import math_pool\n"
        "assert math_pool().compare('3', '3').equal\nprint(math_pool()._idle[0]._process.pid, flush=True)\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "SOME_API_KEY": "secret"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        worker = int(parent.stdout.readline())
        assert b"SOME_API_KEY" not in Path(f"/proc/{worker}/environ").read_bytes()
        parent.kill()
    until = time.monotonic() + 20
    while (
        Path(f"/proc/{worker}/cmdline").is_file() and Path(f"/proc/{worker}/cmdline").read_bytes() and time.monotonic() < until
    ):
        time.sleep(0.1)
    assert not Path(f"/proc/{worker}/cmdline").is_file() or not Path(f"/proc/{worker}/cmdline").read_bytes()


def test_marks_and_units():
    assert marked("\\boxed{a{b}c} and \\boxed{2}") == ["a{b}c", "2"]
    assert marked("Answer: 3\nfinal answer is: 4") == ["3", "4"]
    assert [without_unit(text) for text in ("5 km", "5%", "5 eggs per day", "5x", "\\frac{1}{2} \\text{ cm}")] == [
        ("5", "km"), ("5", "%"), ("5", "eggs per day"), ("5x", ""), ("\\frac{1}{2}", "cm"),
    ]  # fmt: skip
