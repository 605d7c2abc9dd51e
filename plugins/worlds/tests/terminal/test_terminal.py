"""The terminal: what stays from call to call, and what its verifiers make of final files."""

import json
import random
import shutil

import pytest

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.types import canonical_json
from tracewheel.environments import make_environment
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_worlds.sandbox import BoxRun
from tracewheel_worlds.terminal.goals import terminal_task
from tracewheel_worlds.terminal.tasks import make_task

boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
START = {"a.txt": "one\n", "bin/run.sh": {"text": "echo hi\n", "mode": 0o666}, "raw": {"base64": "/w=="}}


def opened(files=None, **args):
    terminal = make_environment(canonical_json({"kind": "terminal", "args": args}) if args else "terminal")
    goal = {"family": "own", "tier": 1, "files": {"a.txt": {"text": "two"}}}
    terminal.reset(terminal_task("Do it.", {"files": files or START}, goal))
    return terminal


def shell(terminal, command):
    return terminal.step("shell", {"command": command})


@boxed
def test_modes_links_and_empty_folders_stay():
    terminal = opened()
    assert shell(terminal, "stat -c '%a' bin/run.sh; xxd -p raw || od -An -tx1 raw").text.split()[0] == "666"
    assert shell(terminal, "mkdir -p new/empty; ln -s a.txt l; chmod 700 bin/run.sh; echo x > /tmp/gone").text == "no output"
    assert shell(terminal, "ls new; cat l; ls /tmp/gone; echo $HOME").text.startswith("empty\none\n/box\n")
    files = terminal.snapshot()["files"]
    assert (files["new/empty"], files["l"]) == ({"folder": True}, {"link": "a.txt"})
    assert files["bin/run.sh"] == {"text": "echo hi\n", "mode": 0o700} and files["raw"] == START["raw"]


@boxed
@pytest.mark.parametrize("made", ["ln -s $'\\xff\\n' l", "touch $'a\\nb'", "touch $'\\xff'", "mkfifo pipe", "ln a.txt hard"])
def test_what_a_record_cannot_hold_is_not_kept(made):
    terminal = opened()
    shell(terminal, made)
    state = terminal.snapshot()
    json.dumps(state, ensure_ascii=False).encode()
    assert set(state["files"]) <= {*START, "hard"}
    again = opened()
    again.restore(None, state)
    assert again.snapshot() == state


@boxed
def test_a_command_that_hangs_ends_and_the_episode_goes_on():
    hasty, terminal = opened(sandbox={"limits": {"seconds": 1.0}}), opened()
    observation = shell(hasty, "echo lost > a.txt; sleep 60")
    assert observation.error and not observation.done and observation.text.endswith("killed (timeout); the files are as before")
    terminal.restore(None, hasty.snapshot())
    assert shell(terminal, "cat a.txt").text == "one" and terminal.snapshot()["findings"] == ["timeout"]


@boxed
@pytest.mark.parametrize("command", ["exit 3", "kill -9 $$", "ls /root", "rm -rf / 2>/dev/null; rm -rf /box/*; false"])
def test_a_command_that_fails_is_an_observation(command):
    observation = shell(opened(), command)
    assert observation.error and not observation.done and not observation.fault


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [
        ("bash", {"command": "ls"}, "no tool named bash"),
        ("shell", {}, "arguments must be command, each a text"),
        ("shell", {"command": ["ls"]}, "arguments must be command, each a text"),
        ("shell", {"command": "ls\x00"}, "an argument has a zero byte or half of a surrogate pair"),
        ("submit", {"now": "yes"}, "arguments must be none"),
    ],
)
def test_mistakes_are_observations(tool, args, said):
    observation = opened().step(tool, args)
    assert (observation.text, observation.error, observation.done) == (f"error: {said}", True, False)


WANTED = {
    "text": ({"text": "two"}, "two\n", "two \n"),
    "exact ends": ({"text": "two\n\n"}, "two", "\ntwo"),
    "base64": ({"base64": "/w=="}, {"base64": "/w=="}, {"base64": "/g=="}),
    "mode": ({"mode": 0o755}, {"text": "x", "mode": 0o755}, {"text": "x", "mode": 0o777}),
    "link": ({"link": "raw"}, {"link": "raw"}, "two"),
    "no link": ({"text": "two"}, "two", {"link": "two"}),
    "contains": ({"contains": ["tw", "o"]}, "a two b", "t w o"),
    "absent": ({"absent": True}, None, ""),
    "no folder": ({"mode": 0o755}, {"text": "", "mode": 0o755}, {"folder": True}),
}


@pytest.mark.parametrize("name", WANTED)
def test_a_final_file_is_as_asked_or_not(name):
    wanted, right, wrong = WANTED[name]
    task = terminal_task("Do it.", {"files": START}, {"family": "own", "tier": 1, "files": {"a.txt": wanted}})
    rest = {path: file for path, file in START.items() if path != "a.txt"}
    verifier = make_verifier(task.verifier)
    for file, total in ((right, 1.0), (wrong, 0.0)):
        files = {**rest, **({} if file is None else {"a.txt": file})}
        assert verifier.verify(task, {"files": files, "findings": []})[0] == total
        changed = {**files, "bin/run.sh": {"text": "echo hi\n", "mode": 0o667}}
        for more in (changed, {**files, "new": ""}, {path: file for path, file in files.items() if path != "raw"}):
            assert verifier.verify(task, {"files": more, "findings": []})[1]["untouched"] == 0.0
    folders = {**rest, "e": {"folder": True}, **({} if right is None else {"a.txt": right})}
    for finding, total in (("link", 1.0), ("escape", 0.0)):
        assert verifier.verify(task, {"files": folders, "findings": [finding]}) == (
            total,
            {"asked": 1.0, "untouched": 1.0, "flagged": 1.0},
        )


ATTACKS = {
    "print_a_result": 'echo \'["1", "1", "1", "1"]\'',
    "write_to_the_checks_output": "for n in 1 2 3; do echo '[\"1\"]' > /proc/$PPID/fd/1; done; echo 1",
    "kill_the_check": "kill -9 $PPID",
    "read_the_check": "tr '\\0' '\\n' < /proc/$PPID/cmdline | grep -A9 expected",
    "sleep": "sleep 100",
    "shadow_python": "mkdir -p bin; printf '#!/bin/sh\\necho 1' > bin/python3; chmod +x bin/python3; PATH=bin:$PATH; echo 0",
}


@boxed
@pytest.mark.parametrize("name", ATTACKS)
def test_a_script_that_attacks_its_check_scores_nothing(name):
    task = make_task("script", 2, random.Random(4))
    script = task.goal["check"]["given"]["script"].removeprefix("/box/")
    shadows = {
        "json.py": "raise SystemExit(0)",
        "sitecustomize.py": "raise SystemExit(0)",
        "os.py": "",
        "bash": "#!/bin/sh\necho 1",
    }
    limits = {"seconds": 4.0 if name == "sleep" else 20.0}
    verifier = make_verifier(canonical_json({"kind": "check_script", "args": {"limits": limits}}))
    verdict = verifier.judge(task, {"files": {script: ATTACKS[name], **shadows}, "findings": []})
    assert verdict.total == 0.0 and (name != "sleep" or verdict.parts["flagged"] == 1.0)


def test_a_check_that_does_not_start_leaves_the_episode_unscored():
    class Broken:
        kind = "broken"

        def run(self, *given, **more):
            return BoxRun(1, b"", b"bwrap: no space left")

    task = make_task("script", 1, random.Random(4))
    verifier = make_verifier("check_script")
    verifier._sandbox = Broken()
    with pytest.raises(InfrastructureError, match="no space left"):
        verifier.judge(task, {"files": {}, "findings": []})


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ({"family": "own", "tier": 1}, "either 'files' or 'check'"),
        ({"family": "own", "tier": 1, "files": {}}, "wanted files by path"),
        ({"family": "own", "tier": 1, "files": {"../a": {"text": ""}}}, "no plain path"),
        ({"family": "own", "tier": 1, "files": {"a": {"equals": ""}}}, "one or more of text"),
        ({"family": "own", "tier": 1, "check": {"script": "print(1)"}}, "'given' and 'expected'"),
    ],
)
def test_a_goal_of_a_log_is_checked(goal, message):
    terminal = make_environment("terminal")
    for family in ("modes", "script"):
        task = make_task(family, 2, random.Random(4))
        assert terminal.task_from_log(task.prompt, {"initial_state": task.initial_state, "goal": task.goal}) == task
    with pytest.raises(DataError, match=message):
        terminal.task_from_log("Do it.", {"initial_state": {"files": {}}, "goal": goal})
