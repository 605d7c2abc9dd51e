"""Serves the door over HTTP, in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Sequence

import uvicorn
from starlette.routing import BaseRoute

from tracewheel.core.errors import InfrastructureError, InputError
from tracewheel.gateway.app import create_app
from tracewheel.gateway.asking import Limits
from tracewheel.gateway.connections import timed
from tracewheel.gateway.exchange import Door

START, STOP = 10.0, 5.0  # seconds
TURN = 0.0005  # seconds that a thread beside the loop runs while the loop waits; Python's own are ten times as many
IDLE = 75  # seconds that a connection stays open between two turns, while the program's tools run


class GatewayServer:
    """The door on a port. Use it as a context manager:

        with GatewayServer(door) as server:
            client = OpenAI(base_url=server.openai_url("episode-1"), api_key=key)

    Args:
        door: Who answers. Its coroutines run in the server's loop.
        host: Where to listen.
        port: 0 for any free one.
        limits: Of requests and streams.
        routes: More paths, which go before the door's.

    Attributes:
        loop: Where the door's coroutines run, once it serves.

    Raises:
        InputError: the port is taken or not allowed.
    """

    def __init__(
        self, door: Door, host: str = "127.0.0.1", port: int = 0, limits: Limits | None = None, routes: Sequence[BaseRoute] = ()
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=1024)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot listen on {host}:{port}: {error}") from error
        # asyncio does it only for sockets that name their protocol: an answer's body would wait 40 ms behind its head.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        limits = limits or Limits()
        config = uvicorn.Config(
            create_app(door, limits, routes),
            http=timed(limits.whole),
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def __enter__(self) -> GatewayServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> GatewayServer:
        """Serve.

        Raises:
            InfrastructureError: the server does not start.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), TURN))
        self._thread.start()
        end = time.monotonic() + START
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise InfrastructureError(f"the gateway does not start on {self.host}:{self.port}")
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        """Stop serving; requests in progress are cancelled after a second."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP)
        self._socket.close()

    def openai_url(self, episode: str | None = None) -> str:
        """The base URL for OpenAI's clients."""
        return f"{self.url(episode)}/v1"

    def url(self, episode: str | None = None) -> str:
        """The base URL for Anthropic's clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}" + ("" if episode is None else f"/e/{episode}")

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[self._socket])
