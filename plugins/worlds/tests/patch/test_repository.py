"""Tasks from git repositories: a small one made here, and a public one where there is a checkout of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tracewheel.core.errors import DataError
from tracewheel.environments import make_environment
from tracewheel.environments.base import play_calls
from tracewheel.scoring.verifiers import episode_from, make_verifier
from tracewheel_worlds.patch.decoys import changed, decoys_of

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None or shutil.which("git") is None,
    reason="needs git, and bubblewrap: apt-get install bubblewrap",
)
CHECKOUTS = Path(os.environ.get("TRACEWHEEL_CHECKOUTS", "/nonexistent"))
# tomli, MIT licence: "Raise TypeError not AttributeError. Improve message (#229)".
TOMLI = "4e245a4bbbefed99e550e196095ea65c851cf31d"
PARENT = "facdab0f5aacc5eb223753c42604d5de7bdaee9d"
COMMAND = '["env", "PYTHONPATH=src", "python3", "-m", "unittest"]'

SOURCE = "def twice(x):\n    return x * 2\n\n\ndef half(x):\n    return x / 2\n"
TESTS = """import unittest

from sums import half, twice


class TestSums(unittest.TestCase):
    def test_twice(self):
        self.assertEqual(twice(3), 6)

    def test_half(self):
        self.assertEqual(half(4), 2)
        self.assertIsInstance(half(4), {kind})

    def test_text(self):
        self.assertEqual(str(twice(2)), "4")
        self.assertTrue(half(2) == 1)
"""
FORGERIES = {
    "ends with 0": "\nimport os\nos._exit(0)\n",
    "patches unittest": "\nimport unittest\nunittest.TestCase.assertEqual = lambda *given: None\n"
    "unittest.TestCase.assertIsInstance = lambda *given: None\n",
    "says all passed": "\nimport json\njson.dumps = lambda value: '{' + ', '.join('\"%s\": true' % a for a in value) + '}'",
    "runs no test": "\nimport unittest\ndef run(self, result=None):\n    result.startTest(self)\n    result.stopTest(self)\n"
    "unittest.TestCase.run = run\n",
    "equal to everything": "\nclass Same(int):\n    def __eq__(self, other):\n        return True\n"
    "def half(x):\n    return Same(2)\ndef twice(x):\n    return Same(6)\n",
}


def git(folder, *command):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *command], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "SECRET: the fix is half(x) // 2")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    repository = folder / "repository"
    repository.mkdir()
    git(repository, "init", "-q")
    base = commit(repository, sums=SOURCE, test_sums=TESTS.format(kind="float"))
    fix = commit(repository, sums=SOURCE.replace("x / 2", "x // 2"), test_sums=TESTS.format(kind="int"))
    (folder / "task.toml").write_text(f'base = "{base}"\nfix = "{fix}"\ntest_command = {COMMAND}\n')
    (folder / "issue.md").write_text("half(4) is to be a whole number.\n")
    return folder


@pytest.fixture(scope="module")
def task(folder):
    (task,) = make_environment("patch").tasks_from(folder)
    return task


def verdict(task, calls):
    environment = make_environment("patch")
    messages = play_calls(environment, task, calls)
    return make_verifier(task.verifier).verify_episode(task, episode_from(messages, 2, environment.snapshot()))


def test_the_known_fix_scores_one_and_no_change_zero(task):
    assert verdict(task, make_environment("patch").solution(task)).total == 1.0
    assert verdict(task, []).total == 0.0
    assert verdict(task, [("edit", {"path": "sums.py", "old": "x / 2", "new": "int(x / 2)"})]).total == 1.0
    assert verdict(task, [("edit", {"path": "sums.py", "old": "x / 2", "new": "str(x // 2)"})]).total == 0.0


def test_history_and_hidden_tests_are_not_in_what_the_agent_gets(task):
    text = str(task.initial_state) + task.prompt
    assert "SECRET" not in text and ", int)" not in text and ".git" not in text
    assert "x // 2" not in text


def test_no_variant_is_the_tests_as_they_are_alone(task):
    for test in task.goal["variants"][0]["expected"]:
        assert {variant["expected"][test] for variant in task.goal["variants"]} == {True, False}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_run_that_says_that_all_is_well_gets_nothing(task, forgery):
    found = verdict(task, [("edit", {"path": "sums.py", "old": SOURCE, "new": SOURCE + FORGERIES[forgery]})])
    assert found.total == 0.0


def test_a_folder_that_makes_no_task_is_refused_with_the_reason(folder, tmp_path):
    text = (folder / "task.toml").read_text()
    base = text.split('"')[1]
    for broken, reason in (
        (text.replace(base, "0" * 40), "commit 0{40} is not in repository"),
        (text.replace(base, f"{base[:7]}^"), "base: .*pattern"),
        (text.replace(base, "--output=written"), "base: .*pattern"),
        (text.replace("base", "start"), "base"),
        (text.replace(text.split('"')[3], base), "is to change a source file"),
    ):
        (tmp_path / "task.toml").write_text(broken)
        (tmp_path / "issue.md").write_text("x")
        shutil.copytree(folder / "repository", tmp_path / "repository", dirs_exist_ok=True)
        with pytest.raises(DataError, match=reason):
            make_environment("patch").tasks_from(tmp_path)


def test_a_decoy_changes_one_constant_of_an_assertion():
    source = (
        'class T:\n    def test_é(self):\n        x = "é"; assert f("é") == "b", x\n        self.assertTrue(g() is not True)\n'
    )
    found = decoys_of(source)
    assert sorted(changed(source, [decoy]).splitlines()[2 + (decoy.text == "False")].strip() for decoy in found) == [
        "self.assertTrue(g() is not False)",
        'x = "é"; assert f("é") == \'c\', x',
        'x = "é"; assert f(\'és\') == "b", x',
    ]


@pytest.mark.slow
@pytest.mark.skipif(not (CHECKOUTS / "tomli").exists(), reason="needs TRACEWHEEL_CHECKOUTS with a checkout of tomli")
def test_a_public_repository(tmp_path):
    shutil.copytree(CHECKOUTS / "tomli", tmp_path / "repository", symlinks=True)
    (tmp_path / "task.toml").write_text(f'base = "{PARENT}"\nfix = "{TOMLI}"\ntest_command = {COMMAND}\n')
    (tmp_path / "issue.md").write_text("tomli.loads(b'x') raises AttributeError. It should raise TypeError.")
    (task,) = make_environment("patch").tasks_from(tmp_path)
    environment = make_environment("patch")
    assert verdict(task, environment.solution(task)).total == 1.0
    assert verdict(task, []).total == 0.0
    source = next(edit for edit in task.goal["edits"] if edit["path"].endswith("_parser.py"))
    for forgery in FORGERIES.values():
        attack = ("edit", {"path": source["path"], "old": source["old"], "new": source["old"] + forgery})
        assert verdict(task, [attack]).total == 0.0
