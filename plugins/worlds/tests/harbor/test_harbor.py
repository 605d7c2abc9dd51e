"""Task directories of both layouts, in real boxes."""

import os
import shutil

import pytest

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.environments import Attackable, make_environment
from tracewheel.environments.base import play_calls
from tracewheel.scoring.verifiers import episode_from, make_verifier
from tracewheel_worlds.harbor.grading import OVERWRITTEN, graded, read_reward
from tracewheel_worlds.harbor.loading import load_tasks
from tracewheel_worlds.harbor.tools import tool_files
from tracewheel_worlds.sandbox import BoxFile, SandboxConfig

needs_box = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")

DOCKERFILE = "# what a box is\nFROM ubuntu:24.04\nWORKDIR /app\n"
NEEDS_DOCKER = DOCKERFILE + "COPY data/ /app/data/\nRUN apt-get install -y gawk\n"
# Stands for Docker: it keeps the Dockerfile that it was given, and its image has files at both sides of the line.
DOCKER = """#!/bin/bash
cd "$(dirname "$0")"
case $1 in
    build) tar -xO Dockerfile > built && echo sha256:abc ;;
    image) echo '{"Env": ["PATH=/opt/bin", "NAME=two"], "WorkingDir": "/app"}' ;;
    create) echo container ;;
    export) tar -c -C image . ;;
    rm) echo "$2" > removed ;;
esac
"""
TEST_SH = """#!/bin/bash
apt-get update && apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.7/install.sh | sh
source $HOME/.local/bin/env
uvx --with pytest==8.4.1 --with pytest-json-ctrf==0.3.5 pytest --ctrf /logs/verifier/ctrf.json /tests/test_state.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
TEST = """from pathlib import Path

def test_sum():
    assert Path("/app/sum.txt").read_text().strip() == "3"
    assert not Path("/app/cheat").exists()
"""
SITE = "site=/root/.local/lib/python$(python3 -c 'import sys; print(sys.version[:4])')/site-packages; mkdir -p $site"
SOLVE = "#!/bin/bash\nset -e\nprintf '1\\n2\\n' | awk '{s += $1} END {print s}' > /app/sum.txt\n"


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def harbor_files(**other):
    files = {
        "task.toml": 'version = "1.0"\n[metadata]\ndifficulty = "hard"\ncategory = "sums"\n[verifier]\ntimeout_sec = 60.0\n',
        "instruction.md": "Write the sum of 1 and 2 to /app/sum.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "solution/solve.sh": SOLVE,
        "tests/test.sh": TEST_SH,
        "tests/test_state.py": TEST,
    }
    return {name: text for name, text in {**files, **other}.items() if text is not None}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harbor") / "sums"
    write(folder, harbor_files())
    (task,) = make_environment("harbor").tasks_from(folder)
    return task


def verdict(task, *commands):
    environment = make_environment("harbor")
    calls = [("shell", {"command": command}) for command in commands]
    messages = play_calls(environment, task, [*calls, ("submit", {})])
    return make_verifier(task.verifier).verify_episode(task, episode_from(messages, 2, environment.snapshot()))


@needs_box
def test_a_directory_is_a_task_whose_tests_decide(task):
    assert (task.family, task.tier) == ("sums", 3)
    assert verdict(task, "echo 3 > sum.txt").total == 1.0
    assert verdict(task, "echo 4 > sum.txt").total == 0.0
    assert verdict(task, "echo 3 > sum.txt; touch cheat").total == 0.0
    environment = make_environment("harbor")
    environment.reset(task)
    assert "solve" not in environment.step("shell", {"command": "ls -R /tests /solution /app; cat /app/*"}).text


@needs_box
@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
        "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh",
        "printf 'def pytest_runtest_makereport(item, call): call.excinfo = None' > /app/conftest.py",
        "mkdir -p /box/.tools/bin; printf '#!/bin/sh\\nexit 0' > /box/.tools/bin/uvx; chmod +x /box/.tools/bin/uvx",
        "printf 'import os; os._exit(0)' > /app/pytest.py; cp /app/pytest.py /app/sitecustomize.py",
        "printf '[pytest]\\naddopts = --collect-only' > /app/pytest.ini; cp /app/pytest.ini /pytest.ini",
        f"{SITE}; echo 'import os; os._exit(0)' > $site/usercustomize.py",
        f"{SITE}; echo 'import os; os._exit(0)' > $site/a.pth",
        "mkdir -p /root/.local/bin; echo 'echo 1 > /logs/verifier/reward.txt; exit 0' > /root/.local/bin/env",
        "rm -r /box/logs; ln -s app /box/logs; mkdir -p /app/verifier; echo 1 > /app/verifier/reward.txt",
        "rm -r /box/root; ln -s app /box/root",
    ],
)
def test_what_an_agent_leaves_for_the_tests_gets_nothing(task, attack):
    assert verdict(task, attack).total == 0.0


@needs_box
@pytest.mark.slow
def test_the_audit_plays_attacks_that_earn_nothing(task):
    environment = make_environment("harbor")
    assert isinstance(environment, Attackable)
    earned, flagged = {}, set()
    for name, calls in environment.attacks(task).items():
        messages = play_calls(environment, task, calls)
        found = make_verifier(task.verifier).verify_episode(task, episode_from(messages, 2, environment.snapshot()))
        earned[name] = found.total
        flagged |= {name} if found.parts["flagged"] else set()
    assert len(earned) > 12 and {name for name, total in earned.items() if total} == set()
    assert flagged == {name for name in earned if name.endswith("_and_solves")}


@needs_box
def test_an_attempt_to_leave_the_box_costs_the_reward(task):
    honest, escaped = verdict(task, "echo 3 > sum.txt"), verdict(task, "cat /etc/shadow", "echo 3 > sum.txt")
    assert (honest.total, honest.parts) == (1.0, {"reward": 1.0, "flagged": 0.0})
    assert (escaped.total, escaped.parts) == (0.0, {"reward": 1.0, "flagged": 1.0})
    assert "escape" in escaped.explanation
    linked = verdict(task, "ln -s /etc/hostname /app/link; echo 3 > sum.txt")
    assert (linked.total, linked.parts["flagged"]) == (1.0, 1.0)


def graded_by(script, files, tests=None, env=None, **goal):
    """The reward of files by a test script."""
    start = {"files": {}, "folders": ["app", "logs", "root", "solution", "tests"], "workdir": "/app", "env": env or {}}
    whole = {"tests": {"test.sh": script, **(tests or {})}, "run": "test.sh", "by_exit_code": False, "seconds": 60.0}
    return graded({"app/a.txt": "", **files}, start, {**whole, **goal}, SandboxConfig())


@needs_box
@pytest.mark.parametrize(
    "program",
    [
        "echo 1 > /logs/verifier/reward.txt; kill -9 $PPID; sleep 0.2",
        "echo 1 > /logs/verifier/reward.txt; kill -TERM $PPID; sleep 0.2",
        "echo 1 > /logs/verifier/reward.txt; kill -9 -1",
        "echo 1 > /logs/verifier/reward.txt; for each in 2 3 4; do kill -9 $each; done",
        "printf 'echo 1 > /logs/verifier/reward.txt; exit 0' > /tests/test.sh",
        "echo 1 > /logs/verifier/reward.txt; (sleep 0.1; echo 1 > /logs/verifier/reward.txt) & exit 1",
    ],
)
@pytest.mark.parametrize("by_exit_code", [False, True])
def test_a_script_that_did_not_end_by_itself_gives_no_reward(program, by_exit_code):
    script = "bash /app/run.sh\nset -e\n[ -e /app/done ]\necho 1 > /logs/verifier/reward.txt\n"
    assert graded_by(script, {"app/run.sh": program}, by_exit_code=by_exit_code)[0] == 0.0
    assert graded_by(script, {"app/run.sh": "touch done"}, by_exit_code=by_exit_code)[0] == 1.0


REWARD = "/logs/verifier/reward.txt"
WAITS = f"until grep -qs 0 {REWARD}; do :; done"
OVERWRITES = {
    "as soon as there is one": f"setsid bash -c '{WAITS}; echo 1 > {REWARD}; sleep 60' > /dev/null 2>&1 &",
    "and ends": f"(setsid bash -c '{WAITS}; echo 1 > {REWARD}' > /dev/null 2>&1 &)",
    "by another file": f"(bash -c '{WAITS}; echo 1 > /app/r; mv /app/r {REWARD}; sleep 60' > /dev/null 2>&1 &)",
    "by a descriptor": f"(exec 3<> {REWARD}; {WAITS}; echo 1 >&3; sleep 60) &",
    "again and again": f"(while :; do echo 1 > {REWARD}; done) > /dev/null 2>&1 &",
    "in the other form": f"(until grep -qs 0 {REWARD}; do :; done; mv {REWARD} /app/r; echo 1 > {REWARD}; sleep 60) &",
    "among more writes than are counted": f"(while :; do : > {REWARD}.a; : > {REWARD}.b; echo 1 > {REWARD}; done) &",
    "after the script": f"(while kill -0 $PPID; do :; done; sleep 0.05; echo 1 > {REWARD}) > /dev/null 2>&1 &",
}


@needs_box
@pytest.mark.parametrize("program", OVERWRITES.values(), ids=OVERWRITES)
def test_a_process_that_the_tested_program_leaves_does_not_write_the_reward(program):
    script = f"bash /app/run.sh\nsleep 0.1\necho 0 > {REWARD}\nsleep 0.1\n"
    assert graded_by(script, {"app/run.sh": program})[0] == 0.0


@needs_box
def test_servers_that_outlive_the_script_and_a_reward_that_begins_with_0_are_honest():
    server = "python3 -m http.server 8000 --bind 127.0.0.1 > /dev/null 2>&1 &\n"
    called = (
        "until curl=$(python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:8000\")' 2>&1); do sleep 0.1; done\n"
    )
    assert graded_by(f"{server}{called}echo 1 > {REWARD}\n", {}) == (1.0, REWARD)
    assert graded_by(f"echo 0 > {REWARD}\ntest -e /app/a.txt\necho 1 > {REWARD}\n", {}) == (1.0, REWARD)
    both = f"{server}echo '{{\"reward\": 1}}' > /logs/verifier/reward.json; echo 1 > {REWARD}\n"
    assert graded_by(both, {}) == (1.0, REWARD)


@needs_box
def test_a_reward_that_was_written_over_is_flagged(tmp_path):
    script = f"bash /app/run.sh\nsleep 0.1\n[ -e /app/done ]; echo $((! $?)) > {REWARD}\nsleep 0.1\n"
    write(tmp_path, harbor_files(**{"tests/test.sh": script, "solution/solve.sh": "echo 'touch /app/done' > /app/run.sh\n"}))
    (task,) = make_environment("harbor").tasks_from(tmp_path)
    found = verdict(task, f"cat > run.sh <<'END'\n{OVERWRITES['as soon as there is one']}\nEND")
    assert (found.total, found.parts["flagged"]) == (0.0, 1.0) and OVERWRITTEN in found.explanation


@needs_box
def test_files_of_the_agents_home_are_where_tests_look_for_them():
    test = (
        "from pathlib import Path\n\ndef test_it():\n    for home in (Path('/root'), Path.home()):\n"
        "        assert (home / 'notes' / 'a.txt').read_text() == 'kept'\n"
        "    assert Path('/root/.bashrc').read_text() == 'alias a=b'\n"
    )
    script = "source $HOME/.local/bin/env; source /root/.local/bin/env\n"
    script += "uvx pytest /tests/test_it.py && echo 1 > /logs/verifier/reward.txt"
    files = {"root/notes/a.txt": "kept", "root/.bashrc": "alias a=b"}
    assert graded_by(script, files, {"test_it.py": test}) == (1.0, "/logs/verifier/reward.txt")


@needs_box
@pytest.mark.parametrize("run", ["uvx pytest", "python3 -m pytest", "uv run pytest", "pytest"])
def test_an_image_that_has_the_agents_folder_on_pythons_path_is_no_way_in(run):
    """Tests may import what the agent wrote; nothing of it is loaded before."""
    test = "def test_it():\n    import own\n    import json\n    assert own.VALUE == 3 and json.dumps(1) == '1'\n"
    script = f"{run} /tests/test_it.py && echo 1 > /logs/verifier/reward.txt"
    env = {"PYTHONPATH": "/app", "BASH_ENV": "/app/env.sh", "PYTEST_ADDOPTS": "-c /app/pytest.ini"}
    exits = "import os; os._exit(0)"
    hostile = {f"app/{name}.py": exits for name in ("sitecustomize", "usercustomize", "json", "pytest", "plugin", "conftest")}
    hostile["app/x-1.dist-info/entry_points.txt"] = "[pytest11]\nx = plugin\n"
    hostile["app/x-1.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: x\nVersion: 1\n"
    hostile["app/env.sh"] = "echo 1 > /logs/verifier/reward.txt; exit 0"
    hostile["app/pytest.ini"] = "[pytest]\naddopts = --collect-only\n"
    tests = {"test_it.py": test}
    assert graded_by(script, {**hostile, "app/own.py": "VALUE = 4"}, tests, env)[0] == 0.0
    assert graded_by(script, {**hostile, "app/own.py": "VALUE = 3"}, tests, env)[0] == 1.0


@needs_box
def test_settings_of_the_tests_folder_count():
    test = "def check_it():\n    assert False\n"
    tests = {"test_it.py": test, "pytest.ini": "[pytest]\npython_functions = check_*\n"}
    script = "pytest /tests; echo $(( $? == 1 )) > /logs/verifier/reward.txt"
    assert graded_by(script, {}, tests)[0] == 1.0


@needs_box
@pytest.mark.parametrize(
    "broken", [{".tools/tools.py": b"raise SystemExit(1)"}, {".tools/bin/python3": b"#!/bin/sh\nexit 3\n"}]
)
def test_a_box_that_does_not_come_as_far_as_the_tests_leaves_the_episode_unscored(monkeypatch, broken):
    tools = {**tool_files(), **{path: BoxFile(text, 0o755) for path, text in broken.items()}}
    monkeypatch.setattr("tracewheel_worlds.harbor.grading.tool_files", lambda: tools)
    with pytest.raises(InfrastructureError, match="the box of the tests did not start"):
        graded_by("echo 1 > /logs/verifier/reward.txt", {})


@needs_box
def test_docker_builds_an_image_whose_files_a_box_begins_with(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    write(tmp_path, {"docker": DOCKER, "image/app/data/a.txt": "kept", "image/etc/passwd": "x", "image/srv/b": "1"})
    (tmp_path / "docker").chmod(0o755)
    solve = "[ $NAME = two ] && [ $(cat data/a.txt) = kept ] && [ $(cat /srv/b) = 1 ] && echo 3 > sum.txt"
    write(tmp_path / "t", harbor_files(**{"environment/Dockerfile": NEEDS_DOCKER, "solution/solve.sh": solve}))
    (task,) = make_environment("harbor").tasks_from(tmp_path / "t")
    assert task.initial_state["files"] == {"app/data/a.txt": "kept", "srv/b": "1"}
    assert (task.initial_state["env"], task.initial_state["workdir"]) == ({"NAME": "two"}, "/app")
    assert (tmp_path / "built").read_text() == NEEDS_DOCKER and (tmp_path / "removed").read_text() == "container\n"
    (tmp_path / "docker").write_text("#!/bin/sh\necho no daemon >&2; exit 1\n")
    with pytest.raises(DataError, match=r"t/environment/Dockerfile: docker build failed: no daemon"):
        make_environment("harbor").tasks_from(tmp_path / "t")


@needs_box
def test_the_older_layout_and_refusals_with_their_reasons(tmp_path, monkeypatch):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "docker" else which(name))
    old = {
        "task.yaml": "instruction: |-\n  Say hello in /app/hello.txt.\ndifficulty: easy\n",
        "Dockerfile": "FROM ghcr.io/laude-institute/t-bench/python-3-13:20250620\nWORKDIR /app\n",
        "solution.sh": "echo hello > hello.txt\n",
        "run-tests.sh": "uv init\nuv add pytest==8.4.1\nuv run pytest $TEST_DIR/test_outputs.py -rA\n",
        "tests/test_outputs.py": "def test_it():\n    assert open('/app/hello.txt').read() == 'hello\\n'\n",
    }
    write(tmp_path / "old", old)
    refused = {
        "unsolved": ({"solution/solve.sh": "true\n"}, "its own solution is worth 0"),
        "trivial": ({"tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n"}, "doing nothing is worth 1"),
        "silent": ({"tests/test.sh": "true\n"}, "neither /logs/verifier/reward.txt nor reward.json"),
        "base": (
            {"environment/Dockerfile": "FROM postgres:17\n"},
            "base/environment/Dockerfile needs an image (FROM postgres:17",
        ),
        "steps": ({"environment/Dockerfile": NEEDS_DOCKER}, "install Docker, or write a Dockerfile of FROM"),
        "none": ({"solution/solve.sh": None}, "no solution/solve.sh"),
    }
    for name, (change, _) in refused.items():
        write(tmp_path / name, harbor_files(**change))
    loaded = load_tasks(tmp_path, SandboxConfig())
    assert [task.prompt for task in loaded.tasks] == ["Say hello in /app/hello.txt."]
    assert loaded.refused.keys() == refused.keys()
    assert [name for name, (_, reason) in refused.items() if reason not in loaded.refused[name]] == []
    with pytest.raises(DataError, match="no task directory"):
        load_tasks(tmp_path / "old" / "tests", SandboxConfig())


@pytest.mark.parametrize(
    ("files", "reward"),
    [
        ({"txt": "1"}, 1.0), ({"txt": " 0.25\n"}, 0.25), ({"txt": "1.5"}, 0.0), ({"txt": "nan"}, 0.0), ({"txt": "True"}, 0.0),
        ({"txt": ""}, 0.0), ({"json": '{"reward": 0.5, "other": 1}'}, 0.5), ({"json": '{"score": 1}'}, 1.0),
        ({"json": '{"reward": true}'}, 0.0), ({"json": '{"a": 1, "b": 1}'}, 0.0), ({"json": "NaN"}, 0.0), ({}, 0.0),
    ],
)  # fmt: skip
def test_a_reward_is_a_number_from_0_to_1(files, reward):
    found, why = read_reward({f"logs/verifier/reward.{ending}": BoxFile(text.encode()) for ending, text in files.items()})
    assert found == reward and why
