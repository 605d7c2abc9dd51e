"""`tracewheel gateway`: a profile's policy behind the vendors' own APIs."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from contextlib import ExitStack
from typing import Any

from tracewheel.core import stopping
from tracewheel.core.errors import InputError

LOCAL_HOST, PORT = "127.0.0.1", 8700
SHORTEST_KEY = 16
MOST_TURNS = 1_000_000  # conversations have no limit of turns; the door forgets them when they grow too long
LOOK_SECONDS = 0.5


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--adapter", metavar="DIR", help="an adapter's folder, or a state's (default: the base alone)")
    parser.add_argument("--host", default=LOCAL_HOST, metavar="NAME", help=f"address to listen on (default {LOCAL_HOST})")
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default {PORT}; 0 takes a free one")
    parser.add_argument("--key", metavar="TEXT", help="the key that programs show (default: a new one at each start)")


def gateway(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel gateway`: serves until it is stopped.

    Raises:
        AdapterMismatchError: the adapter was trained for another base.
        InputError: the port is taken, or the key is too short.
        InfrastructureError: the engine has failed.
    """
    if options.key is not None and (len(options.key) < SHORTEST_KEY or not options.key.isascii()):
        raise InputError(f"--key: at least {SHORTEST_KEY} ASCII characters; without the option one is made")
    from flows.setup import prepare_environment, resolve_config

    key = options.key or f"tw-{secrets.token_urlsafe(24)}"
    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require("policy.base")
    prepare_environment(None, debug=options.debug)
    from tracewheel.config import EngineSections
    from tracewheel.engines.making import make_engine
    from tracewheel.gateway.engine_thread import EngineThread
    from tracewheel.gateway.gateway import Gateway
    from tracewheel.gateway.server import GatewayServer
    from tracewheel.gateway.standing import CONVERSATIONS, StandingDoor
    from tracewheel.policy.adapters import PolicyRef, policy_of

    base = config.policy.base
    policy = policy_of(options.adapter, base) if options.adapter else PolicyRef(base)
    caps = config.rollout.model_copy(update={"max_turns": MOST_TURNS, "harness": None})
    with ExitStack() as made:
        engine, renderer = make_engine(EngineSections.of(config), policy, greedy=False, slots=CONVERSATIONS)
        thread = EngineThread(engine, getattr(engine, "most_sessions", None))
        made.callback(thread.close)
        door = StandingDoor(Gateway(thread, renderer, caps), key, config.seed)
        server = made.enter_context(GatewayServer(door, options.host, options.port))
        for line in (
            f"OPENAI_BASE_URL={server.openai_url()}",
            f"ANTHROPIC_BASE_URL={server.url()}",
            f"OPENAI_API_KEY={key}",
            f"ANTHROPIC_API_KEY={key}",
        ):
            print(line, file=sys.stderr, flush=True)
        try:
            while True:
                thread.check()
                time.sleep(LOOK_SECONDS)
        except stopping.Stopped as stop:
            raise stopping.Stopped(stop.request, "the gateway has stopped") from None
