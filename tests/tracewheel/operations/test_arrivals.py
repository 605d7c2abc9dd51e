"""Records that arrive in a folder are counted once they are whole, and once."""

import gzip
import json
from datetime import UTC, datetime

import pytest

from tracewheel.config import IngestConfig
from tracewheel.operations.arrivals import Arrivals


def line(number):
    messages = [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": "answer"}]
    return json.dumps({"messages": messages, "id": str(number)})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def opened(folder, tmp_path):
    """Opens the count, as each start of `deploy` does."""

    def open_again(quiet=0.0):
        arrivals = Arrivals.open(IngestConfig(paths=(str(folder),)), (str(folder),), tmp_path / "arrivals.json")
        arrivals.quiet_seconds = quiet
        return arrivals

    return open_again


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_a_line_counts_once_it_is_whole(folder, opened):
    arrivals, log = opened(), folder / "log.jsonl"
    assert arrivals.look() == 0
    append(log, line(1) + "\n" + line(2) + "\n" + line(3)[:20])
    assert arrivals.look() == 2
    append(log, line(3)[20:40])
    assert arrivals.look() == 2
    append(log, line(3)[40:])  # whole, though its line has no end
    assert arrivals.look() == 3
    append(log, "\n" + line(4) + "\n")
    assert arrivals.look() == 4
    assert arrivals.look() == 4


def test_the_count_goes_on_after_a_restart(folder, opened):
    append(folder / "log.jsonl", f"{line(1)}\n{line(2)}\n")
    assert opened().look() == 2
    append(folder / "log.jsonl", f"{line(3)}\n")
    append(folder / "other.jsonl", f"{line(4)}\n")
    assert opened().look() == 4


def test_what_a_run_has_taken_in_counts_no_more(folder, opened):
    arrivals = opened()
    append(folder / "log.jsonl", f"{line(1)}\n{line(2)}\n")
    arrivals.look()
    arrivals.forget_until(datetime.now(UTC))
    assert arrivals.total == 0
    append(folder / "log.jsonl", f"{line(3)}\n")
    assert opened().look() == 1


def test_a_record_that_nobody_reads_counts_as_its_run_will_say_so(folder, opened):
    append(folder / "log.jsonl", '{"what": "is this"}\n')
    assert opened().look() == 1


def test_a_file_that_is_read_as_a_whole_counts_when_it_no_longer_changes(folder, opened):
    arrivals = opened(quiet=0.2)
    (folder / "all.json").write_text(f"[{line(1)},\n{line(2)}")
    packed = gzip.compress((line(3) + "\n").encode())
    (folder / "old.jsonl.gz").write_bytes(packed[:20])
    assert arrivals.look() == 0
    (folder / "all.json").write_text(f"[{line(1)},\n{line(2)}]")
    (folder / "old.jsonl.gz").write_bytes(packed)
    assert arrivals.look() == 0
    arrivals.quiet_seconds = 0.0
    assert arrivals.look() == 3
    assert arrivals.look() == 3


def test_a_rotated_log_is_counted_from_its_beginning(folder, opened):
    arrivals, log = opened(), folder / "log.jsonl"
    append(log, f"{line(1)}\n{line(2)}\n")
    assert arrivals.look() == 2
    log.write_text(f"{line(3)}\n")
    assert arrivals.look() == 3


def test_an_empty_file_is_no_record_and_a_damaged_state_is_counted_again(folder, opened, tmp_path):
    (folder / "empty.jsonl").touch()
    arrivals = opened()
    assert arrivals.look() == 0
    append(folder / "log.jsonl", f"{line(1)}\n")
    arrivals.look()
    (tmp_path / "arrivals.json").write_text("{")
    assert opened().look() == 1


def test_a_look_at_an_unchanged_folder_reads_nothing(folder, opened, monkeypatch):
    arrivals = opened()
    append(folder / "log.jsonl", f"{line(1)}\n")
    arrivals.look()
    opens = []
    monkeypatch.setattr("io.FileIO", lambda *args, **_: opens.append(args))
    assert arrivals.look() == 1
    assert not opens


def test_a_session_is_one_record_and_counts_again_when_it_has_grown(opened, folder):
    arrivals, log = opened(), folder / "session.jsonl"
    turns = []
    for number, (kind, text) in enumerate([("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]):
        message = {"role": kind, "content": text if kind == "user" else [{"type": "text", "text": text}]}
        place = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None, "sessionId": "s"}
        turns.append({"type": kind, **place, "timestamp": f"2026-01-01T00:00:0{number}Z", "message": message})
    append(log, "".join(json.dumps(turn) + "\n" for turn in turns[:2]))
    assert arrivals.look() == 1
    append(log, "".join(json.dumps(turn) + "\n" for turn in turns[2:]))
    arrivals.look()
    assert arrivals.look() == 2
