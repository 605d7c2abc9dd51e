"""Two houses and a server as processes, over TLS, with everything between them recorded before it is encrypted."""

import asyncio
import shutil
import ssl
import threading
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from plugins.federated.tests.conftest import PLANTED, ROOT
from tracewheel import DataError, InfrastructureError, read_json
from tracewheel_federated import processes
from tracewheel_federated.commands.simulate import run as simulate
from tracewheel_federated.settings import ClientConfig, FederationConfig

VENV = ROOT / ".venv-federated"
needs_flower = pytest.mark.skipif(
    not (VENV / "bin" / "flower-superlink").is_file(), reason="Flower is not installed: make setup-federated"
)


class Recorder:
    """Between clients and server: ends their TLS with the server's key, keeps what it reads, and passes it on over TLS."""

    def __init__(self, keys: Path, port: int, onward: int) -> None:
        self.keys, self.port, self.onward = keys, port, onward
        self.sent, self.received = bytearray(), bytearray()
        self._loop = asyncio.new_event_loop()

    def __enter__(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, ready):
        inward = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        inward.load_cert_chain(self.keys / "server.pem", self.keys / "server.key")
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._pass_on, "127.0.0.1", self.port, ssl=inward))
        ready.set()
        self._loop.run_forever()

    async def _pass_on(self, reader, writer):
        outward = ssl.create_default_context(cafile=self.keys / "authority.pem")
        there, back = await asyncio.open_connection("127.0.0.1", self.onward, ssl=outward)
        await asyncio.gather(self._copy(reader, back, self.sent), self._copy(there, writer, self.received))

    async def _copy(self, reader, writer, kept):
        try:
            while data := await reader.read(65536):
                kept.extend(data)
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        writer.close()


@pytest.fixture
def federation(tmp_path, base, monkeypatch):
    """Writes the federation's file."""
    monkeypatch.setenv(processes.VENV, str(VENV))
    profile = yaml.safe_load((ROOT / "configs/tiny.yaml").read_text())
    profile["policy"]["base"] = base
    profile["warm_start"] |= {"lora": {"rank": 4}, "replay": {"path": f"{base}/replay.parquet"}}
    profile["tracking"] = {"uri": f"sqlite:///{tmp_path}/mlflow.db"}
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(profile))

    def write(**values):
        settings = {
            "name": "woods",
            "profile": str(tmp_path / "profile.yaml"),
            "out": str(tmp_path / "server"),
            "rounds": 1,
            "validate_every": 0,
            "server": {"address": f"127.0.0.1:{processes.free_ports(1)[0]}", "keys": str(tmp_path / "keys")},
            **values,
        }
        (tmp_path / "federation.yaml").write_text(yaml.safe_dump(settings))
        return tmp_path / "federation.yaml"

    return write


def test_without_flower_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv(processes.VENV, str(tmp_path))
    with pytest.raises(DataError, match="make setup-federated"):
        processes.flower()


@needs_flower
@pytest.mark.slow
def test_a_round_over_sockets_sends_nothing_of_a_log_and_goes_on_after_a_kill(federation, make_client, tmp_path):
    file, port = federation(), processes.free_ports(1)[0]
    settings = FederationConfig.load(file)
    clients = [make_client(name, first, server=f"127.0.0.1:{port}") for name, first in (("north", 0), ("south", 60))]
    keys = processes.make_keys(settings, ["north", "south", "stranger"])
    (keys / "clients" / "stranger.pub").unlink()  # it has a key that nobody registered
    ports = processes.free_ports(3)
    with ExitStack() as running:
        recorder = running.enter_context(Recorder(keys, port, int(settings.server.address.rpartition(":")[2])))
        running.enter_context(processes.superlink(settings, file))
        for client, own in zip([*clients, make_client("stranger", server=f"127.0.0.1:{port}")], ports, strict=True):
            running.enter_context(processes.supernode(ClientConfig.load(client), client, own, tmp_path / "turn"))
        processes.run_rounds(settings)
    record = read_json(tmp_path / "server" / "lineage.json")
    assert record["rounds"][0]["clients"] == ["north", "south"]
    assert len(recorder.sent) > sum(record["rounds"][0]["bytes"].values())  # the adapters came this way
    assert b"lora_A" in recorder.sent  # readable, so not compressed
    assert PLANTED.encode() not in recorder.sent
    assert PLANTED.encode() not in recorder.received
    verdict = read_json(tmp_path / "server" / "verdict.json")
    assert set(verdict["clients"]) == {"north", "south"}
    # A server that was killed before the round was closed makes the same adapter of the answers that it has.
    before = (tmp_path / "server/rounds/001-train/next.safetensors").read_bytes()
    for step in ("001-train/round.json", "001-train/next.safetensors", "001-judge"):
        path = tmp_path / "server/rounds" / step
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    values = yaml.safe_load(file.read_text()) | {"clients": list(map(str, clients))}
    file.write_text(yaml.safe_dump(values))
    result = simulate(Namespace(federation=str(file)))
    assert (tmp_path / "server/rounds/001-train/next.safetensors").read_bytes() == before
    assert result["verdict"] == verdict


@needs_flower
@pytest.mark.slow
def test_code_that_arrives_is_not_run(federation, make_client, tmp_path):
    file = federation(participation={"least": 1, "wait": 1.0})
    settings = FederationConfig.load(file)
    processes.make_keys(settings, [])
    with processes.superlink(settings, file):
        marker = tmp_path / "was-run"
        (tmp_path / "server/flower/bundle/ours.py").write_text(f"open({str(marker)!r}, 'w').close()\napp = None\n")
        with pytest.raises(InfrastructureError, match="serverapp.log"):  # nobody is connected
            processes.run_rounds(settings)
    assert "clients are connected" in (tmp_path / "server/flower/serverapp.log").read_text()
    assert not marker.exists()
