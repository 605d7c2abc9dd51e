"""A run reads the bytes that it fixed when it began, whatever becomes of the files meanwhile."""

import gzip
import hashlib
import json
import os

import pandas
import pytest

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_of
from tracewheel.traces.ingest import ingest
from tracewheel.traces.snapshot import Snapshot, placed, take_snapshot


def record(number):
    messages = [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is {number}."}]
    return json.dumps({"id": f"id-{number}", "messages": messages}).encode()


def lines(*numbers):
    return b"".join(record(number) + b"\n" for number in numbers)


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(lines(0, 1, 2))
    return folder


def config_of(logs):
    return IngestConfig(paths=(str(logs),))


def append(file, data):
    with file.open("ab") as stream:
        stream.write(data)


def ids(out):
    return pandas.read_parquet(out / "traces.parquet")["id"].tolist()


def test_lines_appended_after_the_snapshot_are_not_read(logs, tmp_path):
    config = config_of(logs)
    alone = ingest(config, tmp_path / "alone")
    snapshot = take_snapshot(config)
    append(logs / "a.jsonl", lines(3))
    (logs / "b.jsonl").write_bytes(lines(4))
    assert ingest(config, tmp_path / "out", snapshot) == alone
    assert digest_of(tmp_path / "out") == digest_of(tmp_path / "alone")
    assert snapshot.digests == {"a.jsonl": hashlib.sha256(lines(0, 1, 2)).hexdigest()}


def test_what_is_new_is_a_slice_and_what_is_not_complete_waits(logs, tmp_path):
    config, file = config_of(logs), logs / "a.jsonl"
    append(file, record(3)[:20])
    first = take_snapshot(config)
    assert (len(first.files[0].slices), first.unfinished) == (1, {"a.jsonl": 20})
    append(file, record(3)[20:])  # complete, without a line end
    second = take_snapshot(config, first)
    append(file, b"\n" + lines(4))
    third = take_snapshot(config, Snapshot.from_record(json.loads(json.dumps(second.to_record()))))
    size = len(lines(0, 1, 2))
    bounds = [(part.begin, part.end, part.line) for part in third.files[0].slices]
    assert bounds == [
        (0, size, 1), (size, size + len(record(3)), 4), (size + len(record(3)), size + len(lines(3, 4)), 4)
    ]  # fmt: skip
    assert third.files[0].slices[:2] == second.files[0].slices and not third.unfinished
    ingest(config, tmp_path / "out", third)
    ingest(config, tmp_path / "alone")
    assert digest_of(tmp_path / "out") == digest_of(tmp_path / "alone")


@pytest.mark.parametrize(
    "change",
    [
        lambda file: os.truncate(file, 100),
        lambda file: file.write_bytes(lines(0, 7, 2)),
        lambda file: (file.rename(file.with_name("a.jsonl.1")), file.write_bytes(lines(9))),
    ],
    ids=["truncated", "replaced", "rotated"],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json"])
def test_a_file_that_changes_between_snapshot_and_reading_is_an_error(name, change, tmp_path):
    file = tmp_path / name
    data = json.dumps([json.loads(record(number)) for number in range(3)]).encode() if name == "a.json" else lines(0, 1, 2)
    file.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    config = IngestConfig(paths=(str(file),))
    snapshot = take_snapshot(config)
    assert ingest(config, tmp_path / "out", snapshot)["kept"] == 3
    change(file)
    with pytest.raises(DataError, match=rf"{name}: bytes 0 to \d+ are not what they were when the run began"):
        ingest(config, tmp_path / "out", snapshot)


def test_a_parquet_file_that_changes_is_an_error(logs, tmp_path):
    ingest(config_of(logs), tmp_path / "one")
    file = tmp_path / "traces.parquet"
    (tmp_path / "one/traces.parquet/part-00000.parquet").rename(file)
    config = IngestConfig(paths=(str(file),))
    snapshot = take_snapshot(config)
    assert ingest(config, tmp_path / "out", snapshot)["kept"] == 3
    append(file, file.read_bytes())
    with pytest.raises(DataError, match=r"traces.parquet: bytes 0 to"):
        ingest(config, tmp_path / "out", snapshot)


def test_an_earlier_snapshot_is_found_again_while_its_bytes_are_there(logs):
    config, file = config_of(logs), logs / "a.jsonl"
    (logs / "b.jsonl").write_bytes(b"")
    snapshot = Snapshot.from_record(take_snapshot(config).to_record())
    append(file, lines(3))
    (logs / "new.jsonl").write_bytes(lines(4))
    assert [path.name for _, path in placed(snapshot, config).places] == ["a.jsonl"]
    file.rename(logs / "z.jsonl")
    os.utime(logs / "z.jsonl", (1, 1))
    assert [path.name for _, path in placed(snapshot, config).places] == ["z.jsonl"]
    os.truncate(logs / "z.jsonl", 50)
    assert placed(snapshot, config) is None


def test_neither_an_empty_file_nor_a_name_or_a_time_is_news(logs):
    config = config_of(logs)
    first = take_snapshot(config)
    (logs / "b.jsonl").write_bytes(b"")
    (logs / "later").mkdir()
    (logs / "a.jsonl").rename(logs / "later/c.jsonl")
    os.utime(logs / "later/c.jsonl", (1, 1))
    second = take_snapshot(config, first)
    assert second.files == first.files
    append(logs / "later/c.jsonl", lines(3))
    third = take_snapshot(config, second)
    assert third.files[0].slices[:1] == first.files[0].slices and len(third.files[0].slices) == 2


def test_a_held_slice_is_left_out_and_comes_back_later(logs, tmp_path):
    config, file = config_of(logs), logs / "a.jsonl"
    first = take_snapshot(config)
    append(file, lines(3))
    second = take_snapshot(config, first)
    held = {second.files[0].slices[1].sha256}
    append(file, lines(4))
    third = take_snapshot(config, second, held)
    ingest(config, tmp_path / "out", third)
    assert ids(tmp_path / "out") == ["id-0", "id-1", "id-2", "id-4"]
    assert pandas.read_parquet(tmp_path / "out/traces.parquet")["source_line"].tolist() == [1, 2, 3, 5]
    (again,) = take_snapshot(config, third).files
    assert (len(again.slices), again.held) == (3, ())
