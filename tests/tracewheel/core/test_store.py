"""The store: complete entries, reuse by content, and what remains after a kill or on a full disk."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.store import (
    BESIDE,
    FACTS,
    PARTIAL,
    Store,
    beside,
    produce_whole,
    read_metadata,
    rewrite_whole,
    write_whole,
)


def write_numbers(count):
    def produce(out):
        (out / "sub").mkdir()
        (out / "sub" / "numbers.txt").write_text("\n".join(map(str, range(count))))
        return {"count": count}

    return produce


def refuse(out):
    raise AssertionError("this entry was to be reused")


def leftovers(root):
    return [path.name for path in root.rglob(f"{PARTIAL}*")]


def test_an_entry_is_made_once_and_then_reused_with_its_result(tmp_path):
    store = Store(tmp_path / "store")
    made = store.make("count", "k1", write_numbers(3))
    again = store.make("count", "k1", refuse)
    assert not made.reused
    assert again.reused
    assert again.result == made.result == {"count": 3}
    assert again.digest == made.digest == digest_of(made.path)
    assert made.path == tmp_path / "store" / "count-k1"
    assert (again.path / "sub" / "numbers.txt").read_text() == "0\n1\n2"
    assert again.seconds == made.seconds
    assert store.history("count") == [made.seconds]
    assert leftovers(tmp_path) == []


def test_equal_outputs_have_equal_digests_wherever_and_whenever_they_are_written(tmp_path):
    first = Store(tmp_path / "a").make("count", "k1", write_numbers(3))
    second = Store(tmp_path / "b").make("other", "k2", write_numbers(3))
    third = Store(tmp_path / "b").make("other", "k3", write_numbers(4))
    assert first.digest == second.digest != third.digest


def test_a_digest_covers_names_and_contents(tmp_path):
    for name, files in {"a": {"x": "1"}, "b": {"y": "1"}, "c": {"x": "2"}, "d": {"x": "1", "y": ""}}.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    assert len({digest_of(tmp_path / name) for name in "abcd"}) == 4


@pytest.mark.parametrize(
    ("damage", "flaw"),
    [
        ("changed", "count-k1: its files are not those that were written"),
        ("file gone", "count-k1: its files are not those that were written"),
        ("facts gone", ".facts/count-k1.json: no such file"),
        ("facts cut", ".facts/count-k1.json: not JSON"),
        ("facts binary", ".facts/count-k1.json: not JSON"),
        ("facts of another", ".facts/count-k1.json: not the metadata of an entry"),
        ("entry gone", None),
    ],
)
def test_a_damaged_entry_is_made_again_and_the_store_says_what_was_wrong(tmp_path, damage, flaw):
    store = Store(tmp_path)
    path = store.make("count", "k1", write_numbers(3)).path
    facts = tmp_path / ".facts" / "count-k1.json"
    match damage:
        case "changed":
            (path / "sub" / "numbers.txt").write_text("9")
        case "file gone":
            (path / "sub" / "numbers.txt").unlink()
        case "facts gone":
            (tmp_path / ".facts" / "count-k1.json").unlink()
        case "facts cut":
            facts.write_text(facts.read_text()[:20])
        case "facts binary":
            facts.write_bytes(b"\xff\x00\xfe")
        case "facts of another":
            facts.write_text('{"digest": null}')
        case "entry gone":
            path.rename(tmp_path / "elsewhere")
    assert store.find("count", "k1") is None
    said = store.flaws.get("count-k1")
    assert said is None if flaw is None else flaw in said
    assert len(store.history("count")) == (0 if "facts" in damage else 1)
    assert not store.make("count", "k1", write_numbers(3)).reused
    assert store.flaws == {}
    assert (path / "sub" / "numbers.txt").read_text() == "0\n1\n2"


def test_a_failing_stage_raises_its_error_and_leaves_no_files(tmp_path):
    def fail(out):
        (out / "half.txt").write_text("half")
        raise DataError("logs.jsonl: no such trace file")

    with pytest.raises(DataError, match="no such trace file"):
        Store(tmp_path).make("count", "k1", fail)
    assert leftovers(tmp_path) == []
    assert Store(tmp_path).find("count", "k1") is None


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path):
    def fill(out):
        (out / "half.txt").write_text("half")
        with open("/dev/full", "w") as full:
            full.write("x" * 100_000)

    with pytest.raises(InfrastructureError, match="No space left on device"):
        Store(tmp_path).make("count", "k1", fill)
    assert leftovers(tmp_path) == []


def test_a_full_disk_that_a_library_reports_its_own_way_is_recognised(tmp_path, monkeypatch):
    def fail(out):
        raise RuntimeError("PytorchStreamWriter failed writing file")

    with pytest.raises(RuntimeError, match="Pytorch"):
        Store(tmp_path).make("count", "k1", fail)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(InfrastructureError, match="no space left"):
        Store(tmp_path).make("count", "k1", fail)


def test_a_store_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store")
    with pytest.raises(InfrastructureError, match="file"):
        store.make("count", "k1", write_numbers(1))
    with pytest.raises(InfrastructureError, match="file"), store.exclusive():
        pass


def test_one_process_at_a_time(tmp_path):
    refused = pytest.raises(InfrastructureError, match=f"process {os.getpid()}")
    with Store(tmp_path).exclusive(), refused, Store(tmp_path).exclusive():
        pass
    with Store(tmp_path).exclusive():
        assert (tmp_path / ".lock").exists()


@pytest.mark.parametrize("_", range(20))
def test_threads_make_entries_at_once(tmp_path, _):
    """Each thread writes to its own folder, even for the same entry; the first to finish is kept."""
    store, together = Store(tmp_path), threading.Barrier(4)

    def produce(out):
        together.wait(timeout=30)  # all four are writing
        (out / "same.txt").write_text("same")
        together.wait(timeout=30)

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda key: store.make("count", key, produce), ["k1", "k1", "k2", "k2"]))
    assert [entry.key for entry in made] == ["k1", "k1", "k2", "k2"]
    assert len({entry.digest for entry in made}) == 1
    assert store.find("count", "k1")
    assert store.find("count", "k2")
    assert leftovers(tmp_path) == []


def test_exclusive_deletes_partial_output_of_killed_processes(tmp_path):
    (tmp_path / f"{PARTIAL}count-k1-123").mkdir(parents=True)
    (tmp_path / f"{PARTIAL}count-k1-123" / "half.txt").write_text("half")
    (tmp_path / f"{PARTIAL}count-k1-123.json").write_text("{")
    with Store(tmp_path).exclusive():
        assert leftovers(tmp_path) == []


ENDLESS = """
import sys
from pathlib import Path
from tracewheel.core.store import Store
store = Store(Path(sys.argv[1]))
def produce(out):
    for part in range(20):
        (out / f"part-{part}.bin").write_bytes(bytes([part]) * 50_000)
    return {"parts": 20}
with store.exclusive():
    number = 0
    print("ready", flush=True)
    while True:
        store.make("endless", f"k{number}", produce)
        number += 1
"""


def test_after_kills_at_random_moments_every_entry_is_whole(tmp_path):
    rng = random.Random(3)
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        while not list(tmp_path.glob("endless-*")):
            time.sleep(0.01)  # the first entry, however busy the machine is
        time.sleep(rng.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        store = Store(tmp_path)
        entries = [path for path in tmp_path.iterdir() if path.name.startswith("endless-")]
        assert all(store.find("endless", path.name.removeprefix("endless-")) for path in entries)
    with Store(tmp_path).exclusive():
        assert leftovers(tmp_path) == []
    assert entries


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "deep" / "state.json"
    write_whole(path, "one")
    write_whole(path, "two")
    assert path.read_text() == "two"
    assert leftovers(tmp_path) == []


def test_an_output_folder_is_replaced_as_one_or_left_as_it_was(tmp_path):
    out = tmp_path / "nested" / "out"
    assert produce_whole(out, write_numbers(2)) == {"count": 2}

    def fail(folder):
        (folder / "half.txt").write_text("half")
        raise DataError("bad")

    with pytest.raises(DataError):
        produce_whole(out, fail)
    assert (out / "sub" / "numbers.txt").read_text() == "0\n1"
    produce_whole(out, write_numbers(1))
    assert (out / "sub" / "numbers.txt").read_text() == "0"
    assert leftovers(tmp_path) == []


def test_metadata_is_not_part_of_the_output(tmp_path):
    Store(tmp_path).make("count", "k1", write_numbers(1))
    facts = json.loads((tmp_path / ".facts" / "count-k1.json").read_text())
    assert set(facts) == {"digest", "seconds", "result", "finished"}


def test_what_an_entry_was_made_from_is_in_its_facts_and_notes_lie_beside_it(tmp_path):
    def with_notes(out):
        (out / BESIDE).mkdir()
        (out / BESIDE / "note.txt").write_text("a note")
        return write_numbers(1)(out)

    noted = Store(tmp_path).make("count", "k1", with_notes, lambda out: {"files": len(list(out.iterdir()))})
    assert read_metadata(tmp_path / FACTS / "count-k1.json")["made"] == {"files": 1}
    assert (beside(tmp_path, "count-k1") / "note.txt").read_text() == "a note"
    assert noted.digest == Store(tmp_path / "other").make("count", "k1", write_numbers(1)).digest
    (noted.path / "sub" / "numbers.txt").write_text("damaged")
    assert Store(tmp_path).make("count", "k1", write_numbers(1)).digest == noted.digest
    assert not beside(tmp_path, "count-k1").exists()
    assert leftovers(tmp_path) == []


SLOW_STAGE = """
import sys, time
from pathlib import Path
from tracewheel.core.store import produce_whole

def produce(folder):
    (folder / "half").write_text("written")
    print("begun", flush=True)
    time.sleep(60)

produce_whole(Path(sys.argv[1]), produce)
"""


def test_partial_output_is_deleted_unless_its_process_is_alive(tmp_path):
    out = tmp_path / "out"
    (tmp_path / ".partial-out-of-another-stage-1").mkdir()

    def begin():
        process = subprocess.Popen([sys.executable, "-c", SLOW_STAGE, str(out)], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "begun\n"
        return process, tmp_path / f".partial-out-{process.pid}"

    (killed, left), (living, growing) = begin(), begin()
    killed.kill()
    killed.wait()
    assert left.is_dir(), "nothing has looked for it yet"
    try:
        produce_whole(out, lambda folder: (folder / "whole").write_text("written"))
        assert not left.exists() and (growing / "half").is_file() and (out / "whole").is_file()
    finally:
        living.kill()
        living.wait()
    produce_whole(out, lambda folder: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".partial-out-of-another-stage-1", "out"]


def test_a_file_that_is_changed_keeps_its_mode_and_one_that_is_not_stays(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"one\ntwo\n")
    file.chmod(0o600)
    before = file.stat().st_ino
    rewrite_whole(file, lambda data: data)
    assert file.stat().st_ino == before
    with pytest.raises(ZeroDivisionError):
        rewrite_whole(file, lambda data: 1 // 0)
    rewrite_whole(file, lambda data: data.replace(b"two\n", b""))
    assert file.read_bytes() == b"one\n" and file.stat().st_mode & 0o777 == 0o600 and list(tmp_path.iterdir()) == [file]
