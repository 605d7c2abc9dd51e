"""The environment `mcp` against a server on the official library, over stdio and over HTTP."""

import gc
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from tracewheel.core.errors import DataError
from tracewheel.core.processes import free_port
from tracewheel.core.types import Task
from tracewheel.environments.base import ToolFailure
from tracewheel.environments.mcp.environment import McpEnvironment
from tracewheel.environments.mcp.session import McpArgs

SERVER = str(Path(__file__).parent / "shop_server.py")
COMMAND = (sys.executable, SERVER)


def task(**start):
    return Task("t", "mcp", "shop", 1, "Take pears.", start, {}, "", "t")


def ended(environment):
    """Wait for the server of an environment that is closed."""
    session = environment._session
    environment.close()
    assert session.ended.wait(20)


@pytest.fixture(scope="module")
def shop():
    """An environment whose state is the server's resource; a test that changes the stock resets it."""
    environment = McpEnvironment(McpArgs(command=(*COMMAND, "{folder}"), resource="shop://stock"))
    environment.reset(task(files={"start.txt": "ripe pears only"}, calls=[{"tool": "take", "arguments": {"item": "pears"}}]))
    yield environment
    ended(environment)


@pytest.fixture(scope="module")
def url():
    port = free_port()
    server = subprocess.Popen([*COMMAND, str(port)], stderr=subprocess.DEVNULL)
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/mcp"
    server.kill()
    server.wait()


def test_the_servers_tools_are_the_episodes(shop):
    tools = {tool["function"]["name"]: tool["function"] for tool in shop.tools()}
    assert set(tools) == {"take", "note", "parts", "crash", "hang"}
    assert tools["take"]["description"] == "Take some of an item."
    assert tools["take"]["parameters"]["required"] == ["item"]


def test_a_result_is_the_observation(shop):
    assert shop.step("note", {}).text == "ripe pears only"
    assert shop.step("parts", {}).text == "one\ntwo"


def test_mistakes_of_the_agent_are_observations(shop):
    for tool, arguments, said in (
        ("take", {"item": "plums"}, "only 0 plums"),
        ("take", {"count": 1}, "item"),
        ("steal", {}, "no tool named steal"),
    ):
        observation = shop.step(tool, arguments)
        assert said in observation.text
        assert (observation.error, observation.done, observation.fault) == (True, False, "")


def test_state_is_what_the_server_offers_and_the_log_of_calls(shop):
    shop.step("take", {"item": "pears"})
    state = shop.snapshot()
    assert state["calls"][-1] == {"tool": "take", "arguments": {"item": "pears"}, "text": "0 left", "error": False}
    assert state["state"] == "{'pears': 0}"  # two at the start, one of which the task's preparation took


def test_a_server_that_hangs_or_crashes_is_the_tools_fault():
    environment = McpEnvironment(McpArgs(command=COMMAND, tools=("hang", "crash"), call_seconds=3.0))
    environment.reset(task())
    session = environment._session
    assert [tool["function"]["name"] for tool in environment.tools()] == ["hang", "crash"]
    observation = environment.step("hang", {})
    assert (observation.fault, "took longer than 3 s" in observation.text) == ("tool", True)
    observation = environment.step("crash", {})
    assert (observation.fault, "out of pears" in observation.text) == ("tool", True)
    assert environment.step("crash", {}).fault == "tool"
    assert environment.snapshot() == {"calls": []}
    # An environment that nobody holds any more ends its server.
    del environment
    gc.collect()
    assert session.ended.wait(20)
    assert not os.path.exists(session._folder.name)


@pytest.mark.parametrize(
    ("command", "said"),
    [(["/no/such/program"], "No such file"), (["false"], "did not start"), (["sleep", "60"], "did not start in 0.3 s")],
)
def test_a_server_that_does_not_start_is_the_tools_fault(command, said):
    with pytest.raises(ToolFailure, match=said) as failed:
        McpEnvironment(McpArgs(command=command, start_seconds=0.3)).reset(task())
    assert failed.value.fault == "tool"


def test_a_program_that_looks_for_its_code_where_it_starts_finds_none_of_the_tasks_files(tmp_path):
    environment = McpEnvironment(McpArgs(command=(sys.executable, "-m", "planted"), start_seconds=20))
    planted = f"open({str(tmp_path / 'ran')!r}, 'w').close()"
    with pytest.raises(ToolFailure, match="planted"):
        environment.reset(task(files={"planted.py": planted, "sitecustomize.py": planted, "json.py": planted}))
    assert not (tmp_path / "ran").exists()


def test_episodes_share_a_server_at_a_url(url):
    first, second = (McpEnvironment(McpArgs(url=url, state={"tool": "take", "arguments": {"item": "pears"}})) for _ in range(2))
    first.reset(task())
    second.reset(task())
    assert first.step("take", {"item": "pears"}).text == "1 left"
    assert second.snapshot() == {"calls": [], "state": "0 left"}
    with pytest.raises(ToolFailure, match="only 0 pears"):
        first.snapshot()
    ended(first)
    ended(second)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "either 'command'"),
        ({"command": ["a"], "url": "http://b"}, "either 'command'"),
        ({"command": ["a"], "headers": {"a": "b"}}, "'headers' are for"),
        ({"command": ["a"], "state": {"tool": "t"}, "resource": "r"}, "either 'state'"),
        ({"command": ["a"], "comand": ["b"]}, "comand"),
    ],
)
def test_args_are_checked(args, said):
    with pytest.raises(ValidationError, match=said):
        McpArgs(**args)


def test_a_tasks_start_is_checked():
    environment = McpEnvironment(McpArgs(command=COMMAND))
    for start in ({"files": {"../x": ""}}, {"files": {"/etc/x": ""}}, {"files": {"x": 1}}, {"calls": [{}]}):
        with pytest.raises(DataError, match="initial_state"):
            environment.task_from_log("p", {"initial_state": start})
    first = environment.task_from_log("p", {"initial_state": {"files": {"a/b": "text"}}, "goal": {"left": 0}})
    assert first.id == environment.task_from_log("p", {"initial_state": {"files": {"a/b": "text"}}, "goal": {"left": 0}}).id
