"""Flower's processes: started with telemetry off and our own apps in them, ended with the command that started them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tracewheel import DataError, InfrastructureError
from tracewheel_federated.client_work import TURN
from tracewheel_federated.settings import ClientConfig, FederationConfig

VENV = "TRACEWHEEL_FEDERATED_VENV"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
    "OPENBLAS_NUM_THREADS": "1",  # threads that wait awake for small matrices slow everything else
}
APPS = ("flwr-clientapp", "flwr-serverapp")
START_SECONDS, END_SECONDS, POLL_SECONDS, ASK_SECONDS = 120.0, 15.0, 0.5, 120.0
# A bundle is asked for by `flwr run`; what is in it is never run (`flower/own_app.py`).
BUNDLE = """[project]
name = "tracewheel-federated"
version = "0.1.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "tracewheel"
[tool.flwr.app.components]
serverapp = "ours:app"
clientapp = "ours:app"
"""


def flower() -> Path:
    """The folder of Flower's programs.

    Raises:
        DataError: they are not installed.
    """
    venv = Path(os.environ.get(VENV, ".venv-federated")).absolute()
    if not (venv / "bin" / "flower-superlink").is_file():
        raise DataError(f"{venv}: Flower is not installed there; run `make setup-federated`, or name its environment in {VENV}")
    return venv / "bin"


def make_keys(settings: FederationConfig, clients: list[str]) -> Path:
    """Make what is missing of the federation's keys; returns their folder."""
    folder = Path(settings.server.keys)
    host = settings.server.address.rpartition(":")[0]
    command = [flower() / "python", "-m", "tracewheel_federated.flower.keys", folder, host, *clients]
    subprocess.run(list(map(str, command)), check=True, env=_environment(folder))
    return folder


@contextmanager
def superlink(settings: FederationConfig, file: Path) -> Iterator[None]:
    """Flower's server for the length of the block, with the clients whose public keys lie in the keys' folder."""
    keys, home = Path(settings.server.keys), Path(settings.out) / "flower"
    host, _, port = settings.server.address.rpartition(":")
    _prepare(home, settings.server.address, keys)
    command = ["superlink", "--host", host, "--port", port, "--enable-supernode-auth"]
    command += ["--disable-runtime-dependency-installation", "--ssl-ca-certfile", str((keys / "authority.pem").absolute())]
    command += ["--ssl-certfile", str((keys / "server.pem").absolute()), "--ssl-keyfile", str((keys / "server.key").absolute())]
    values = {"TRACEWHEEL_FEDERATED_SETTINGS": str(file.absolute())}
    with _process(command, home, values, "superlink"):
        _await_control(home)
        for public in sorted((keys / "clients").glob("*.pub")):
            _flwr(home, "supernode", "register", str(public.absolute()), "here", "--name", public.stem)
        yield


def run_rounds(settings: FederationConfig) -> None:
    """Carry out the federation's steps, and wait for the last.

    Raises:
        InfrastructureError: the server's app failed; its log says why.
    """
    home = Path(settings.out) / "flower"
    ended = home / "ended"
    ended.unlink(missing_ok=True)
    started = json.loads(_flwr(home, "run", str(home / "bundle"), "here", "--format", "json"))
    if not started.get("success"):
        raise InfrastructureError(f"Flower did not start the federation: {started.get('error-message', started)}")
    asked = time.monotonic()
    while not ended.is_file():
        time.sleep(POLL_SECONDS)
        if time.monotonic() - asked > ASK_SECONDS:  # an app that was killed leaves no word
            asked = time.monotonic()
            runs = json.loads(_flwr(home, "list", "--run-id", str(started["run-id"]), "here", "--format", "json"))["runs"]
            if runs[0]["status"].startswith("finished") and not ended.is_file():
                ended.write_text(runs[0]["status"])
    if problem := ended.read_text():
        raise InfrastructureError(
            f"the federation ended: {problem}; {home / 'serverapp.log'} has more. Start it again to go on"
        )


@contextmanager
def supernode(settings: ClientConfig, file: Path, port: int, turn: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Flower's client for the length of the block.

    Args:
        settings: The client's.
        file: The client's file.
        port: On this machine, for its own processes.
        turn: A file by which clients of one machine work one after the other.
    """
    keys, home = Path(settings.keys), Path(settings.out) / "flower"
    _prepare(home, settings.server, keys)
    command = ["supernode", "--superlink", settings.server, "--root-certificates", str((keys / "authority.pem").absolute())]
    command += ["--auth-supernode-private-key", str((keys / "client.key").absolute()), "--port", str(port)]
    values = {
        "TRACEWHEEL_FEDERATED_SETTINGS": str(file.absolute()),
        "TRACEWHEEL_FEDERATED_OUT": str(Path(settings.out).absolute()),
        "TRACEWHEEL_FEDERATED_NAME": settings.name,
        **({TURN: str(turn.absolute())} if turn else {}),
    }
    with _process(command, home, values, "supernode") as process:
        yield process


def _prepare(home: Path, address: str, keys: Path) -> None:
    """Flower's own folder: where the server is, a bundle, and the programs that start our apps."""
    (home / "bundle").mkdir(parents=True, exist_ok=True)
    (home / "bin").mkdir(exist_ok=True)
    root = (keys / "authority.pem").absolute()
    home.joinpath("config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{address}"\nroot-certificates = "{root}"\n'
    )
    (home / "bundle" / "pyproject.toml").write_text(BUNDLE)
    (home / "bundle" / "ours.py").write_text("app = None\n")
    for name in APPS:
        program = home / "bin" / name
        program.write_text(
            f"#!{flower() / 'python'}\nimport sys\nfrom tracewheel_federated.flower import own_app\n"
            f"sys.exit(own_app.{'client' if name == APPS[0] else 'server'}())\n"
        )
        program.chmod(0o755)


def _environment(home: Path, values: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of Flower's processes: their own home, our apps before theirs, this wheel, and Tracewheel's interpreter for the work."""
    wheel = Path(__file__).parents[1]
    return {
        **os.environ,
        **QUIET,
        "FLWR_HOME": str(home.absolute()),
        "PATH": os.pathsep.join([str((home / "bin").absolute()), str(flower()), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(wheel), os.environ.get("PYTHONPATH", "")])),
        "TRACEWHEEL_FEDERATED_PYTHON": sys.executable,
        **(values or {}),
    }


@contextmanager
def _process(command: list[str], home: Path, values: Mapping[str, str], name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Flower's with its children, which end with the block."""
    with (home / f"{name}.log").open("ab") as log:
        command = [str(flower() / "python"), "-m", "tracewheel_federated.flower.watched", *command]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(home, values), start_new_session=True)
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: Flower's superexec and apps are children of it."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)


def _flwr(home: Path, *arguments: str) -> str:
    """Run Flower's command line.

    Raises:
        InfrastructureError: it failed.
    """
    done = subprocess.run(["flwr", *arguments], env=_environment(home), capture_output=True, text=True)
    if done.returncode:
        raise InfrastructureError(
            f"flwr {arguments[0]}: {(done.stderr or done.stdout).strip()[-500:]}; see {home}/superlink.log"
        )
    return done.stdout


def _await_control(home: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            _flwr(home, "list", "here", "--format", "json")
            return
        except InfrastructureError:
            if time.monotonic() > end:
                raise
            time.sleep(POLL_SECONDS)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
