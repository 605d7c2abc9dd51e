"""Task directories of both layouts, in real boxes."""

import shutil

import pytest

from tracewheel.core.errors import DataError
from tracewheel.environments import make_environment
from tracewheel.environments.episode import play_calls
from tracewheel.environments.harbor.grading import read_reward
from tracewheel.environments.harbor.loading import load_tasks
from tracewheel.sandbox import BoxFile, SandboxConfig
from tracewheel.scoring.verifiers import episode_from, make_verifier

needs_box = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")

DOCKERFILE = """FROM ubuntu:24.04
WORKDIR /app
ENV NAME="two"
COPY data/ /app/data/
RUN printf "1\\n2\\n" > /app/numbers.txt && \\
    mkdir -p /srv/x
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
    assert Path("/app/data/a.txt").read_text() == "kept"
"""
SOLVE = "#!/bin/bash\nset -e\n[ $NAME = two ]\nawk '{s += $1} END {print s}' numbers.txt > /app/sum.txt\n"


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def harbor_files(**other):
    files = {
        "task.toml": 'version = "1.0"\n[metadata]\ndifficulty = "hard"\ncategory = "sums"\n[verifier]\ntimeout_sec = 60.0\n',
        "instruction.md": "Write the sum of the numbers in /app/numbers.txt to /app/sum.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/data/a.txt": "kept",
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
    assert verdict(task, "echo 3 > sum.txt; rm -r data").total == 0.0
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
    ],
)
def test_what_an_agent_leaves_for_the_tests_gets_nothing(task, attack):
    assert verdict(task, attack).total == 0.0


@needs_box
def test_the_older_layout_and_refusals_with_their_reasons(tmp_path):
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
        "image": ({"environment/Dockerfile": "FROM postgres:17\n"}, "it needs the image postgres:17"),
        "network": ({"environment/Dockerfile": "FROM ubuntu:24.04\nRUN pip install torch\n"}, "torch is not in this sandbox"),
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
