"""Mathematics: generated problems, files of published sets, and what the tool says to mistakes.

`gsm8k_lines.jsonl` are the first twelve lines of GSM8K's test set (Cobbe et al. 2021; openai/grade-school-math, MIT License).
"""

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from tracewheel.core.errors import DataError
from tracewheel_worlds.math.environment import MathEnvironment
from tracewheel_worlds.math.files import last_boxed, tasks_from

GSM8K = Path(__file__).with_name("gsm8k_lines.jsonl")


def test_answers_of_generated_terms_are_what_python_computes():
    """A second source for the two families whose problem is a term."""
    checked = 0
    for task in MathEnvironment().make_tasks(240, 3):
        if task.family in ("arithmetic", "fractions"):
            term = re.search(r"What is (.*?)\?", task.prompt).group(1)
            value = eval(re.sub(r"\d+", lambda number: f"Fraction({number.group()})", term), {"Fraction": Fraction})
            assert Fraction(task.goal["answer"]) == value, task.prompt
            checked += 1
    assert checked > 100


def test_answers_of_generated_equations_solve_them():
    for task in MathEnvironment().make_tasks(120, 4):
        if task.family == "equations":
            left, right = re.search(r"Solve (.*?) = (.*?) for x", task.prompt).groups()
            x = Fraction(task.goal["answer"])
            sides = [re.sub(r"(\d+)(?=[x(])", r"\1*", side) for side in (left, right)]
            assert eval(sides[0], {"x": x}) == eval(sides[1], {"x": x}), task.prompt


def test_real_lines_of_gsm8k_load():
    tasks = tasks_from(GSM8K)
    assert [task.goal["answer"] for task in tasks[:4]] == ["18", "3", "70000", "540"]
    assert len(tasks) == 12 and {task.environment for task in tasks} == {"math"}
    assert all("####" not in task.prompt for task in tasks) and tasks[0].prompt.startswith("Janet")


def test_lines_in_the_form_of_math_load(tmp_path):
    solution = r"Note $\boxed{0}$ first. So $x = \boxed{\frac{1}{\sqrt{2}}}$."
    row = {"problem": "Find x.", "level": "Level 4", "type": "Algebra", "solution": solution}
    path = tmp_path / "math.jsonl"
    path.write_text(f"{json.dumps(row)}\n\n{json.dumps(row)}\n")
    (task,) = tasks_from(path)
    assert (task.goal["answer"], task.family, task.tier) == (r"\frac{1}{\sqrt{2}}", "Algebra", 4)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "1: not JSON"),
        ("[1]", "1: needs 'question' and 'answer'"),
        ('{"question": "q", "answer": "42"}', "does not end with ####"),
        ('{"problem": "p", "solution": "42"}', "has no"),
    ],
)
def test_a_line_that_is_neither_is_named(tmp_path, line, said):
    (tmp_path / "bad.jsonl").write_text(line)
    with pytest.raises(DataError, match=said):
        tasks_from(tmp_path / "bad.jsonl")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "caf\xe9"}')
    for path in (tmp_path, tmp_path / "latin.jsonl"):
        with pytest.raises(DataError, match=path.name):
            tasks_from(path)


def test_a_text_may_hold_any_end_of_line(tmp_path):
    row = {"question": "Two\u2028and\x85two?", "answer": "#### 4"}
    (tmp_path / "ends.jsonl").write_bytes(json.dumps(row, ensure_ascii=False).encode() + b"\r\n")
    (task,) = tasks_from(tmp_path / "ends.jsonl")
    assert task.prompt == row["question"]


@pytest.mark.parametrize("place", [{"tier": 0}, {"tier": "2"}, {"tier": True}, {"family": ""}, {"family": 3}])
def test_a_log_names_family_and_tier_or_neither(place):
    world, logged = MathEnvironment(), {"goal": {"answer": "4"}}
    with pytest.raises(DataError, match="'tier' a whole number"):
        world.task_from_log("2 + 2?", {**logged, **place})
    tasks = world.task_from_log("2 + 2?", logged), world.task_from_log("2 + 2?", {**logged, "family": "sums", "tier": 3})
    assert [(task.family, task.tier) for task in tasks] == [("math", 1), ("sums", 3)]
    assert tasks[0].fingerprint == tasks[1].fingerprint


def test_the_last_box_counts_and_braces_are_matched():
    assert last_boxed(r"\boxed{1} \boxed{a_{1}}") == "a_{1}"
    assert last_boxed(r"\boxed{1") == last_boxed("1") == ""


@pytest.mark.parametrize("args", [{}, {"value": 4}, {"value": " "}, {"value": "4", "why": "x"}, {"value": "1" * 5000}])
def test_a_call_that_is_wrong_changes_nothing(args):
    world = MathEnvironment()
    world.reset(world.make_tasks(1, 0)[0])
    assert world.step("answer", args).error and not world.step("answer", args).done
    assert world.step("calculator", {}).error
    assert world.snapshot() == {"answer": None}
