"""Servers that other people wrote, each in an environment of its own (`make setup-standards`)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tracewheel.core.types import Task
from tracewheel.environments.mcp.environment import McpEnvironment
from tracewheel.environments.mcp.session import McpArgs

pytestmark = pytest.mark.slow
ENVIRONMENTS = Path(os.environ.get("TRACEWHEEL_STANDARDS", Path(__file__).parents[4] / ".venv-standards"))


@pytest.fixture
def server():
    """Starts an environment with an installed server."""
    started = []

    def start(place, name, *arguments, files=None, calls=(), **args):
        program = ENVIRONMENTS / place / "bin" / name
        if not program.exists():
            pytest.skip(f"{program} does not exist; install it with `make setup-standards`")
        environment = McpEnvironment(McpArgs(command=(str(program), *arguments), **args))
        environment.reset(Task("t", "mcp", "f", 1, "p", {"files": files or {}, "calls": list(calls)}, {}, "", "t"))
        started.append(environment)
        return environment

    yield start
    for environment in started:
        session = environment._session
        environment.close()
        assert session.ended.wait(30)


def test_time(server):
    environment = server("mcp_servers", "mcp-server-time")
    asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    assert json.loads(environment.step("convert_time", asked).text)["time_difference"] == "+9.0h"
    wrong = environment.step("convert_time", asked | {"target_timezone": "Nowhere"})
    assert (wrong.error, wrong.fault, "Nowhere" in wrong.text) == (True, "", True)


def test_git_in_the_episodes_folder(server, tmp_path):
    environment = server("mcp_servers", "mcp-server-git", files={"a.txt": "one\n"})
    folder = environment._session._folder.name
    subprocess.run(["git", "init", "-q", folder], check=True)
    assert "a.txt" in environment.step("git_status", {"repo_path": "."}).text
    assert environment.step("git_add", {"repo_path": ".", "files": ["a.txt"]}).error is False
    status = environment.step("git_diff_staged", {"repo_path": "."}).text
    assert "+one" in status


def test_sqlite_of_the_older_protocol_keeps_its_state(server):
    query = {"tool": "read_query", "arguments": {"query": "select * from orders"}}
    make = {"tool": "create_table", "arguments": {"query": "create table orders (item text, n int)"}}
    environment = server("mcp_sqlite", "mcp-server-sqlite", "--db-path", "{folder}/shop.db", calls=[make], state=query)
    environment.step("write_query", {"query": "insert into orders values ('pears', 2)"})
    assert environment.step("read_query", {"query": "select nonsense"}).text.startswith("Database error")
    assert environment.snapshot()["state"] == "[{'item': 'pears', 'n': 2}]"
