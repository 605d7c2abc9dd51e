"""Tasks that the wheel's environments make, and those of files, come back from a log of them as they were."""

import shutil
from pathlib import Path

import pytest

from plugins.projects.tests.test_task_round_trip import check_generated, check_read

HERE = Path(__file__).parent
BOX_ARGS = {"sandbox": {"limits": {"seconds": 5}}}  # they are part of the verifier's name, too
MATH_LINES = [
    {"problem": "Find x.", "level": "Level 4", "type": "Algebra", "solution": r"So $x = \boxed{\frac{1}{2}}$."},
    {"problem": "Count.", "level": "Level 2", "type": "Counting & Probability", "solution": r"It is \boxed{7}."},
]
HUMAN_EVAL_LINE = {
    "task_id": "Own/0", "prompt": "def half(x):\n", "entry_point": "half", "canonical_solution": "    return x / 2\n",
    "test": "def check(candidate):\n    assert candidate(4) == 2\n    assert candidate(5) == 2.5\n",
}  # fmt: skip
boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


@pytest.mark.parametrize("args", [{}, BOX_ARGS], ids=["", "other limits"])
@pytest.mark.parametrize("kind", ["assistant", "code", "math", "patch", "retrieval", "terminal"])
def test_generated_tasks_survive_the_road(tmp_path, kind, args):
    if args and kind not in ("code", "patch", "terminal"):
        pytest.skip("takes no sandbox")
    check_generated(tmp_path, kind, args)


@pytest.mark.parametrize(
    ("kind", "args", "source", "families"),
    [
        ("math", {}, HERE / "math" / "gsm8k_lines.jsonl", {("gsm8k", 1)}),
        ("math", {}, MATH_LINES, {("Algebra", 4), ("Counting & Probability", 2)}),
        ("retrieval", {"corpora": "corpora"}, HERE / "retrieval" / "samples" / "hotpotqa.json", None),
        ("retrieval", {"corpora": "corpora"}, HERE / "retrieval" / "samples" / "musique.jsonl", None),
        pytest.param("code", {}, [HUMAN_EVAL_LINE], {("humaneval", 1)}, marks=boxed),
    ],
    ids=["gsm8k", "MATH", "hotpotqa", "musique", "humaneval"],
)
def test_tasks_of_files_survive_the_road(tmp_path, monkeypatch, kind, args, source, families):
    monkeypatch.chdir(tmp_path)
    check_read(tmp_path, kind, args, source, families)
