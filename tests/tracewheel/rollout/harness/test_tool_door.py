"""Environments beside programs, over HTTP and to the official client of the Model Context Protocol."""

import asyncio
from types import SimpleNamespace

import httpx
import pytest

from tracewheel.gateway.server import GatewayServer
from tracewheel.rollout.episode import EpisodeLimits, Stop
from tracewheel.rollout.harness.tool_door import ToolDoor
from tracewheel.rollout.harness.worlds import LiveWorld, WorldThreads

KEY = "tw-0-secret"


@pytest.fixture
def beside(tasks):
    """The first task's environment, served as that of episode 0: its URL, its world, and how to ask its loop."""
    door = ToolDoor()
    nobody = SimpleNamespace(admits=lambda key, episode: False)
    with GatewayServer(nobody, routes=door.routes()) as server:
        threads = WorldThreads(1, server.loop)
        ended = []
        world = LiveWorld(tasks[0], EpisodeLimits(5.0), threads, lambda: 1, lambda: ended.append(True))
        ask = lambda work: asyncio.run_coroutine_threadsafe(work, server.loop).result(10)  # noqa: E731
        ask(world.open())
        door.add("0", KEY, world)
        yield SimpleNamespace(url=server.url("0"), world=world, ask=ask, ended=ended, door=door)
        server.loop.call_soon_threadsafe(threads.close)


@pytest.fixture
def client(beside):
    with httpx.Client(base_url=beside.url, headers={"Authorization": f"Bearer {KEY}"}) as made:
        yield made


def test_tools_and_calls_over_http(client, beside):
    tools = client.get("/tools").json()
    assert [tool["function"]["name"] for tool in tools][-1] == "finish"
    told = client.post("/call/list_files", json={"path": "/nowhere"})
    assert (told.status_code, told.json()["error"], told.json()["done"]) == (200, True, False)
    assert client.post("/call/no_such_tool").json()["error"]
    assert client.post("/call/finish").json() == {"text": "done", "error": False, "done": True}
    assert beside.ended == [True]
    assert client.post("/call/finish").status_code == 409
    ending = beside.ask(beside.world.end(Stop("harness_failed")))
    assert (ending.stop.reason, ending.final_state["finished"]) == ("finished", True)


@pytest.mark.parametrize(
    ("headers", "path", "body", "status"),
    [
        ({}, "/call/finish", b"{}", 401),
        ({"Authorization": "Bearer tw-1-others"}, "/call/finish", b"{}", 401),
        ({"x-api-key": KEY}, "/call/finish", b"[1]", 400),
        ({"x-api-key": KEY}, "/call/finish", b"\xff{", 400),
        ({"x-api-key": KEY}, "/call/finish", b"[" * 100_000, 400),
        ({"x-api-key": KEY}, "/reply", b'{"text": 1}', 400),
        ({"x-api-key": KEY}, "/call/write_file", b" " * (17 << 20), 413),
        ({}, "/tools", None, 401),
        ({}, "/mcp", b"{}", 401),
    ],
)
def test_what_the_door_refuses(beside, headers, path, body, status):
    answer = httpx.request("GET" if body is None else "POST", beside.url + path, headers=headers, content=body)
    assert answer.status_code == status and answer.json()["error"] is True
    assert not beside.world.stop, "nothing was carried out"


def test_an_episode_that_is_taken_away_is_served_no_more(client, beside):
    beside.door.remove("0")
    assert client.get("/tools").status_code == 401


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_lists_and_calls_tools(beside, mode):
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def talk():
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {KEY}"}) as http,
            Client(streamable_http_client(f"{beside.url}/mcp", http_client=http), mode=mode) as client,
        ):
            tools = (await client.list_tools()).tools
            calls = [("list_files", {"path": "/nowhere"}), ("no_such_tool", {}), ("finish", {}), ("finish", {})]
            return tools, [await client.call_tool(*call) for call in calls]

    tools, said = asyncio.run(talk())
    assert [tool.name for tool in tools] == ["list_files", "read_file", "move_file", "write_file", "finish"]
    assert tools[0].input_schema["required"] == ["path"] and tools[0].description
    assert [one.is_error for one in said] == [True, True, False, True]
    assert [one.content[0].text for one in said[2:]] == ["done", "the episode has ended"]
    assert beside.ended == [True]


def test_messages_that_the_protocol_forbids_are_refused(client):
    for body, code in [
        (b"no json", -32700),
        (b'{"id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 3}}', -32602),
    ]:
        assert client.post("/mcp", content=body).json()["error"]["code"] == code
    assert client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert client.get("/mcp").status_code == 405
