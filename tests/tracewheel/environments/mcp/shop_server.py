"""A small MCP server on the official library: `python shop_server.py` speaks over stdio, with a port over HTTP.

An argument that is no port is the episode's folder.
"""

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("shop")
stock = {"pears": 2}
note_file = Path(sys.argv[-1], "start.txt")
seen = note_file.read_text() if note_file.is_file() else ""


@server.tool()
def take(item: str, count: int = 1) -> str:
    """Take some of an item."""
    if stock.get(item, 0) < count:
        raise ToolError(f"only {stock.get(item, 0)} {item}")
    stock[item] -= count
    return f"{stock[item]} left"


@server.tool()
def note() -> str:
    """What the file of the task says."""
    return seen


@server.tool()
def parts() -> list[str]:
    """Several parts."""
    return ["one", "two"]


@server.tool()
def crash() -> str:
    """End the process."""
    print("out of pears", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def hang() -> str:
    """Never answer in time."""
    time.sleep(60)
    return ""


@server.resource("shop://stock")
def stock_now() -> str:
    return str(stock)


if __name__ == "__main__":
    if sys.argv[-1].isdigit():
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
