"""Real environments of other projects, in a Python of their own (see the docs of this wheel).

Their examples are in their repositories, not in the packages: TRACEWHEEL_CHECKOUTS names a folder with checkouts, `OpenEnv`,
`verifiers` and `Gym`.
"""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tracewheel.core.processes import free_port
from tracewheel.scoring.verifiers.verdict import VerdictVerifier
from tracewheel_bridges.environment import OpenEnvEnvironment, VerifiersEnvironment
from tracewheel_bridges.nemo_gym import NemoGymEnvironment

pytestmark = pytest.mark.slow
ENVIRONMENTS = Path(os.environ.get("TRACEWHEEL_STANDARDS", Path(__file__).parents[3] / ".venv-standards"))
CHECKOUTS = Path(os.environ.get("TRACEWHEEL_CHECKOUTS", "/no/checkouts"))
GRID = {
    "environment": "grid_world_env.server.grid_world_environment:GridWorldEnvironment",
    "action": "grid_world_env.models:GridWorldAction",
}
WAY = ["DOWN"] * 4 + ["RIGHT"] * 4


def place(project, python):
    """The Python of a project, and where its examples are."""
    program, folder = ENVIRONMENTS / python / "bin" / "python", CHECKOUTS / project
    if not program.exists():
        pytest.skip(f"{program} does not exist; install it with `make setup-standards`")
    if not folder.exists():
        pytest.skip(f"{folder} does not exist; set TRACEWHEEL_CHECKOUTS to a folder with checkouts of OpenEnv and verifiers")
    return str(program), folder


@pytest.fixture
def grid():
    made = []

    def make(**args):
        python, folder = place("OpenEnv", "openenv")
        made.append(OpenEnvEnvironment(OpenEnvEnvironment.Args(python=python, folder=str(folder / "envs"), **args)))
        made[-1].reset(made[-1].task_from_log("Walk to the goal.", {}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def walk(environment):
    assert environment.step("act", {"action": "SIDEWAYS"}).error
    observations = [environment.step("act", {"action": direction}) for direction in WAY]
    assert [one.done for one in observations] == [False] * 7 + [True]
    assert {one.fault for one in observations} == {""}
    return environment.snapshot()


def test_openenv_in_process(grid):
    environment = grid(**GRID)
    assert "Goal is at [4, 4]" in environment.system_prompt
    schema = environment.tools()[0]["function"]["parameters"]
    assert schema["required"] == ["action"]
    state = walk(environment)
    assert state["state"] == {"step_count": 8}
    assert VerdictVerifier().verify(None, state) == (1.0, {"reward": 1.0, "sum": pytest.approx(0.3), "last": 1.0})
    # An episode that stands still at the start is worth the last step's -0.1, cut to 0.
    other = grid(**GRID)
    other.step("act", {"action": "UP"})
    assert VerdictVerifier().verify(None, other.snapshot())[0] == 0.0


@contextlib.contextmanager
def serving(command, folder, path):
    """A server of another project, which takes its port as its last argument: its URL once it answers at `path`."""
    port = free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*command, str(port)], cwd=folder, **quiet)
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + 90
    try:
        while True:
            try:
                httpx.get(f"{url}/{path}")
                break
            except httpx.ConnectError:
                assert server.poll() is None and time.monotonic() < end, "the server did not start"
                time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


def test_openenv_by_url(grid):
    python, folder = place("OpenEnv", "openenv")
    uvicorn = ["-m", "uvicorn", "grid_world_env.server.app:app", "--port"]
    with serving([python, *uvicorn], folder / "envs", "health") as url:
        assert walk(grid(url=url))["verdict"]["reward"] == 1.0


def test_openenv_with_mcp_tools(grid):
    environment = grid(environment="echo_env.server.echo_environment:EchoEnvironment")
    assert {tool["function"]["name"] for tool in environment.tools()} == {"echo_message", "echo_with_length"}
    assert environment.step("echo_message", {"message": "hi"}).text == "hi"
    assert environment.step("echo_message", {"words": "hi"}).error
    assert environment.snapshot()["verdict"]["reward"] is None  # unscored: this environment gives no reward for a call


@pytest.fixture(scope="module")
def glossary():
    python, folder = place("verifiers", "verifiers_env")
    environment = VerifiersEnvironment(
        VerifiersEnvironment.Args(
            python=python, folder=str(folder / "environments" / "glossary"), taskset="glossary.taskset:GlossaryTaskset"
        )
    )
    yield environment
    environment.close()


def test_a_verifiers_taskset_lists_its_tasks_without_their_answers(glossary):
    tasks = glossary.tasks(3)
    assert len({task.id for task in tasks}) == 3
    assert {task.verifier for task in tasks} == {"verdict"}
    assert "first computer programmer" not in str(tasks)


@pytest.mark.parametrize(("answer", "reward"), [("She was the first computer programmer.", 1.0), ("I do not know.", 0.0)])
def test_a_verifiers_task_is_scored_by_its_own_rewards(glossary, answer, reward):
    task = glossary.tasks(1)[0]
    glossary.reset(task)
    assert [tool["function"]["name"] for tool in glossary.tools()] == ["facts_lookup"]
    assert glossary.step("facts_lookup", {"name": "Ada Lovelace"}).text == "the first computer programmer"
    assert glossary.step("facts_lookup", {"nmae": "Ada"}).error
    assert glossary.reply(answer).done
    assert VerdictVerifier().verify(task, glossary.snapshot()) == (reward, {"reward": reward, "looked_up": reward})


COUNTER = """
import sys
from unittest.mock import MagicMock
import uvicorn
from nemo_gym.server_utils import ServerClient
from resources_servers.example_session_state_mgmt import app

config = app.StatefulCounterResourcesServerConfig(host="127.0.0.1", port=int(sys.argv[1]), entrypoint="", name="counter")
server = app.StatefulCounterResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
uvicorn.run(server.setup_webserver(), host="127.0.0.1", port=int(sys.argv[1]))
"""


def test_a_resources_server_of_nemo_gym():
    python, folder = place("Gym", "nemo")
    with serving([python, "-c", COUNTER], folder, "reverify_mode") as url:
        lines = (folder / "resources_servers/example_session_state_mgmt/data/example.jsonl").read_text().splitlines()
        row = json.loads(lines[0])  # the counter begins at 3 and is to be 6
        first, second = (NemoGymEnvironment(NemoGymEnvironment.Args(url=url)) for _ in range(2))
        task = first.task_of(row)
        first.reset(task)
        second.reset(task)
        assert [tool["function"]["name"] for tool in first.tools()] == ["increment_counter", "get_counter_value"]
        for count in (1, 2):
            assert first.step("increment_counter", {"count": count}).text == '{"success":true}'
        assert second.step("increment_counter", {"cuont": 1}).error
        assert first.step("get_counter_value", {}).text == '{"count":6}'
        assert second.step("get_counter_value", {}).text == '{"count":3}'  # sessions share nothing
        assert first.reply("6").done
        assert [VerdictVerifier().verify(task, one.snapshot())[0] for one in (first, second)] == [1.0, 0.0]
    assert second.step("get_counter_value", {}).fault == "environment"
