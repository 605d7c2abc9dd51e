"""Attacks on hidden tests: each scores 0, is flagged where it can be seen, and harms no other episode.

`attacks.json` has them by name: lines of `solution.py`, what the explanation names ("" where nothing can be seen), other files,
and where the idea is from, where others published it (ideas alone; the code is ours):

- `evil_moe`: wassname's multi-loophole environments after ariahw/rl-rewardhacking: exit codes, marker lines, files, attributes.
- `always_equal`: data sets on reward hacking that tell of objects which override `__ne__` and `strip` too, and of exits.
- `terminal_bench`: harbor-framework/terminal-bench, pull request 1127: pytest's recorder patched from module level.
- `swe_smith`: SWE-bench/SWE-smith, issue 24: tests that could not be collected were taken for passed.
- `deepeval`: confident-ai/deepeval, pull request 3011: `__subclasses__` reaches what a list of allowed names hides.
- `djinn`: EleutherAI/djinn, its list of exploit types and of exploits that do not depend on the problem.
- `impossible_bench`: Zhong et al. 2025, ImpossibleBench, arXiv:2510.20270: operators of its own, and states that it keeps.
- `terminal_wrench`: Bercovich et al. 2026, Terminal Wrench, arXiv:2604.17596: programs in place of the test runner's.
- `metr`: METR 2025, on models' reward hacking: a clock that stands still.
- `scorescope`: the challenge of this name at DiceCTF 2023: assertions of unittest replaced.
- `piston`, `compiler_explorer`: engineer-man/piston, its exploit tests; compiler-explorer, issue 6026: results that are links.
"""

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracewheel.scoring.verifiers import make_verifier
from tracewheel_worlds.code.tasks import code_task
from tracewheel_worlds.code.values import encode

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
ATTACKS = json.loads(Path(__file__).with_name("attacks.json").read_text())
STUB = "def total(values):\n    return 0\n"
SHOWN = [[1, 2, 3], [10, 20], [-5, 1, 1, 1]]
VERIFIER = "unit_tests"
HASTY = '{"args":{"limits":{"seconds":4.0}},"kind":"unit_tests"}'  # for what hangs


@pytest.fixture(scope="module")
def task():
    rng = random.Random(7)
    hidden = [[rng.randint(1, 99) for _ in range(rng.randint(3, 9))] for _ in range(17)]
    goal = {
        "family": "function",
        "tier": 1,
        "form": "function",
        "file": "solution.py",
        "function": "total",
        "types": "strict",
        "cases": [{"args": [values], "expected": encode(sum(values))} for values in SHOWN + hidden],
        "shown": len(SHOWN),
    }
    return code_task("Sum the values.", {"files": {}}, goal)


def inside(*lines):
    return "def total(values):\n" + "".join(f"    {line}\n" for line in lines)


def judged(task, source, files=None, verifier=None):
    return (verifier or make_verifier(VERIFIER)).judge(
        task, {"files": {"solution.py": source, **(files or {})}, "findings": []}
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if attack.get("slow") else []) for name, attack in ATTACKS.items()]
)
def test_an_attack_scores_nothing(task, name):
    attack = ATTACKS[name]
    files = {path: "\n".join(lines) for path, lines in attack.get("files", {}).items()}
    verifier = make_verifier(HASTY if attack["seen"] == "timeout in the tests" else VERIFIER)
    verdict = judged(task, "\n".join(attack["source"]), files, verifier)
    assert verdict.total == 0.0, verdict
    assert attack["seen"] in verdict.explanation and verdict.parts["flagged"] >= float(bool(attack["seen"])), verdict


def test_honest_work_scores_and_is_not_flagged(task):
    helped = "from lib.adding import add\n\nprint('loaded')\n" + inside("print(values)", "values.sort()", "return add(values)")
    honest = [
        ({}, inside("return sum(values)")),
        (
            {"lib/adding.py": "from functools import reduce\n\n\ndef add(values):\n    return reduce(int.__add__, values)\n"},
            helped,
        ),
    ]
    for files, source in honest:
        verdict = judged(task, source, files)
        assert (verdict.total, verdict.parts, verdict.explanation) == (
            1.0,
            {"passed": 1.0, "shown": 1.0, "flagged": 0.0},
            "all cases pass",
        )


def test_an_attacker_leaves_the_rest_of_its_batch_as_it_is(task):
    verifier = make_verifier(VERIFIER)
    names = ["sys_exit_at_import", "a_huge_text", "write_to_all_descriptors", "much_memory", "kill_itself", "tests_taken_away"]
    sources = ["\n".join(ATTACKS[name]["source"]) for name in names] + [inside("return sum(values)"), STUB] * 5
    with ThreadPoolExecutor(8) as pool:
        totals = list(pool.map(lambda source: judged(task, source, verifier=verifier).total, sources))
    assert totals == [0.0] * len(names) + [1.0, 0.0] * 5


def test_the_same_trajectory_has_the_same_score(task):
    source = inside("import random", "return sum(values) + (values[0] > 50)")
    assert len({str(judged(task, source)) for _ in range(3)}) == 1
