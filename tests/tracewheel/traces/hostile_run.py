"""Ingests and curates logs under an audit hook, in a process of its own: `python hostile_run.py GOOD HOSTILE OUT`.

A first run on the good logs imports what any run imports. In the second, whatever the logs say must import no other module,
start no process, open no connection, and write no file outside `OUT`. Prints what it did, and what was kept.
"""

import json
import os
import sys
import tempfile
import threading
from pathlib import Path

import pandas

from tracewheel.config import IngestConfig, RetrainConfig
from tracewheel.core.errors import DataError, TracewheelError
from tracewheel.core.kind_table import give
from tracewheel.curation.curate import HowTo, curate
from tracewheel.environments import make_environment
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.traces.ingest import ingest

# The worlds of a log; those with boxes of their own are played by nobody here.
WORLDS = ("workspace", "order_desk", "refund_desk")
MCP = json.dumps({"kind": "mcp", "args": {"command": ["true"]}})  # the profile's server, which is started for no task here
MODES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
TEMPORARY = tempfile.gettempdir()  # asked once: the question opens a file
done: list[str] = []
ends: dict[str, str] = {}
watched = threading.Event()


def watch(event: str, arguments: tuple[object, ...]) -> None:
    if not watched.is_set():
        return
    if event == "import" and str(arguments[0]).partition(".")[0] not in known:
        done.append(f"import {arguments[0]}")
    elif event in ("subprocess.Popen", "os.exec", "os.system", "os.posix_spawn", "socket.connect", "pty.spawn"):
        done.append(f"{event} {arguments!r:.200}")
    elif event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int) and arguments[2] & MODES:
        allowed = os.path.realpath(arguments[0]).startswith((str(out), "/dev/null", TEMPORARY))
        done.extend([] if allowed else [f"open {arguments[0]}"])


def make_tasks(ingested: Path) -> None:
    """Make the verifier of each task that the world `mcp` makes of a log, as curation does."""
    give(MCP)  # as the profile does
    world = make_environment(MCP)
    for text in pandas.read_parquet(ingested / "traces.parquet")["environment"].unique():
        logged = json.loads(text) or {}
        if logged.get("kind") == "mcp":
            try:
                make_verifier(world.task_from_log("Do it.", logged).verifier)
            except TracewheelError as error:
                ends["mcp"] = str(error)


def run(paths: list[Path], folder: Path, worlds: tuple[str, ...] = WORLDS) -> list[object]:
    """The report of the ingest, and what each curation ended with."""
    ingested = folder / "ingested"
    ingested.mkdir(parents=True)
    report = ingest(IngestConfig(paths=tuple(map(str, paths))), ingested)
    for kind in worlds:
        curated = folder / kind
        curated.mkdir()
        try:
            curate(RetrainConfig(name="fuzz", environment={"kind": kind}), ingested, curated, how=HowTo(processes=1))
            ends[kind] = "curated"
        except DataError as error:  # a world of which the logs have too few tasks
            ends[kind] = f"DataError: {error}"
    make_tasks(ingested)
    return [report["read"], report["kept"], report["quarantined"], dict(ends)]


if __name__ == "__main__":
    good, hostile, out = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]).resolve()
    clean = run([good], out / "clean", WORLDS[:1])
    # The first two are what redaction imports at the first number that may be a bank account or a phone.
    known = (
        {"stdnum", "phonenumbers"}
        | {name.partition(".")[0] for name in sys.modules}
        | set(sys.stdlib_module_names) - {"pty", "pickle", "ctypes"}
    )
    sys.addaudithook(watch)
    watched.set()
    try:
        found = run([good, hostile], out / "hostile")
    finally:
        watched.clear()
    print(json.dumps({"clean": clean, "hostile": found, "done": done}))
