"""A client and a server that are killed in each phase end with the bytes of one that was not."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from tracewheel_federated import server_work
from tracewheel_federated.client_work import Client
from tracewheel_federated.settings import ClientConfig, FederationConfig, likeness
from tracewheel_federated.states import WEIGHTS, untrained, write_adapter

ALIKE = "ab" * 8
PHASES = (".*ingested*", "ingested", ".*curated*", "curated", "{order}/.*trained*", "{order}/trained")


def killed_at(file, folder, pattern):
    """Start the client's work, and kill it as soon as a file of the phase is there; returns whether it was killed."""
    shown = folder.parents[2]
    before = set(shown.glob(pattern))
    process = subprocess.Popen([sys.executable, "-m", "tracewheel_federated.client_work", str(file), str(folder)])
    while process.poll() is None and not set(shown.glob(pattern)) - before:
        time.sleep(0.002)
    process.kill()
    return process.wait() != 0


@pytest.mark.slow
def test_a_client_killed_in_each_phase_sends_the_same_bytes(make_client, tmp_path):
    file = make_client("north")
    settings = ClientConfig.load(file)
    orders = [tmp_path / out / "rounds/woods/001-train" for out in ("north", "whole")]
    whole = Client(settings.model_copy(update={"out": str(tmp_path / "whole")}))
    form = untrained(whole.config, tmp_path / "form")
    for folder in orders:
        folder.mkdir(parents=True)
        shutil.copyfile(form / WEIGHTS, folder / "global.safetensors")
        order = {"federation": "woods", "round": 1, "work": "train", "alike": likeness(whole.config)}
        (folder / "order.json").write_text(json.dumps(order))
    for phase in PHASES:
        assert killed_at(file, orders[0], phase.format(order="rounds/woods/001-train")), phase
        assert not (orders[0] / "done.json").exists(), phase
    Client(settings).carry_out(orders[0])
    whole.carry_out(orders[1])
    for name in ("answer.json", "adapter.safetensors"):
        assert (orders[0] / name).read_bytes() == (orders[1] / name).read_bytes()


class Killed(BaseException):
    """In place of a kill, between two writes of the server."""


@pytest.mark.parametrize("written", [0, 1, 2, 3, 4])
def test_a_server_killed_between_its_writes_closes_the_round_with_the_same_bytes(tmp_path, monkeypatch, written):
    """The third client is left out for the second time, so that the close writes the quarantine, too."""
    chance = np.random.default_rng(0)
    draw = lambda: {f"x.lora_{name}.w": chance.normal(size=(2, 2)).astype(np.float32) for name in "AB"}  # noqa: E731
    start, sent = draw(), [{name: draw() for name in ("ash", "birch", "cedar")} for _ in range(2)]
    found = []
    for name in ("whole", "killed"):
        out = tmp_path / name
        write_adapter(start, out / "untrained" / WEIGHTS)
        (out / "start.json").write_text(json.dumps({"alike": ALIKE}))
        values = {"name": "woods", "profile": "configs/tiny.yaml", "out": str(out), "server": {"keys": "keys"}}
        values |= {"validate_every": 0, "defence": {"largest": 100, "cosine": 2}}
        (tmp_path / "f.yaml").write_text(yaml.safe_dump(values))
        server = server_work.Server(FederationConfig.load(tmp_path / "f.yaml"))
        for answers in sent:
            folder = Path(server.next_step()["folder"])
            for client, adapter in answers.items():
                scaled = {key: value * (1000 if client == "cedar" else 1) for key, value in adapter.items()}
                write_adapter(scaled, folder / "answers" / client / "adapter.safetensors")
                answer = {"client": client, "alike": ALIKE, "examples": 10}
                (folder / "answers" / client / "answer.json").write_text(json.dumps(answer))
            if name == "killed" and answers is sent[-1]:
                kill_after(written, server, folder, monkeypatch)
            if not (folder / server_work.ROUND).exists():
                server.close(folder)
        assert server.next_step()["round"] == 3
        files = [file for file in sorted(out.rglob("*")) if file.is_file()]
        found.append({str(file.relative_to(out)): file.read_bytes() for file in files})
    assert "quarantine.json" in found[0]
    assert set(found[0]) == set(found[1])
    assert not [name for name, data in found[0].items() if found[1][name] != data]


def kill_after(written, server, folder, monkeypatch):
    """Close a round, and stop it before the write of this number."""
    left = [written]

    def counting(write):
        def one(*given):
            if not left[0]:
                raise Killed
            left[0] -= 1
            return write(*given)

        return one

    with monkeypatch.context() as patched:
        for name in ("write_adapter", "hold", "write_json", "write_lineage"):
            patched.setattr(server_work, name, counting(getattr(server_work, name)))
        try:
            server.close(folder)
        except Killed:
            return
