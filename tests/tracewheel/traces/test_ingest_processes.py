"""A large log: a second process redacts to the same bytes, its end is told, and memory does not grow with the log."""

from __future__ import annotations

import json
import os
import random
import signal
import tracemalloc

import pytest

from tracewheel.config import IngestConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.traces import ingest as stage
from tracewheel.traces import intake, parquet
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.redaction.second_process import SecondProcess

WORDS = [
    f"{first}{second}" for first in ("bor", "cal", "dun", "fem", "gil", "hot", "jar") for second in ("el", "ik", "on", "us")
]
KEY = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"


def conversations(count, size=40):
    drawn = random.Random(3)
    for number in range(count):
        said = " ".join(drawn.choices(WORDS, k=size))
        answer = f"Write to ann{number % 4}@corp.com" if number % 3 else f"The key is {KEY}"
        messages = [{"role": "user", "content": f"{number} {said}"}, {"role": "assistant", "content": answer}]
        yield {"id": f"c{number % 90}", "messages": messages}
        if number % 7 == 0:
            yield {"strange": f"password: hunter{number}x", "messages": 4}
        if number % 11 == 0:
            yield {"id": f"c{number % 90}", "messages": messages}


def write_log(path, count, size=40):
    path.write_text("".join(json.dumps(record) + "\n" for record in conversations(count, size)))
    return IngestConfig(paths=(str(path),))


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def seconds(monkeypatch):
    """The second processes of this test's ingests, which all have one."""
    made = []

    class Noted(SecondProcess):
        def __init__(self, config):
            super().__init__(config)
            made.append(self)

    monkeypatch.setattr(stage, "SecondProcess", Noted)
    monkeypatch.setattr(stage, "LARGE", 0)
    monkeypatch.setattr(stage, "usable_cores", lambda: 2)
    monkeypatch.setattr(intake, "BATCH", 16)
    return made


def test_two_processes_store_the_same_bytes_as_one(tmp_path, seconds, monkeypatch):
    config = write_log(tmp_path / "log.jsonl", 120)
    two = ingest_new(config, tmp_path / "two")
    assert seconds[0]._process and seconds[0].pid is None, "it has not run, or has not ended"
    monkeypatch.setattr(stage, "LARGE", 1 << 60)
    one = ingest_new(config, tmp_path / "one")
    assert one == two and one["redacted"] and one["quarantined"] and one["duplicates"]
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert KEY not in str(contents(tmp_path / "two"))


def test_a_killed_second_process_is_told_and_leaves_nothing_half_written(tmp_path, seconds):
    config = write_log(tmp_path / "log.jsonl", 120)

    def kill(done):
        if seconds[-1].pid:
            os.kill(seconds[-1].pid, signal.SIGKILL)

    with pytest.raises(InfrastructureError, match="second process was killed by signal 9"):
        ingest_new(config, tmp_path / "out", watch=kill)
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]
    assert ingest_new(config, tmp_path / "out")["kept"]


def test_it_ends_with_an_ingest_that_is_interrupted(tmp_path, seconds):
    config = write_log(tmp_path / "log.jsonl", 120)

    def interrupt(done):
        if seconds[-1].pid:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_new(config, tmp_path / "out", watch=interrupt)
    assert seconds[-1]._process and seconds[-1].pid is None


def test_memory_does_not_grow_with_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BYTES_PER_GROUP", 64 << 10)
    monkeypatch.setattr(intake, "BATCH_BYTES", 16 << 10)

    def peak(name, count):
        config = write_log(tmp_path / f"{name}.jsonl", count, size=600)
        tracemalloc.start()
        try:
            ingest_new(config, tmp_path / name)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak("warm", 5)
    small = peak("small", 100)
    assert peak("large", 400) < 1.5 * small
