"""As for the core's verifiers: what is huge, deep, colliding or slow is 0, and soon."""

import json
import random
import shutil
import time

import pytest

from tests.tracewheel.scoring.test_hostile_answers import check_hostile, check_part
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_worlds.code.grading import _function_failure
from tracewheel_worlds.code.tasks import make_task
from tracewheel_worlds.signs import signs_in_source

COLLIDING = [number * (2**61 - 1) for number in range(9, 40_000)]
TEXTS = [
    ("Answer: 3" + " " * 200_000 + "x"),
    ("\\boxed{" * 40_000),
    ("\\boxed{1\\text{" + " " * 3900 + "}"),
    ("\\boxed{3" + "," * 300_000 + "}"),
    pytest.param("\\boxed{(9^{9^{9^{9}}})!}", marks=pytest.mark.slow),
    pytest.param("\\boxed{" + "(" * 1900 + ")" * 1900 + "}", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("said", TEXTS, ids=lambda value: str(value)[:20])
def test_a_hostile_answer_is_0(said):
    pytest.importorskip("math_verify")
    check_hostile("math", {}, {"answer": "3"}, said)


def test_no_answer_leaves_out_a_part_that_an_objective_reads():
    pytest.importorskip("math_verify")
    check_part("math", "read", {})


CLAIMS = {
    "ints": {"set": [{"int": hex(number)} for number in COLLIDING]},
    "keys": {"dict": [[{"int": hex(number)}, 1] for number in COLLIDING]},
    "floats": {"frozenset": [{"float": (float(number) * 2.0**61).hex()} for number in range(1, 20_000)]},
    "tuples": {"set": [{"tuple": [{"int": hex(number)}]} for number in COLLIDING]},
    "nodes": [[[]] * 100_000] * 3,
    "digits": [{"int": "0x" + "f" * 200_000}] * 20,
}
CHANNEL = """import os, sys
def out(text):
    for d in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{d}").startswith("pipe"):
                for at in range(0, len(text), 60000):
                    os.write(d, text[at:at + 60000].encode())
        except OSError:
            pass
"""


@pytest.mark.parametrize("view", ["", *(pytest.param(view, marks=pytest.mark.slow) for view in ("set", "sorted"))])
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_that_makes_comparison_quadratic_fails_its_case(name, view):
    case = {"args": [], "expected": {"set": [1]}, "view": view}
    for types in ("strict", "equal"):
        began = time.thread_time()
        assert _function_failure({"types": types}, case, {"case": 0, "value": CLAIMS[name]})
        assert time.thread_time() - began < 5.0


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
def test_a_forged_claim_in_a_box_is_0_and_flagged():
    task = make_task("function", 2, random.Random(1))
    claim = ",".join(json.dumps({"int": hex(number)}) for number in COLLIDING)
    source = CHANNEL + f'out(\'{{"case": 0, "value": {{"set": [{claim}, [1]]}}}}\\n\')\nos._exit(0)\n'
    began = time.thread_time()
    verdict = make_verifier("unit_tests").judge(task, {"files": {task.goal["file"]: source}, "findings": []})
    assert verdict.total == 0.0 and verdict.parts["flagged"] == 1.0 and time.thread_time() - began < 5.0
    assert "a result of another form" in verdict.explanation


def test_signs_of_a_source_deeper_than_python_goes():
    assert any("changes" in sign for sign in signs_in_source(b"import os\nos" + b".a" * 1500 + b" = 1\n"))
