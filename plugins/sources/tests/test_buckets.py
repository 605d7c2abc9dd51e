"""Logs in a bucket, here in fsspec's file systems of memory: new and grown objects are copied, and ingest goes on in them."""

import json

import fsspec
import pytest

from flows.cli import main
from tracewheel.core.errors import ConfigError
from tracewheel.traces.sources import SOURCES, fetch_new, located
from tracewheel_sources.buckets import Bucket


class MemoryBucket(Bucket):
    protocol, package = "memory", "fsspec"


@pytest.fixture
def bucket(monkeypatch):
    system = fsspec.filesystem("memory")
    system.store.clear()
    monkeypatch.setitem(SOURCES._set, "memory", MemoryBucket)
    return system


def line(text):
    return (
        json.dumps({"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes."}]}) + "\n"
    ).encode()


def fetch(address, tmp_path):
    return fetch_new(located([address], tmp_path / "sources"))[0]


def test_new_and_grown_logs_are_read_on(bucket, tmp_path, capsys):
    bucket.pipe("/logs/agents/day/1.jsonl", line("one"))
    bucket.pipe("/logs/agents/notes.txt", b"no log")
    bucket.pipe("/logs/agents/.hidden/2.jsonl", line("hidden"))
    bucket.pipe("/logs/other/3.jsonl", line("other"))
    arguments = ["ingest", "memory://logs/agents", "--out", str(tmp_path / "out"), "--json"]
    counts = []
    for text in (None, "two", None):
        if text:
            bucket.pipe("/logs/agents/day/1.jsonl", line("one") + line(text))
        assert main(arguments) == 0
        report = json.loads(capsys.readouterr().out)
        counts.append((report["kept"], report["added"]["read"]))
    assert counts == [(1, 1), (2, 1), (2, 0)]


def test_names_that_lead_out_of_the_folder_are_left_out(bucket, tmp_path):
    bucket.store["/logs/../../escaped.jsonl"] = bucket.store.setdefault("/logs/kept.jsonl", None)
    del bucket.store["/logs/../../escaped.jsonl"]
    bucket.pipe("/logs/kept.jsonl", line("kept"))
    source = MemoryBucket("//logs")
    assert source._local("/logs/../../escaped.jsonl") is None
    assert source._local("/logs/a/.source.json") is None
    assert len(source._local(f"/logs/{'x' * 300}.jsonl").name) < 100
    assert fetch("memory://logs", tmp_path).files == 1


@pytest.mark.parametrize(("address", "says"), [("memory://nowhere/x", "no such bucket"), ("memory:logs", "write it as")])
def test_a_wrong_address_is_named(bucket, tmp_path, address, says):
    with pytest.raises(ConfigError, match=says):
        fetch(address, tmp_path)


def test_a_clouds_library_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match="pip install s3fs"):
        fetch("s3://bucket/logs", tmp_path)
