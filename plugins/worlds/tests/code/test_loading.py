"""Files in the forms of HumanEval and MBPP: which asserts are taken apart, what they become, and what is refused."""

import gzip
import json
import logging
import shutil

import pytest

from tracewheel.core.errors import DataError
from tracewheel.environments import make_environment
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_worlds.code.loading import tasks_from_file
from tracewheel_worlds.code.values import decode_claim

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
STUB = 'def half(x, up=False):\n    """Half of x."""\n'
BODY = "    import math\n    return math.ceil(x / 2) if up else x / 2\n"


def human_eval(*asserts, name="Own/0", body=BODY):
    test = "METADATA = {}\n\ndef check(candidate):\n    import math, random\n" + "".join(f"    {line}\n" for line in asserts)
    return {"task_id": name, "prompt": STUB, "entry_point": "half", "canonical_solution": body, "test": test}


def loaded(tmp_path, *records):
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return tasks_from_file(path)


def total(task, source):
    return make_verifier(task.verifier).judge(task, {"files": {"solution.py": source}, "findings": []}).total


@pytest.mark.parametrize(
    ("line", "case"),
    [
        ("assert candidate(4) == 2", {"args": [4], "expected": 2}),
        ("assert 2 == candidate(4), 'why'", {"args": [4], "expected": 2}),
        ("assert candidate(5, up=True) == 3", {"args": [5], "kwargs": {"up": True}, "expected": 3}),
        ("assert abs(candidate(5) - 2.5) < 1e-6", {"args": [5], "expected": 2.5, "tolerance": 1e-6}),
        ("assert math.isclose(candidate(5), 2.5, rel_tol=0.01)", {"args": [5], "expected": 2.5, "tolerance": 0.025}),
        ("assert candidate(4)", {"args": [4], "expected": True, "view": "truth"}),
        ("assert not candidate(0)", {"args": [0], "expected": False, "view": "truth"}),
        ("assert int(candidate(5)) == 2", {"args": [5], "expected": 2, "view": "int"}),
    ],
)
def test_asserts_become_cases(tmp_path, line, case):
    (task,) = loaded(tmp_path, human_eval(line)).tasks
    (found,) = task.goal["cases"]
    assert {**found, **{name: decode_claim(found[name]) for name in ("args", "expected")}} == case
    assert total(task, STUB + BODY) == 1.0 and total(task, STUB + "    pass\n") == float(case["expected"] is False)


def test_loops_conjunctions_and_chance_are_the_same_each_time(tmp_path):
    lines = [
        "for n in range(3):",
        "    assert candidate(n) == n / 2 and candidate(-n) == -n / 2",
        "x = random.random()",
        "assert candidate(x) == x / 2",
        "assert True",
    ]
    first, second = (loaded(tmp_path, human_eval(*lines)).tasks[0] for _ in range(2))
    assert len(first.goal["cases"]) == 7 and first == second


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x = candidate(4)\n    assert x == 2", "the function is used outside of an assert"),
        ("assert candidate(4) > 1", "an assert with Gt"),
        ("assert candidate(candidate(4)) == 1", "within its own arguments"),
        ("assert candidate(4) == candidate(4.0)", "both sides"),
        ("assert candidate(4) == 3", "the known solution fails the test"),
        ("assert candidate(4).real == 2", "an assert on candidate(4).real"),
        ("assert candidate(nothing) == 2", "NameError"),
        ("assert True", "no assert calls the function"),
        ("import fractions\n    assert candidate(fractions.Fraction(4)) == 2", "a value of type fractions.Fraction"),
        ("raise SystemExit(0)", "SystemExit"),
    ],
)
def test_what_cannot_be_taken_apart_is_refused_and_counted(tmp_path, caplog, line, reason):
    with caplog.at_level(logging.WARNING):
        found = loaded(tmp_path, human_eval(line, name="Own/1"), human_eval("assert candidate(2) == 1"))
    assert len(found.tasks) == 1 and reason in found.refused["Own/1"]
    assert "1 of 2 tasks refused" in caplog.text


def test_both_forms_of_mbpp(tmp_path):
    code = "class Sum:\n    pass\n\n\ndef add(a, b):\r\n    return a + b"
    tests = ["assert add(1, 2) == 3", "assert set(add([1], [2])) == set([2, 1])", "assert add('a', WORD) == 'ab'"]
    old = {"task_id": 1, "text": "Add.", "code": code, "test_setup_code": "WORD = 'b'", "test_list": tests}
    new = {
        "task_id": 2,
        "prompt": "Add.",
        "code": code,
        "test_imports": ["import math"],
        "test_list": tests[:2],
        "source_file": "x",
    }
    path = tmp_path / "mbpp.json"
    path.write_text(json.dumps([old, new]))
    one, other = make_environment("code").tasks_from(path)
    assert (len(one.goal["cases"]), len(other.goal["cases"]), one.goal["shown"]) == (3, 2, 1)
    assert tests[0] in one.prompt and not any(test in one.prompt for test in tests[1:])
    assert total(one, one.goal["solution"]) == 1.0 and total(one, "def add(a, b):\n    return 3\n") == 0.0
    again = make_environment("code").task_from_log(one.prompt, {"initial_state": one.initial_state, "goal": one.goal})
    assert again == one


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no records"),
        (b"{", "neither JSONL nor a JSON list"),
        (b'{"task_id": 1}', "record 1 has neither"),
        (gzip.compress(b'{"task_id": 1}'), "record 1 has neither"),
        (gzip.compress(b"x" * 99)[:20], "neither JSONL nor a JSON list"),
        (json.dumps(human_eval("assert True")).encode(), "none of its 1 tests can be taken apart"),
    ],
    ids=range(6),  # a packed file holds the time
)
def test_another_file_is_refused(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        tasks_from_file(path)
