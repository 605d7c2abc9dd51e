"""The code environment: tools, states, tasks, and what of a goal enters a box."""

import random
import shutil

import pytest

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.types import canonical_json
from tracewheel.environments import make_environment
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_worlds.code.claims import ask
from tracewheel_worlds.code.tasks import make_task
from tracewheel_worlds.sandbox import BoxRun, Limits

boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


def opened(family="function", **args):
    code = make_environment("code") if not args else make_environment(canonical_json({"kind": "code", "args": args}))
    code.reset(make_task(family, 1, random.Random(1)))
    return code


def wrote(code, path, content):
    return code.step("write_file", {"path": path, "content": content})


def ran(code, path, stdin=""):
    return code.step("run", {"path": path, "stdin": stdin})


@boxed
def test_a_run_reads_and_leaves_files():
    code = opened()
    wrote(code, "lib/part.py", "WORD = 'found'\n")
    wrote(code, "main.py", "import sys; from lib.part import WORD\nopen('out.bin', 'wb').write(b'\\xff')\nprint(WORD, input())")
    assert ran(code, "main.py", "it").text == "found it"
    files = code.snapshot()["files"]
    assert files["out.bin"] == {"base64": "/w=="} and set(files) == {"lib/part.py", "main.py", "out.bin"}
    wrote(code, "main.py", "open('lib/part.py', 'a').write('1/0'); import lib.part")
    failed = ran(code, "main.py")
    assert failed.error and "ZeroDivisionError" in failed.text and failed.text.endswith("exit status 1")
    assert code.step("read_file", {"path": "lib/part.py"}).text == "WORD = 'found'\n1/0"


@boxed
def test_a_run_that_is_killed_or_leaves_too_much_changes_nothing():
    hasty = opened(sandbox={"limits": {"seconds": 1.0}})
    wrote(hasty, "a.py", "open('b', 'w').write('x')\nwhile True: pass")
    assert ran(hasty, "a.py").text == "killed (timeout); the files are as before"
    code = opened(state_bytes=1000, state_files=3)
    code.restore(None, hasty.snapshot())
    assert set(code.snapshot()["files"]) == {"a.py"}
    wrote(code, "a.py", "open('b', 'w').write('x' * 2000)")
    assert "more than 1000 bytes" in ran(code, "a.py").text
    wrote(code, "a.py", "[open(str(n), 'w') for n in range(5)]")
    assert "more than 3 files" in ran(code, "a.py").text
    wrote(code, "a.py", "import os; os.symlink('/etc/passwd', 'link')")
    assert ran(code, "a.py").text == "no output"
    assert set(code.snapshot()["files"]) == {"a.py"} and code.snapshot()["findings"] == ["timeout", "link"]


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [
        ("write", {}, "no tool named write"),
        ("write_file", {"path": "a"}, "arguments must be path, content, each a text"),
        ("write_file", {"path": "a", "content": 1}, "arguments must be path, content, each a text"),
        ("write_file", {"path": "../a", "content": ""}, "'../a' is no plain path inside the box"),
        ("write_file", {"path": "/etc/a", "content": ""}, "'/etc/a' is no plain path inside the box"),
        ("write_file", {"path": "a\n", "content": ""}, "a path is a text of 1 to 200 printable characters"),
        ("write_file", {"path": "d/f/g", "content": ""}, "d/f/g: a file and a folder cannot have one path"),
        ("write_file", {"path": "d", "content": ""}, "d: a file and a folder cannot have one path"),
        ("write_file", {"path": "a", "content": "\ud800"}, "an argument has a zero byte or half of a surrogate pair"),
        ("write_file", {"path": "a", "content": "x" * 300_000}, "files of more than 262144 bytes"),
        ("read_file", {"path": "a"}, "no file a; there are: d/f"),
        ("run", {"path": "a", "stdin": ""}, "no file a; there are: d/f"),
    ],
)
def test_mistakes_are_observations(tool, args, said):
    code = opened()
    wrote(code, "d/f", "")
    before = code.snapshot()
    observation = code.step(tool, args)
    assert (observation.text, observation.error) == (f"error: {said}", True) and code.snapshot() == before


def test_no_prompt_observation_or_snapshot_has_the_goal():
    code = make_environment("code")
    for task in code.make_tasks(48, 3):
        code.reset(task)
        seen = task.prompt + canonical_json(code.snapshot()) + code.system_prompt
        lines = [line for line in task.goal["solution"].splitlines() if len(line) > 40]
        assert not any(line in seen for line in lines) or task.family == "debug"
        hidden = [case["expected"] for case in task.goal["cases"][task.goal["shown"] :] if "expected" in case]
        assert not any(str(value) in seen for value in hidden if len(str(value)) > 25)


def test_no_expected_value_enters_the_box():
    given = []

    class Watching:
        kind = "watching"

        def run(self, command, files=None, stdin=b"", limits=None, keep=False, env=None):
            given.append(
                canonical_json([*command, {path: file.content.decode() for path, file in files.items()}]).encode() + stdin
            )
            return BoxRun(0, b'{"ready": true}\n', b"")

    secret = "a-value-that-only-the-goal-has"
    verifier = make_verifier("unit_tests")
    verifier._sandbox = Watching()
    for family in ("function", "cli", "etl"):
        task = make_task(family, 2, random.Random(2))
        for case in task.goal["cases"]:
            if family == "function":
                case["expected"] = secret
            elif family == "cli":
                case["stdout"] = secret
            else:
                next(iter(case["outputs"].values()))["expected"] = [[secret]]
        state = {"files": {task.goal["file"]: "pass"}, "findings": []}
        verdict = verifier.judge(task, state)
        assert verdict.total == 0.0 and verdict.parts["flagged"] == 1.0 and "ended early" in verdict.explanation
    assert len(given) == 3 and not any(secret.encode() in text for text in given)


def test_a_box_that_does_not_start_leaves_the_episode_unscored():
    class Broken:
        kind = "broken"

        def run(self, *given, **more):
            return BoxRun(1, b"", b"bwrap: no space left")

    with pytest.raises(InfrastructureError, match="no space left"):
        ask(Broken(), Limits(), {}, "function", "a.py", "f", [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cases": []}, "at least one case"),
        ({"shown": 99}, "at least one case"),
        ({"form": "notebook"}, "'function' or 'program'"),
        ({"file": "../x.py"}, "no plain path"),
        ({"types": "loose"}, "'strict' or 'equal'"),
        ({"shown": 0, "cases": [{"args": [{"module": "os"}], "expected": 1}]}, r"cases\[0\]"),
        ({"shown": 0, "cases": [{"args": [], "expected": 1, "view": "eval"}]}, "no view 'eval'"),
    ],
)
def test_a_goal_of_a_log_is_checked(change, message):
    code = make_environment("code")
    task = make_task("function", 1, random.Random(5))
    logged = {"initial_state": task.initial_state, "goal": task.goal}
    assert code.task_from_log(task.prompt, logged) == task
    with pytest.raises(DataError, match=message):
        code.task_from_log(task.prompt, {**logged, "goal": {**task.goal, **change}})


def test_tasks_of_an_environment_with_arguments_name_them():
    limits = {"sandbox": {"limits": {"seconds": 3.0}}}
    task = make_environment(canonical_json({"kind": "code", "args": limits})).make_tasks(1, 0)[0]
    assert make_environment(task.environment)._args.sandbox.limits.seconds == 3.0
    assert make_verifier(task.verifier)._args.sandbox.limits.seconds == 3.0
