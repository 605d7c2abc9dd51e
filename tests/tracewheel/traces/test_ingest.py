"""The ingest stage: every line accounted for, the same bytes for the same logs, clear errors for paths."""

import copy
import gzip
import hashlib
import json
import os
from pathlib import Path

import pandas
import pytest

from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import Trace
from tracewheel.traces.ingest import find_files, ingest

ROOT = Path(__file__).parents[3]
LINE = {
    "id": "a",
    "session": "s1",
    "user": "u1",
    "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}],
    "tools": [{"type": "function", "function": {"name": "t", "description": "d", "parameters": {}}}],
}


def write(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records))
    return str(path)


def digests(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    out = tmp_path_factory.mktemp("ingested")
    return ingest(IngestConfig(paths=(str(ROOT / "data/traces/workspace.jsonl"),)), out), out


def test_every_line_of_the_shipped_logs_is_accounted_for(shipped):
    report, out = shipped
    lines = (ROOT / "data/traces/workspace.jsonl").read_bytes().count(b"\n")
    assert report["read"] == lines == report["kept"] + report["duplicates"] + report["quarantined"]
    assert (report["duplicates"], report["quarantined"]) == (20, 4)
    assert sum(report["by_reason"].values()) == 4
    assert len(report["by_reason"]) == 4
    frame = pandas.read_parquet(out / "traces.parquet")
    assert len(frame) == report["kept"]
    assert frame["id"].is_unique
    traces = [Trace.from_record(row) for row in frame.to_dict("records")]
    assert sum(len(trace.messages) for trace in traces) == report["messages"]
    assert report == json.loads((out / "report.json").read_text())


def test_quarantined_lines_keep_bytes_and_place(shipped):
    report, out = shipped
    raw_lines = (ROOT / "data/traces/workspace.jsonl").read_bytes().split(b"\n")
    entries = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
    assert len(entries) == report["quarantined"]
    for entry in entries:
        assert entry["file"] == "workspace.jsonl"
        if "raw" in entry:
            assert entry["raw"].encode() == raw_lines[entry["line"] - 1]
    assert sum("raw_base64" in entry for entry in entries) == 1


def test_equal_logs_give_equal_bytes_in_any_folder(shipped, tmp_path):
    _, out = shipped
    copied = tmp_path / "elsewhere" / "workspace.jsonl"
    copied.parent.mkdir()
    copied.write_bytes((ROOT / "data/traces/workspace.jsonl").read_bytes())
    ingest(IngestConfig(paths=(str(copied),)), tmp_path / "out")
    assert digests(tmp_path / "out") == digests(out)


def test_duplicates_may_differ_in_time_and_reward_only(tmp_path):
    def but(**fields):
        return {**copy.deepcopy(LINE), **fields}

    path = write(
        tmp_path / "log.jsonl",
        LINE,
        but(created="2031-01-01T00:00:00Z", reward=1.0),
        but(session="s2"),
        but(user="u2"),
        but(environment={"kind": "workspace"}),
        but(messages=[*LINE["messages"], {"role": "user", "content": "Bye"}]),
    )
    report = ingest(IngestConfig(paths=(path,)), tmp_path / "out")
    assert (report["read"], report["kept"], report["duplicates"]) == (6, 5, 1)
    ids = pandas.read_parquet(tmp_path / "out/traces.parquet")["id"]
    assert ids.is_unique
    assert ids.str.startswith("a").all()


def test_globs_and_paths_read_each_file_once_under_distinct_names(tmp_path):
    write(tmp_path / "x/log.jsonl", LINE, b"{")
    write(tmp_path / "y/log.jsonl", {**LINE, "session": "s9"}, b"{")
    config = IngestConfig(paths=(f"{tmp_path}/*/log.jsonl", f"{tmp_path}/x/log.jsonl"))
    report = ingest(config, tmp_path / "out")
    assert (report["read"], report["kept"], report["quarantined"]) == (4, 2, 2)
    assert pandas.read_parquet(tmp_path / "out/traces.parquet")["source_file"].tolist() == ["x/log.jsonl", "y/log.jsonl"]
    entries = [json.loads(line) for line in (tmp_path / "out/quarantine.jsonl").read_text().splitlines()]
    assert [(entry["file"], entry["line"]) for entry in entries] == [("x/log.jsonl", 2), ("y/log.jsonl", 2)]


@pytest.mark.parametrize("name", ["missing.jsonl", "*.missing", "folder"])
def test_a_path_without_a_file_is_an_error_that_names_it(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"ingest\.paths") as caught:
        ingest(IngestConfig(paths=(str(tmp_path / name),)), tmp_path / "out")
    assert str(tmp_path / name) in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_log_of_only_broken_lines_is_read_to_its_end(tmp_path):
    path = write(tmp_path / "log.jsonl", b"{", b"\xff", b"[]")
    report = ingest(IngestConfig(paths=(path,)), tmp_path / "out")
    assert (report["read"], report["kept"], report["quarantined"]) == (3, 0, 3)
    assert pandas.read_parquet(tmp_path / "out/traces.parquet").empty


def test_tools_keep_the_order_of_their_keys(tmp_path):
    path = write(tmp_path / "log.jsonl", LINE)
    ingest(IngestConfig(paths=(path,)), tmp_path / "out")
    stored = pandas.read_parquet(tmp_path / "out/traces.parquet")["tools"][0]
    assert json.dumps(json.loads(stored)) == json.dumps(LINE["tools"])


def test_folders_are_searched_by_suffix_and_skipped_files_reported(tmp_path):
    write(tmp_path / "logs/a.jsonl", LINE)
    write(tmp_path / "logs/deep/b.json", {**LINE, "session": "s2"})
    (tmp_path / "logs/deep/c.jsonl.gz").write_bytes(gzip.compress(json.dumps({**LINE, "session": "s3"}).encode()))
    write(tmp_path / "logs/notes.txt", b"not a log")
    write(tmp_path / "logs/.hidden/d.jsonl", LINE)
    report = ingest(IngestConfig(paths=(str(tmp_path / "logs"),)), tmp_path / "out")
    assert (report["read"], report["kept"]) == (3, 3)
    assert report["skipped"] == [".hidden/d.jsonl", "notes.txt"]
    stored = pandas.read_parquet(tmp_path / "out/traces.parquet")
    assert stored["source_file"].tolist() == ["a.jsonl", "deep/b.json", "deep/c.jsonl.gz"]


def test_secrets_are_redacted_in_traces_quarantine_and_details(tmp_path):
    secret, address = "sk-proj-" + "aB3" * 16, "ada@lovelace.org"
    said = [{"role": "user", "content": f"My key is {secret}."}, {"role": "assistant", "content": "Kept."}]
    path = write(
        tmp_path / "log.jsonl",
        {**LINE, "messages": said},
        {**LINE, "messages": [{"role": address, "content": secret}]},
        f'{{"messages": "{secret} {address}'.encode(),
    )
    report = ingest(IngestConfig(paths=(path,)), tmp_path / "out")
    assert (report["kept"], report["quarantined"]) == (1, 2)
    assert sum(report["redacted"].values()) >= 4
    stored = b"".join(file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.suffix != ".parquet")
    stored += pandas.read_parquet(tmp_path / "out/traces.parquet").to_json().encode()
    assert secret.encode() not in stored
    assert address.encode() not in stored


def test_redaction_can_be_disabled(tmp_path):
    path = write(tmp_path / "log.jsonl", {**LINE, "user": "ada@lovelace.org"})
    config = IngestConfig(paths=(path,), redaction=RedactionConfig(enabled=False))
    assert ingest(config, tmp_path / "out")["redacted"] == {}
    assert pandas.read_parquet(tmp_path / "out/traces.parquet")["user"].tolist() == ["ada@lovelace.org"]


def test_stored_traces_can_be_ingested_again(tmp_path):
    """The Parquet of an ingest is a log itself."""
    path = write(tmp_path / "log.jsonl", {**LINE, "reward": 0.5, "task": "t"}, {**LINE, "session": "s2", "extra": {"a": 1}})
    ingest(IngestConfig(paths=(path,)), tmp_path / "first")
    ingest(IngestConfig(paths=(str(tmp_path / "first/traces.parquet"),)), tmp_path / "second")
    columns = ["messages", "tools", "session", "outcome", "task", "info"]
    first, second = (pandas.read_parquet(tmp_path / name / "traces.parquet") for name in ("first", "second"))
    pandas.testing.assert_frame_equal(first[columns], second[columns])
    assert second["format"].tolist() == ["tracewheel", "tracewheel"]


def test_missing_rewards_are_unscored(tmp_path):
    path = write(tmp_path / "log.jsonl", LINE, {**LINE, "session": "s2", "reward": 0})
    ingest(IngestConfig(paths=(path,)), tmp_path / "out")
    outcomes = pandas.read_parquet(tmp_path / "out/traces.parquet")["outcome"]
    assert outcomes.isna().tolist() == [True, False]
    rows = pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")
    assert [Trace.from_record(row).outcome for row in rows] == [None, 0.0]


def test_links_that_lead_out_of_a_folder_of_logs_are_left_out_and_named(tmp_path, caplog):
    folder, outside = tmp_path / "logs", tmp_path / "outside"
    for place in (folder / "deep", outside):
        place.mkdir(parents=True)
    (outside / "private.jsonl").write_text("PRIVATE\n")
    (folder / "a.jsonl").write_text("{}\n")
    (folder / "deep" / "same.jsonl").symlink_to("../a.jsonl")
    (folder / "far.jsonl").symlink_to(outside / "private.jsonl")
    (folder / "passwd.json").symlink_to("/etc/passwd")
    (folder / "folder").symlink_to(outside)
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    (folder / "zero.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.jsonl")
    for path in (folder, folder / "*.json*", folder / "**" / "*.json*"):
        assert list(find_files([str(path)]).values()) == [folder / "a.jsonl"]
    assert {"far.jsonl", "passwd.json"} <= {Path(record.args[0]).name for record in caplog.records}
    assert list(find_files([str(folder / "far.jsonl")]).values()) == [outside / "private.jsonl"], "named by the user"
    with pytest.raises(DataError, match="no regular file"):
        find_files([str(folder / "pipe.jsonl")])
    report = ingest(IngestConfig(paths=[str(folder)]), tmp_path / "out")
    assert (report["read"], report["skipped"]) == (1, ["far.jsonl", "passwd.json"])
    assert "PRIVATE" not in (tmp_path / "out" / "quarantine.jsonl").read_text()
    (folder / "result.json").symlink_to("/dev/zero")
    assert ingest(IngestConfig(paths=[str(folder)]), tmp_path / "again")["read"] == 1
