"""Incremental ingests: only what is new is read, nothing is stored twice, and a kill leaves the folder as it was."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas
import pytest

import tracewheel.traces.ingest as stage
from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.core import store
from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.traces import log_file
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest

OTEL = json.loads((Path(__file__).parents[3] / "plugins/logs/tests/samples/otel.json").read_text())


def record(number, **fields):
    messages = [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is {number}."}]
    return {"id": f"id-{number}", "messages": messages, **fields}


def lines(*numbers):
    return b"".join(json.dumps(record(number)).encode() + b"\n" for number in numbers)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.jsonl").write_bytes(lines(*range(5)))
    return tmp_path


def run(folder, **options):
    paths = options.pop("paths", (str(folder / "logs"),))
    return ingest_new(IngestConfig(paths=paths, **options.pop("config", {})), folder / "out", **options)


def stored(folder):
    """The ids in the folder, after checking that its counts add up."""
    report = json.loads((folder / "out/report.json").read_text())
    for counts in (report, report.get("added", report)):
        assert counts["read"] == counts["kept"] + counts["duplicates"] + counts["quarantined"]
    frame = pandas.read_parquet(folder / "out/traces.parquet")
    assert len(frame) == report["kept"]
    assert len((folder / "out/quarantine.jsonl").read_bytes().splitlines()) == report["quarantined"]
    assert frame["id"].is_unique
    return frame["id"].tolist()


def snapshot(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_second_ingest_reads_only_new_records(folder, monkeypatch):
    assert run(folder)["added"]["read"] == 5
    with (folder / "logs/a.jsonl").open("ab") as file:
        file.write(lines(5, 0))
    (folder / "logs/b.jsonl").write_bytes(lines(6) + b"{\n")
    begun = []
    usual = log_file.LogFile.__init__
    monkeypatch.setattr(
        log_file.LogFile,
        "__init__",
        lambda self, path, start=(0, 1), *rest: begun.append((path.name, start)) or usual(self, path, start, *rest),
    )
    report = run(folder)
    size = len(lines(*range(5)))
    assert begun == [("a.jsonl", (size, 6)), ("b.jsonl", (0, 1))]
    assert {name: report["added"][name] for name in ("read", "kept", "duplicates", "quarantined")} == {
        "read": 4, "kept": 2, "duplicates": 1, "quarantined": 1
    }  # fmt: skip
    assert (report["read"], report["kept"]) == (9, 7)
    assert stored(folder) == [f"id-{number}" for number in range(7)]
    assert len(list((folder / "out/traces.parquet").iterdir())) == 2
    frame = pandas.read_parquet(folder / "out/traces.parquet")
    assert frame["source_line"].tolist() == [1, 2, 3, 4, 5, 6, 1]
    begun.clear()
    assert run(folder)["added"]["read"] == 0
    assert begun == []
    assert len(list((folder / "out/traces.parquet").iterdir())) == 2


def test_many_ingests_give_the_same_traces_as_one(folder):
    whole = folder / "whole"
    whole.mkdir()
    numbers = [0, 1, 2, 1, 3, 4, 4, 5]
    for count in range(1, len(numbers) + 1):
        (folder / "logs/a.jsonl").write_bytes(lines(*numbers[:count]))
        run(folder)
    ids = stored(folder)
    (whole / "a.jsonl").write_bytes(lines(*numbers))
    ingest(IngestConfig(paths=(str(whole),)), folder / "at_once")
    columns = ["id", "messages", "source_file", "source_line"]
    expected = pandas.read_parquet(folder / "at_once/traces.parquet")[columns]
    pandas.testing.assert_frame_equal(pandas.read_parquet(folder / "out/traces.parquet")[columns], expected)
    assert ids == expected["id"].tolist()


def test_an_unfinished_last_line_is_read_once_it_is_complete(folder):
    whole = lines(9)
    with (folder / "logs/a.jsonl").open("ab") as file:
        file.write(whole[:40])
    assert run(folder)["by_reason"] == {"truncated": 1}
    with (folder / "logs/a.jsonl").open("ab") as file:
        file.write(whole[40:] + lines(10).rstrip())
    report = run(folder)
    assert (report["added"]["kept"], report["added"]["quarantined"]) == (2, 0)
    with (folder / "logs/a.jsonl").open("ab") as file:
        file.write(b"\n" + lines(11))
    assert run(folder)["added"]["kept"] == 1
    assert stored(folder) == [f"id-{number}" for number in (0, 1, 2, 3, 4, 9, 10, 11)]
    assert pandas.read_parquet(folder / "out/traces.parquet")["source_line"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("change", ["beginning", "end", "shorter"])
def test_a_changed_file_is_an_error_and_full_ingests_it_again(folder, change):
    run(folder)
    before = snapshot(folder / "out")
    log = folder / "logs/a.jsonl"
    data = log.read_bytes()
    time.sleep(0.01)
    log.write_bytes(
        {"beginning": b" " + data[:-1], "end": data[:-3] + b"!" + data[-2:] + lines(7), "shorter": data[: len(data) // 2]}[
            change
        ]
    )
    with pytest.raises(DataError, match=r"a\.jsonl: has changed .*--full"):
        run(folder)
    assert snapshot(folder / "out") == before
    log.write_bytes(lines(3, 4))
    assert run(folder, full=True)["read"] == 2
    assert stored(folder) == ["id-3", "id-4"]


def test_a_change_in_the_middle_is_noticed(folder):
    log = folder / "logs/a.jsonl"
    log.write_bytes(lines(*range(200)))
    run(folder)
    data, times = log.read_bytes(), log.stat()
    log.write_bytes(data.replace(b"It is 100.", b"It is 101.", 1))
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DataError, match=r"a\.jsonl: has changed .*--full"):
        run(folder)


def test_a_rotated_log_is_not_read_again_and_a_lost_one_stays_read(folder):
    log = folder / "logs/a.jsonl"
    run(folder)
    log.rename(folder / "logs/a.1.jsonl")
    log.write_bytes(lines(5))
    assert run(folder)["added"]["read"] == 1
    (folder / "logs/a.1.jsonl").unlink()
    with log.open("ab") as file:
        file.write(lines(6))
    assert run(folder)["added"]["read"] == 1
    assert stored(folder) == [f"id-{number}" for number in range(7)]


def test_a_folder_of_an_earlier_version_asks_for_full(folder):
    run(folder)
    (folder / "out/state.json").write_text("{}")
    with pytest.raises(DataError, match="earlier version of Tracewheel.*--full"):
        run(folder)
    run(folder, full=True)
    assert run(folder)["added"]["read"] == 0


def test_a_touched_file_is_not_read_again(folder):
    run(folder)
    os.utime(folder / "logs/a.jsonl", (1, 1))
    assert run(folder)["added"]["read"] == 0


def test_a_compressed_file_must_not_grow(folder):
    (folder / "logs/a.jsonl").unlink()
    packed = folder / "logs/p.jsonl.gz"
    packed.write_bytes(gzip.compress(lines(1)))
    run(folder)
    packed.write_bytes(packed.read_bytes() + gzip.compress(lines(2)))
    with pytest.raises(DataError, match="compressed file is read as a whole"):
        run(folder)


def test_the_same_trace_in_another_file_is_stored_once(folder):
    run(folder)
    (folder / "logs/copy.jsonl").write_bytes(lines(*range(5)))
    assert run(folder)["added"]["duplicates"] == 5
    assert len(stored(folder)) == 5


def test_a_trace_with_a_stored_id_gets_a_new_one(folder):
    run(folder)
    (folder / "logs/b.jsonl").write_bytes(json.dumps({**record(77), "id": "id-0"}).encode())
    run(folder)
    assert stored(folder)[-1].startswith("id-0-")


def test_spans_of_one_trace_may_lie_in_several_files_but_not_in_several_ingests(folder):
    spans = [json.dumps(span).encode() + b"\n" for span in OTEL]
    (folder / "logs/a.jsonl").write_bytes(b"".join(spans[::2]))
    (folder / "logs/b.jsonl").write_bytes(b"".join(spans[1::2]))
    assert run(folder)["by_format"] == {"otel": 1}
    assert stored(folder) == ["t1"]
    (folder / "logs/c.jsonl").write_bytes(spans[1])
    report = run(folder)
    assert report["added"]["by_reason"] == {"spans of a stored trace": 1}
    (entry,) = (folder / "out/quarantine.jsonl").read_text().splitlines()
    assert json.loads(entry)["raw"].encode() == spans[1].rstrip()
    assert "--full" in json.loads(entry)["detail"]
    assert run(folder, full=True)["by_format"] == {"otel": 1}


def test_other_redaction_settings_are_refused(folder):
    run(folder)
    with pytest.raises(DataError, match="other settings"):
        run(folder, config={"redaction": RedactionConfig(enabled=False)})


def test_another_redaction_key_is_refused(folder, monkeypatch):
    monkeypatch.setenv("TRACEWHEEL_REDACTION_KEY", "long and random")
    run(folder)
    assert run(folder)["added"]["read"] == 0
    monkeypatch.setenv("TRACEWHEEL_REDACTION_KEY", "another")
    with pytest.raises(DataError, match="another key"):
        run(folder)
    assert b"long and random" not in b"".join(path.read_bytes() for path in (folder / "out").glob("*") if path.is_file())


@pytest.mark.parametrize("full", [False, True])
def test_a_folder_of_something_else_is_refused_and_unchanged(folder, full):
    (folder / "out").mkdir()
    (folder / "out/thesis.txt").write_text("ten years")
    with pytest.raises(DataError, match="give an empty or a new folder"):
        run(folder, full=full)
    assert (folder / "out/thesis.txt").read_text() == "ten years"


def test_the_output_folder_is_not_read_as_a_log(folder):
    report = run(folder, paths=(str(folder),))
    assert report["read"] == 5
    report = run(folder, paths=(str(folder),))
    assert (report["added"]["read"], report["skipped"]) == (0, [])


def test_progress_rises_to_the_size_of_the_logs(folder):
    seen = []
    run(folder, watch=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == (folder / "logs/a.jsonl").stat().st_size


class Killed(BaseException):
    """Ends the process, as far as a test can."""


@pytest.mark.parametrize("step", ["rename", "second rename", "flush"])
def test_a_kill_at_the_end_leaves_the_old_or_the_new_folder(folder, monkeypatch, step):
    run(folder)
    before = stored(folder)
    (folder / "logs/b.jsonl").write_bytes(lines(8))
    with monkeypatch.context() as patched:
        usual, renames = os.replace, []

        def replace(old, new):
            if "out" in (Path(old).name, Path(new).name):
                renames.append(new)
            if len(renames) == {"rename": 1, "second rename": 2}.get(step, -1):
                raise Killed
            usual(old, new)

        patched.setattr(store.os, "replace", replace)
        if step == "flush":
            patched.setattr(store, "flush", lambda path: (_ for _ in ()).throw(Killed))
        # A killed process removes nothing.
        patched.setattr(store, "remove", lambda path: None if ".partial-out" in path.name else store_remove(path))
        with pytest.raises(Killed):
            run(folder)
    report = run(folder)
    assert report["added"]["kept"] == 1
    assert stored(folder) == [*before, "id-8"]
    assert sorted(path.name for path in folder.iterdir()) == ["logs", "out"]


store_remove = store.remove

CHILD = """
import sys
from pathlib import Path
from tracewheel.config import IngestConfig
from tracewheel.traces.incremental import ingest_new
folder = Path(sys.argv[1])
print("begun", flush=True)
ingest_new(IngestConfig(paths=(str(folder / "logs"),)), folder / "out")
"""


def test_an_ingest_continues_after_sigkill(folder):
    (folder / "logs/a.jsonl").write_bytes(lines(*range(6000)))
    for wait in (0.05, 0.2, 0.35):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
        )
        child.stdout.readline()
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
        if (folder / "out").exists():
            stored(folder)
    run(folder)
    assert stored(folder) == [f"id-{number}" for number in range(6000)]


def test_a_concurrent_ingest_is_refused(folder):
    (folder / ".lock-out").touch()
    with hold(folder / ".lock-out"), pytest.raises(InfrastructureError, match="another ingest"):
        run(folder)
    assert run(folder)["read"] == 5


def test_a_full_disk_leaves_the_folder_unchanged(folder, monkeypatch):
    run(folder)
    before = snapshot(folder / "out")
    (folder / "logs/b.jsonl").write_bytes(lines(8))

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "flush", full)
    with pytest.raises((OSError, InfrastructureError)):
        run(folder)
    assert snapshot(folder / "out") == before


def test_incremental_and_whole_ingest_give_equal_counts(folder):
    report = run(folder)
    whole = ingest(IngestConfig(paths=(str(folder / "logs"),)), folder / "at_once")
    assert {key: report[key] for key in whole} == whole
    assert stage.TRACES_FILE == "traces.parquet"
