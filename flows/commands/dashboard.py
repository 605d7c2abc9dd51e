"""`tracewheel dashboard`: the web application in which runs are reviewed."""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.command import Command
from flows.console.arguments import note
from flows.console.look import Card, number
from tracewheel.core.errors import DataError, InputError

if TYPE_CHECKING:
    from tracewheel.core.run_record import RunRecord

LOCAL_HOST, PORT, PATIENCE = "127.0.0.1", 8600, 30.0


def add_options(parser: argparse.ArgumentParser) -> None:
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
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--export", metavar="FILE", help="write a run, or a comparison of several, as one HTML file that can be mailed, and end"
    )
    ways.add_argument("--demo", action="store_true", help="show the small runs that are shipped")
    parser.add_argument("--token", metavar="TEXT", help="the token that --host asks for (default: a new one at each start)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Serve until it is interrupted, or write a page.

    Raises:
        DataError: a folder does not exist.
        InputError: the port is taken, or the token too short.
    """
    if options.export:
        return _export(options)
    if not options.demo:
        return _serve(options, [Path(name) for name in options.runs or ["runs"]])
    if options.runs:
        raise InputError("--demo shows the shipped runs: leave RUNS out")
    from tracewheel.dashboard.library import unpack_demo

    with tempfile.TemporaryDirectory(prefix="tracewheel-demo-") as folder:
        return _serve(options, [unpack_demo(Path(folder))])


def _export(options: argparse.Namespace) -> dict[str, Any]:
    """Write the named runs as one file."""
    from tracewheel.core.run_record import run_named
    from tracewheel.dashboard.files import export_runs

    out = Path(options.export)
    if out.is_dir():
        raise InputError(f"--export {out}: is a folder; name the file to write, as in {out / 'run.html'}")
    return export_runs([run_named(name) for name in options.runs or ["runs"]], out)


def _serve(options: argparse.Namespace, folders: list[Path]) -> dict[str, Any]:
    import socket

    import uvicorn

    from tracewheel.dashboard.app import create_app
    from tracewheel.dashboard.guard import LOCAL, Access
    from tracewheel.dashboard.library import Library
    from tracewheel.gateway.connections import timed

    library = Library(folders)
    is_local = options.host in LOCAL or options.host == "::1"
    if options.token is not None and len(options.token) < 16:
        raise InputError("--token: at least 16 characters; without the option one is made")
    token = options.token or ("" if is_local else secrets.token_urlsafe(24))
    hosts = (*LOCAL, options.host, socket.gethostname(), *options.name)
    app = create_app(library, Access(hosts=tuple(name.lower() for name in hosts), token=token), _decide)
    listener = _listen(options.host, options.port)
    port = listener.getsockname()[1]
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
    note(f"Dashboard of {', '.join(str(place.path) for place in library.places.values())}: {address}")
    quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    config = uvicorn.Config(app, http=timed(PATIENCE), ws="none", lifespan="off", **quiet)
    uvicorn.Server(config).run(sockets=[listener])
    return {"address": address}


def _decide(record: RunRecord, decision: str, by: str, note: str) -> None:
    """Decide on a promotion and carry it out, in a process of its own: MLflow is large, and nothing else here needs it.

    Raises:
        DataError: the command refused; the message is its own.
    """
    words = ["champion", "approve", str(record.path), f"--by={by}", f"--note={note}", "--json"]
    words += ["--refuse"] if decision == "refused" else []
    command = [sys.executable, "-m", "flows.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"tracewheel champion approve ended with exit code {done.returncode}"]
        raise DataError(lines[-1].removeprefix("tracewheel: error: "))


def _listen(host: str, port: int) -> Any:
    import socket

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


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """What an export wrote, or where the dashboard was."""
    if "out" not in result:
        return Card(f"The dashboard at {result['address']} has ended", next=["tracewheel dashboard"])
    rows = [("pages", ", ".join(result["pages"])), ("bytes", number(result["bytes"]))]
    return Card(f"Written to {result['out']}", rows, look_at=f"open {result['out']}", next=["tracewheel dashboard"])


COMMAND = Command(
    "dashboard", "review runs in the browser: verdicts, tasks won and lost, trajectories, lineage", add_options, run, card
)
