"""`tracewheel dashboard`: the web application in which runs are reviewed."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path
from typing import Any

LOCAL_HOST, PORT = "127.0.0.1", 8600


def add_dashboard_command(commands: Any, exit_codes: str) -> None:
    """Add the command to the command line."""
    summary = "review runs in the browser: verdicts, tasks won and lost, trajectories, lineage"
    parser = commands.add_parser("dashboard", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.dashboard:dashboard")
    parser.add_argument("runs", metavar="RUNS", nargs="*", help="work folders, or folders of runs (default: runs)")
    parser.add_argument(
        "--host",
        default=LOCAL_HOST,
        metavar="NAME",
        help=f"address to listen on (default {LOCAL_HOST}); any other asks for a token",
    )
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default {PORT}; 0 takes a free one")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="a further host name under which browsers reach it; repeatable",
    )
    parser.add_argument("--token", metavar="TEXT", help="the token that --host asks for (default: a new one at each start)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces")


def dashboard(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel dashboard`: serves until it is interrupted.

    Raises:
        DataError: a folder does not exist.
        InputError: the port is taken, or the token too short.
    """
    import socket

    import uvicorn

    from tracewheel.core.errors import InputError
    from tracewheel.dashboard.app import create_app
    from tracewheel.dashboard.guard import LOCAL, Access
    from tracewheel.dashboard.library import Library

    library = Library([Path(name) for name in options.runs or ["runs"]])
    is_local = options.host in LOCAL or options.host == "::1"
    if options.token is not None and len(options.token) < 16:
        raise InputError("--token: at least 16 characters; without the option one is made")
    token = options.token or ("" if is_local else secrets.token_urlsafe(24))
    hosts = (*LOCAL, options.host, socket.gethostname(), *options.name)
    app = create_app(library, Access(hosts=tuple(name.lower() for name in hosts), token=token))
    listener = _listen(options.host, options.port)
    port = listener.getsockname()[1]
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
    print(
        f"Dashboard of {', '.join(str(place.path) for place in library.places.values())}: {address}",
        file=sys.stderr,
        flush=True,
    )
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])
    return {"address": address}


def _listen(host: str, port: int) -> Any:
    import socket

    from tracewheel.core.errors import InputError

    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"--host {host} --port {port}: cannot listen there: {error}; give another --port, or 0 for a free one"
        ) from error
    return listener
