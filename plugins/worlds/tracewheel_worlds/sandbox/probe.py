"""A program that runs in a box and says what it could see and do there. Not imported: its text is given to the box."""

import ctypes
import glob
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any


def reached(given: dict[str, Any]) -> Iterator[str]:
    tries: dict[str, tuple[int, Any]] = {
        "a server on 127.0.0.1": (socket.AF_INET, ("127.0.0.1", given["port"])),
        "a server with an abstract name": (socket.AF_UNIX, "\0" + given["abstract"]),
    }
    for name, (family, address) in tries.items():
        with socket.socket(family) as client:
            client.settimeout(0.5)
            try:
                client.connect(address)
                yield name
            except OSError:
                pass
    for _, name in socket.if_nameindex():
        if name != "lo":
            yield f"interface {name}"


def found(given: dict[str, Any]) -> Iterator[str]:
    secret = (given["secret"] + given["rest"]).encode()
    for path in [given["file"], *glob.glob("/proc/*/environ")]:
        try:
            with open(path, "rb") as file:
                if secret in file.read():
                    yield path
        except OSError:
            pass
    for path in ("/root", "/home", "/var", "/run", "/mnt", "/media", "/srv", "/opt", "/sys", "/boot"):
        if os.path.isdir(path) and os.listdir(path):
            yield path


def written(given: dict[str, Any]) -> Iterator[str]:
    places = ["/", "/usr", "/usr/bin", "/etc", "/dev", "/proc/sys/kernel", os.path.dirname(given["file"])]
    for place in places:
        try:
            with open(os.path.join(place, "probe"), "wb"):
                yield place
        except OSError:
            pass
    for path in ("/usr/bin/env", "/etc/passwd", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern"):
        try:
            with open(path, "r+b"):
                yield path
        except OSError:
            pass


def dies_of_unshare() -> bool:
    """Whether asking for a user namespace kills a process."""
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).unshare(0x10000000)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


given = json.load(sys.stdin)
with open("/proc/self/status") as file:
    status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
processes = [name for name in os.listdir("/proc") if name.isdigit()]
names = []
for name in processes:
    try:
        with open(f"/proc/{name}/comm") as file:
            names.append(file.read().strip())
    except OSError:  # it has ended since
        pass
print(
    json.dumps(
        {
            "uid": os.getuid(),
            "capabilities": status["CapEff"].strip(),
            "no_new_privileges": status["NoNewPrivs"].strip(),
            "seccomp": status["Seccomp"].strip(),
            "killed": dies_of_unshare(),
            "reached": list(reached(given)),
            "secrets": list(found(given)),
            "written": list(written(given)),
            "processes": len(processes),
            "foreign": len(processes) > 4,
            "names": names,
            "ours": [name for name in ("tracewheel", "tasks", "flows") if importlib.util.find_spec(name)],
        }
    )
)
