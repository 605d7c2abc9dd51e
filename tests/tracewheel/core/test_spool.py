"""The queue on disk: in order, whole after kills, and shared by processes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.spool import Spool


def numbers(spool):
    return [spool.read(folder)["number"] for folder in spool.waiting()]


def test_records_come_in_order_with_their_files_and_go_one_by_one(tmp_path):
    spool, weights = Spool(tmp_path / "spool"), tmp_path / "weights"
    weights.mkdir()
    (weights / "a.bin").write_bytes(b"weights")
    spool.put({"number": 1}, {"files/weights": weights, "files/b.bin": weights / "a.bin"})
    (weights / "a.bin").unlink()
    Spool(tmp_path / "spool").put({"number": 2})
    assert numbers(spool) == [1, 2]
    first, _ = spool.waiting()
    assert (first / "files/weights/a.bin").read_bytes() == (first / "files/b.bin").read_bytes() == b"weights"
    spool.done(first)
    spool.put({"number": 3})
    assert numbers(Spool(tmp_path / "spool")) == [2, 3]


def test_a_files_content_is_held_once(tmp_path):
    (tmp_path / "large").write_bytes(b"x")
    folder = Spool(tmp_path / "spool").put({}, {"large": tmp_path / "large"})
    assert (folder / "large").stat().st_ino == (tmp_path / "large").stat().st_ino


def test_processes_that_put_at_once_lose_nothing(tmp_path):
    spools = [Spool(tmp_path / "spool") for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: spools[number % 4].put({"number": number}), range(40)))
    assert sorted(numbers(spools[0])) == list(range(40))


@pytest.mark.parametrize("damage", ["{", "[]", None])
def test_a_damaged_record_is_named_and_set_aside(tmp_path, damage):
    spool = Spool(tmp_path / "spool")
    first, _ = spool.put({"number": 1}), spool.put({"number": 2})
    (first / "record.json").write_text(damage) if damage else (first / "record.json").unlink()
    with pytest.raises(DataError, match="000000001/record.json: not a record"):
        spool.read(first)
    assert spool.set_aside(first).is_dir()
    assert numbers(spool) == [2]


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InfrastructureError, match="file"):
        Spool(tmp_path / "file" / "spool").put({})


ENDLESS = """
import sys
from pathlib import Path
from tracewheel.core.spool import Spool
spool, number = Spool(Path(sys.argv[1])), 0
print("ready", flush=True)
while True:
    number += 1
    spool.put({"number": number}, {"files": Path(sys.argv[2])})
    if number % 3 == 0:
        spool.done(spool.waiting()[0])
"""


def test_after_kills_every_record_is_whole_and_in_order(tmp_path):
    files, rng = tmp_path / "files", random.Random(2)
    files.mkdir()
    for part in range(20):
        (files / f"{part}.bin").write_bytes(b"x" * 1000)
    for number in range(3):
        root = tmp_path / f"spool-{number}"
        process = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, str(root), str(files)], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        assert process.stdout.readline() == "ready\n"
        while not list(root.glob("0*")):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        spool = Spool(root)
        found = numbers(spool)
        assert found == list(range(found[0], found[0] + len(found)))
        assert all(len(list((folder / "files").iterdir())) == 20 for folder in spool.waiting())
        spool.tidy()
        assert [path.name for path in root.iterdir() if not path.name.isdigit()] == []
        spool.put({"number": found[-1] + 1})
        assert numbers(spool)[-1] == found[-1] + 1
    assert json.loads((spool.waiting()[0] / "record.json").read_text())["number"] == found[0]
