"""Runs in a box beside an agent's code: calls its function, or starts its program, and writes what came of it.

The parent passes this file's text to `python3 -I -c`; it needs nothing but the standard library. What it knows, an agent's code
in the same process can know and change: so it is given inputs alone, never an expected value, and what it writes are claims,
which the parent compares with values that no box has seen. Each line is a JSON object: `{"ready": true}` before any of the
agent's code is loaded, `{"case": number, ...}` for each case, and `{"end": count}`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import os
import sys
from collections import Counter, OrderedDict, defaultdict, deque

TYPE_CHECKING = False  # importing `typing` for it would cost each box its time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEEPEST = 60
MOST_NODES = 200_000
LONGEST_OUTPUT = 1 << 20
BOX = os.getcwd()  # `/box`, or the folder of a run without isolation


class Unfit(Exception):
    """A value that is none of the plain types; its text is the claim."""


def encode(value: Any, depth: int = 0, room: list[int] | None = None) -> Any:
    """A value of Python's plain types as JSON that keeps its type.

    Raises:
        Unfit: it is of another type, nested too deep or too large.
    """
    room = [MOST_NODES] if room is None else room
    room[0] -= 1
    if depth > DEEPEST or room[0] < 0:
        raise Unfit("too deep" if depth > DEEPEST else "too large")
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if abs(value) < 1 << 53 else {"int": hex(value)}
    if kind is float:
        return {"float": value.hex() if math.isfinite(value) else repr(value)}
    if kind is complex:
        return {"complex": [encode(value.real, depth + 1, room), encode(value.imag, depth + 1, room)]}
    if kind in (bytes, bytearray):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    if kind is list:
        return [encode(part, depth + 1, room) for part in value]
    if kind in (tuple, set, frozenset, deque):
        return {kind.__name__: [encode(part, depth + 1, room) for part in value]}
    if kind in (dict, Counter, OrderedDict, defaultdict):
        pairs = [[encode(key, depth + 1, room), encode(part, depth + 1, room)] for key, part in value.items()]
        return {"dict": pairs}
    raise Unfit(f"{kind.__module__}.{kind.__qualname__}"[:120])


def decode(value: Any) -> Any:
    """A value from its JSON; of our own making."""
    if isinstance(value, list):
        return [decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "int":
        return int(inner, 16)
    if kind == "float":
        return float(inner) if inner in ("nan", "inf", "-inf") else float.fromhex(inner)
    if kind == "complex":
        return complex(*map(decode, inner))
    if kind == "bytes":
        return base64.b64decode(inner)
    if kind == "dict":
        return {decode(key): decode(part) for key, part in inner}
    makers: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
    return makers[kind](decode(part) for part in inner)


def claim_of(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call returned or raised."""
    try:
        value = call()
    except BaseException as error:
        return {"raised": type(error).__name__[:80]}
    try:
        return {"value": encode(value)}
    except Unfit as error:
        return {"unfit": str(error)}
    except BaseException as error:
        return {"unfit": type(error).__name__[:80]}


def load(path: str) -> Any:
    """An agent's file as a module. Its folder comes first on the path, as where it is run."""
    from importlib.util import module_from_spec, spec_from_file_location

    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    found: Any = spec_from_file_location(name, path)
    module: Any = module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def call_function(work: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    """The claims of a function, all in this process."""
    claim = claim_of(lambda: load(os.path.join(BOX, work["file"])) and None)
    function = None
    if "value" in claim:
        function = getattr(sys.modules[os.path.splitext(os.path.basename(work["file"]))[0]], work["function"], None)
        claim = {"missing": work["function"]} if function is None else claim
    for number, case in enumerate(work["cases"]):
        if function is not None:
            arguments = [decode(value) for value in case["args"]]
            named = {name: decode(value) for name, value in case.get("kwargs", {}).items()}
            claim = claim_of(lambda: function(*arguments, **named))  # noqa: B023  # called at once
        write({"case": number, **claim})


def run_program(work: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    """The claims of a program, each case a process in a folder of its own."""
    import runpy  # noqa: F401  # loaded once, for all cases
    import shutil

    for number, case in enumerate(work["cases"]):
        # Without isolation other runs have this `/tmp`, too.
        folder, said, given = (f"/tmp/{name}{number}-{os.getpid()}" for name in ("case", "said", "given"))
        shutil.copytree(BOX, folder, symlinks=True)
        for path in case["outputs"]:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(folder, path))
        texts = {os.path.join(folder, path): text for path, text in case["files"].items()}
        for path, text in {**texts, given: case["stdin"]}.items():
            with contextlib.suppress(OSError):
                os.remove(path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", newline="") as file:
                file.write(text)
        child = os.fork()  # a new interpreter for each case would take most of the time
        if child == 0:
            become(work["file"], folder, case["args"], given, said)
        ended = wait_for(child, work["seconds"])
        outputs = {path: read_output(os.path.join(folder, path)) for path in case["outputs"]}
        write({"case": number, "exit": ended, "stdout": read_output(said), "outputs": outputs})
        shutil.rmtree(folder, ignore_errors=True)
        for path in (said, given):
            with contextlib.suppress(OSError):
                os.remove(path)


def become(program: str, folder: str, args: list[str], given: str, said: str) -> None:
    """Run a program in this process and end as it ends."""
    import runpy

    os.setsid()
    os.closerange(3, 64)
    os.chdir(folder)
    for descriptor, path, flags in ((0, given, os.O_RDONLY), (1, said, os.O_WRONLY | os.O_CREAT)):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = [program, *args]
    sys.path.insert(0, folder)
    runpy.run_path(program, run_name="__main__")
    sys.exit(0)


def wait_for(child: int, seconds: float) -> int | None:
    """The exit status of a process; None for one that took too long, which is killed with those it started."""
    import signal
    import time

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def read_output(path: str) -> str | None:
    """A plain file in base64; None where there is none, or a larger one."""
    if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > LONGEST_OUTPUT:
        return None
    with open(path, "rb") as file:
        return base64.b64encode(file.read()).decode()


def main() -> None:
    work = json.load(io.TextIOWrapper(os.fdopen(os.dup(0), "rb"), "utf-8"))
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)

    def write(claim: dict[str, Any]) -> None:
        channel.write(json.dumps(claim, ensure_ascii=True) + "\n")
        channel.flush()

    write({"ready": True})
    (call_function if work["form"] == "function" else run_program)(work, write)
    write({"end": len(work["cases"])})
    os._exit(0)


if __name__ == "__main__":
    main()
