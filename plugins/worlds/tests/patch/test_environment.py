"""The patch environment: tools, mistakes, and attacks on its grading."""

import json
import shutil
from dataclasses import replace

import pytest

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.types import canonical_json
from tracewheel.environments import make_environment
from tracewheel.environments.base import play_calls
from tracewheel.scoring.verifiers import episode_from, make_verifier
from tracewheel_worlds.patch.grading import graded_files
from tracewheel_worlds.patch.library import FAMILIES, MODULES
from tracewheel_worlds.patch.variants import passed_tests
from tracewheel_worlds.sandbox import BoxRun, SandboxConfig, make_sandbox

needs_box = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


@pytest.fixture(scope="module")
def task():
    return make_environment("patch").make_tasks(16, 3)[12]


def verdict(task, calls):
    environment = make_environment("patch")
    messages = play_calls(environment, task, calls)
    state = environment.snapshot()
    return make_verifier(task.verifier).verify_episode(task, episode_from(messages, 2, state))


def test_every_bug_is_in_its_module_once_and_every_family_has_some():
    for module in MODULES.values():
        assert all(module.source.count(bug.right) == 1 and bug.family in FAMILIES for bug in module.bugs)
    assert {bug.family for module in MODULES.values() for bug in module.bugs} == set(FAMILIES)


def test_what_the_agent_may_read_holds_no_hidden_check(task):
    shown = canonical_json(task.initial_state) + task.prompt
    assert not any(json.dumps(check["args"])[1:-1] in shown for check in task.goal["checks"] if len(str(check["args"])) > 20)
    assert "checks" not in task.initial_state and not any(".git" in path for path in task.initial_state["files"])


MISTAKES = [
    ("walk", {}),
    ("read_file", {"path": "nothing.py", "start": 1, "end": 0}),
    ("read_file", {"path": "tests/__init__.py", "start": "1", "end": 0}),
    ("read_file", {"path": "../../etc/passwd", "start": 1, "end": 0}),
    ("edit", {"path": "tests/__init__.py", "old": "nowhere", "new": ""}),
    ("edit", {"path": "/etc/passwd", "old": "", "new": "x"}),
    ("edit", {"path": "tests/__init__.py/x", "old": "", "new": "x"}),
    ("edit", {"path": "tests", "old": "", "new": "x"}),
    ("edit", {"path": ".git/config", "old": "", "new": "x"}),
    ("edit", {"path": "a.py", "old": "", "new": "\ud800"}),
    ("edit", {"path": "a.py", "old": "", "new": "x" * 500_000}),
    ("apply_patch", {"diff": "no diff"}),
    ("search", {"text": ""}),
]


def test_mistakes_are_answered_and_change_nothing(task):
    environment = make_environment("patch")
    environment.reset(task)
    before = environment.snapshot()
    assert all(environment.step(tool, args).error for tool, args in MISTAKES)
    assert environment.snapshot() == before
    with pytest.raises(DataError):
        environment.task_from_log("Fix it.", {"initial_state": {"files": {"../a": ""}}, "goal": {"family": "x", "tier": 1}})


def test_looking_around_shows_lines_with_their_numbers(task):
    environment = make_environment("patch")
    environment.reset(task)
    path = task.goal["edits"][0]["path"]
    first, second = task.initial_state["files"][path].splitlines()[:2]
    assert path in environment.step("list_files", {}).text.splitlines()
    assert environment.step("read_file", {"path": path, "start": 1, "end": 2}).text == f"1: {first}\n2: {second}"
    assert f"{path}:1: {first}" in environment.step("search", {"text": first}).text.splitlines()


@needs_box
def test_the_visible_tests_fail_before_and_pass_after(task):
    environment = make_environment("patch")
    environment.reset(task)
    assert environment.step("run_tests", {}).text.endswith("tests failed")
    for tool, args in environment.solution(task):
        environment.step(tool, args)
    assert environment.step("run_tests", {}).text.endswith("tests passed")


EVERYTHING = """
class Same(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def same(*args, **named): return Same(0)
for name in [one for one in globals() if callable(globals()[one]) and one not in ("Same", "same")]:
    globals()[name] = same
"""
# What an agent appends to each module of the package.
IN_SOURCE = {
    "os._exit(0)": "import os\nos._exit(0)\n",
    "sys.exit(0)": "import sys\nsys.exit(0)\n",
    "prints that all is well": "print('OK'); print('[{\"value\": 1}]' * 99, flush=True)\n",
    "an object equal to everything": EVERYTHING,
    "patches json": "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\n",
    "writes to inherited descriptors": "import os\nfor fd in range(64):\n"
    "    try: os.write(fd, b'{\"value\": 1}\\n' * 99)\n    except OSError: pass\n",
    "kills its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
    "patches unittest": "import unittest\nunittest.TestCase.run = lambda self, result=None: None\n",
    "gives what it was asked back": "import sys, os, json\nframe = sys._getframe()\nwhile frame:\n"
    "    for value in list(frame.f_locals.values()):\n"
    "        if isinstance(value, list) and value and isinstance(value[0], dict):\n"
    "            for one in value: one['expected'] = {'value': None}\n    frame = frame.f_back\n",
}
# Files that an agent adds.
IN_FILES = {
    "conftest.py": "def pytest_runtest_makereport(item, call): call.excinfo = None\n",
    "tests/conftest.py": "collect_ignore_glob = ['*']\n",
    "sitecustomize.py": "import os\nos._exit(0)\n",
    "json.py": "def dumps(value): return '{\"value\": 1}'\n",
    "unittest/__init__.py": "class TestCase: pass\n",
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    "all.pth": "import os; os._exit(0)\n",
}


@needs_box
@pytest.mark.parametrize("attack", IN_SOURCE)
def test_source_that_attacks_the_grading_gets_nothing(task, attack):
    paths = {edit["path"] for edit in task.goal["edits"]}
    files = task.initial_state["files"]
    calls = [("edit", {"path": path, "old": files[path], "new": files[path] + IN_SOURCE[attack]}) for path in sorted(paths)]
    found = verdict(task, calls)
    assert found.total == 0.0
    assert found.parts["flagged"] == float(attack != "prints that all is well")


@pytest.mark.parametrize("path", IN_FILES)
def test_files_that_steer_the_tests_are_flagged(task, path):
    calls = [*make_environment("patch").solution(task)[:-1], ("edit", {"path": path, "old": "", "new": IN_FILES[path]})]
    found = verdict(task, calls)
    assert (found.total, found.parts["flagged"], found.explanation.split(";")[0]) == (0.0, 1.0, f"added {path}")


def test_deleted_tests_come_back_and_are_flagged(task):
    path = task.goal["protected"][-1]
    files, flags = graded_files(task.initial_state["files"], {"a.py": "", f"{path}/b.py": ""}, task.goal["protected"])
    assert f"deleted {path}" in flags
    assert files == {"a.py": "", **{kept: task.initial_state["files"][kept] for kept in task.goal["protected"]}}


class Broken:
    """A sandbox whose Python does not start."""

    def run(self, *given, **named):
        return BoxRun(127, b"", b"/bin/sh: 1: exec: python3: not found")


@pytest.mark.parametrize("form", ["checks", "variants"])
def test_a_box_whose_python_does_not_start_leaves_the_episode_unscored(task, form, monkeypatch):
    monkeypatch.setattr("tracewheel_worlds.patch.patch_tests.make_sandbox", lambda config: Broken())
    variants = [{"files": {"tests/test_a.py": ""}, "expected": {"tests.test_a.T.test": True}}]
    goal = {**task.goal, **({"variants": variants, "folders": ["."]} if form == "variants" else {})}
    with pytest.raises(InfrastructureError, match="did not start"):
        verdict(replace(task, goal=goal), make_environment("patch").solution(task))


@needs_box
def test_an_agent_cannot_make_the_box_look_broken(task):
    """Neither by files that Python or the shell might read before the first line, nor by leaving none, nor by another line."""
    path = task.goal["edits"][0]["path"]
    steering = dict.fromkeys(("json.py", "os.py", "itertools.py", "importlib.py", "encodings.py"), "raise SystemExit(9)\n")
    forged = {**task.initial_state["files"], path: "import os\nos.write(1, b'ready\\n')\nos._exit(0)\n"}
    open_task = replace(task, goal={**task.goal, "protected": []})
    for files in ({}, steering, {**task.initial_state["files"], **steering}, forged):
        state = {"files": files, "findings": [], "submitted": True}
        found = make_verifier("patch_tests").verify_episode(open_task, episode_from([], 0, state))
        assert found.total == 0.0
    held, _ = make_verifier("patch_tests")._held(steering, task.goal["checks"])
    assert not any(held)
    assert passed_tests(make_sandbox(SandboxConfig()), steering, {"test_a.py": "1 / 0"}, ["."])[0] is not None


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"a.py": 5}},
        {"files": {"../x": ""}},
        {"files": {"": ""}},
        {"files": {"a.py": "\ud800"}},
        {"files": {"a/../b.py": ""}},
        {"findings": [5]},
        {"findings": {}},
        {"submitted": "no"},
    ],
)
def test_a_state_that_is_none_is_refused(task, change):
    environment = make_environment("patch")
    environment.reset(task)
    state = environment.snapshot()
    with pytest.raises(DataError):
        environment.restore(task, {**state, **change})
    environment.restore(task, state)
    assert environment.snapshot() == state


@needs_box
def test_a_right_diff_and_a_new_test_of_ones_own_are_no_cheating(task):
    solution = make_environment("patch").solution(task)
    own = ("edit", {"path": "tests/test_mine.py", "old": "", "new": "import unittest\n"})
    assert verdict(task, [*solution[:-1], own, solution[-1]]).total == 1.0
