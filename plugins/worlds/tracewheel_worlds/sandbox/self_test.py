"""Whether a sandbox keeps its promises on this machine: a program in a box tries what an agent might, and says what worked."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel import InfrastructureError
from tracewheel_worlds.sandbox.base import Finding, Limits, Sandbox

PROBE = Path(__file__).with_name("probe.py")
ROOM = Limits(seconds=60, memory_mb=256, processes=32, disk_mb=8, files=256)
# What a box must not get away with, and the finding that says so.
EXCESSES: Mapping[Finding, tuple[tuple[str, ...], Limits]] = {
    "timeout": (("sleep", "20"), Limits(seconds=0.3)),
    "output": (("yes",), Limits(output_bytes=1024)),
    "memory": (("python3", "-c", "kept = b'x' * (150 << 20); import time; time.sleep(20)"), Limits(memory_mb=64)),
    "processes": (("sh", "-c", "for n in 1 2 3 4 5 6 7 8; do sleep 20 & done; wait"), Limits(processes=8)),
    "disk": (("sh", "-c", "for n in 1 2 3 4; do head -c 600000 /dev/zero > $n; done"), Limits(disk_mb=1)),
}


@dataclass(frozen=True)
class Promise:
    """What a sandbox promises, whether it holds here, and what was seen."""

    name: str
    holds: bool
    seen: str = ""


def self_test(sandbox: Sandbox) -> list[Promise]:
    """Try what a sandbox forbids, in about a second.

    Raises:
        InfrastructureError: no box could be made.
    """
    with ThreadPoolExecutor(len(EXCESSES)) as threads:
        begun = {finding: threads.submit(sandbox.run, *_excess(finding)) for finding in EXCESSES}
        promises = _tried(sandbox)
        for finding, run in begun.items():
            found = run.result().findings
            promises.append(Promise(f"limit of {finding}", finding in found, ", ".join(found) or "no finding"))
    return promises


def _excess(finding: Finding) -> tuple[tuple[str, ...], None, bytes, Limits]:
    command, limits = EXCESSES[finding]
    return command, None, b"", limits


def _tried(sandbox: Sandbox) -> list[Promise]:
    """What the probe could see and do, with a server, a file and a variable of this machine to look for."""
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder, _servers(secret) as (port, name), _variable(secret):
        os.chmod(folder, 0o755)
        file = Path(folder, "secret")
        file.write_text(secret)
        file.chmod(0o644)
        given = {
            "port": port,
            "abstract": name,
            "file": str(file),
            "secret": secret[:16],
            "rest": secret[16:],
            "pid": os.getpid(),
        }
        run = sandbox.run(["python3", "-I", "probe.py"], {"probe.py": PROBE.read_bytes()}, json.dumps(given).encode(), ROOM)
        written = file.read_text() != secret or len(os.listdir(folder)) > 1
    try:
        seen: dict[str, Any] = json.loads(run.stdout)
    except ValueError:
        raise InfrastructureError(
            f"the sandbox's self-test did not run: exit code {run.exit_code}, {run.text[-500:]!r}"
        ) from None
    return [
        Promise("no network", not seen["reached"], ", ".join(seen["reached"]) or "no server of this machine was reached"),
        Promise("no secrets", not seen["secrets"], ", ".join(seen["secrets"]) or "neither the file nor the variable was found"),
        Promise(
            "no writes outside", not (seen["written"] or written), ", ".join(seen["written"]) or "nothing could be written"
        ),
        Promise("no foreign processes", not seen["foreign"], f"{seen['processes']} processes seen"),
        Promise(
            "no rights", seen["uid"] != 0 and not int(seen["capabilities"], 16), f"user {seen['uid']}, none of root's rights"
        ),
        Promise("no new rights", seen["no_new_privileges"] == "1", "setuid programs have no effect"),
        Promise("system calls are filtered", seen["seccomp"] == "2" and seen["killed"], "unshare ends the program"),
        Promise("our own code is hidden", not seen["ours"], ", ".join(seen["ours"]) or "no package of ours was found"),
    ]


@contextlib.contextmanager
def _servers(secret: str) -> Iterator[tuple[int, str]]:
    """A server of this machine, and one with an abstract name (Linux), which no file system confines."""
    name = f"tracewheel-{secret[:16]}"
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(("127.0.0.1", 0))
        server.listen()
        abstract.bind(f"\0{name}")
        abstract.listen()
        yield server.getsockname()[1], name


_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def _variable(secret: str) -> Iterator[None]:
    with _one_at_a_time:
        os.environ["TRACEWHEEL_PROBE"] = secret
        try:
            yield
        finally:
            del os.environ["TRACEWHEEL_PROBE"]
