"""What of the logs existed at a moment: nothing later is visible, whatever lies in the files, and nothing earlier is lost."""

import gzip
import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.backtest.history import read_history
from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)


def record(number, created=None, **fields):
    messages = [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is {number}."}]
    return {"id": f"id-{number}", **({"created": created} if created else {}), **fields, "messages": messages}


def day(number, hour=0):
    return BEGIN + timedelta(days=number, hours=hour)


def text_of(moment):
    return moment.isoformat().replace("+00:00", "Z")


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in records))


def history_of(folder):
    return read_history(IngestConfig(paths=(str(folder),)))


def seen(folder):
    """The ids in a folder of logs, by file."""
    return {path.name: [json.loads(line)["id"] for line in path.read_text().splitlines()] for path in sorted(folder.iterdir())}


def test_files_grow_in_the_order_of_the_times(tmp_path):
    late_first = [record(1, text_of(day(3))), record(2, text_of(day(0))), record(3, text_of(day(1)))]
    write(tmp_path / "logs/a.jsonl", late_first)
    history, view = history_of(tmp_path / "logs"), tmp_path / "view"
    assert history.extend(view, None, day(1)) == 1 and seen(view) == {"a.jsonl": ["id-2"]}
    before = (view / "a.jsonl").read_bytes()
    assert history.extend(view, day(1), day(2)) == 1 and seen(view) == {"a.jsonl": ["id-2", "id-3"]}
    assert (view / "a.jsonl").read_bytes().startswith(before)
    (view / "a.jsonl").write_bytes((view / "a.jsonl").read_bytes()[:-9])  # a kill in mid-line
    history.extend(view, day(1), day(2))
    assert seen(view) == {"a.jsonl": ["id-2", "id-3"]}
    assert history.extend(view, day(2), day(9)) == 1 and seen(view)["a.jsonl"][-1] == "id-1"


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=12), st.integers(1, 9), st.data())
def test_a_poisoned_future_changes_no_earlier_byte(tmp_path_factory, lines, today, data):
    """Any records from `today` on, anywhere in the file, leave what is visible before them as it is."""
    folder = tmp_path_factory.mktemp("history")
    past = [record(place, text_of(day(at, 1))) for place, (at, _) in enumerate(lines) if at < today]
    future = data.draw(st.lists(st.tuples(st.integers(today, 12), st.integers(0, len(past))), max_size=5))
    mixed = list(past)
    for number, (at, place) in enumerate(future):
        mixed.insert(place, record(1000 + number, text_of(day(at)), reward=float(number % 2)))
    for name, records in (("clean", past), ("poisoned", mixed)):
        write(folder / name / "a.jsonl", records or [record(9999, text_of(day(20)))])
        history_of(folder / name).extend(folder / f"{name}-view", None, day(today))
    views = [{path.name: path.read_bytes() for path in (folder / f"{name}-view").glob("*")} for name in ("clean", "poisoned")]
    assert views[0] == views[1]


def test_a_line_without_a_time_waits_for_the_next_one_that_has_one(tmp_path):
    write(tmp_path / "logs/a.jsonl", [record(1, text_of(day(0))), record(2), record(3, text_of(day(2))), record(4)])
    history, view = history_of(tmp_path / "logs"), tmp_path / "view"
    history.extend(view, None, day(1))
    assert seen(view) == {"a.jsonl": ["id-1"]}
    history.extend(view, day(1), day(3))
    assert seen(view) == {"a.jsonl": ["id-1", "id-2", "id-3", "id-4"]}


def test_spans_exist_from_their_end_and_requests_from_their_time(tmp_path):
    def span(number, begin, end):
        nanos = [str(int(moment.timestamp()) * 10**9) for moment in (begin, end)]
        value = {"traceId": "t", "spanId": str(number), "name": "chat", "attributes": []}
        value |= {"startTimeUnixNano": nanos[0], "endTimeUnixNano": nanos[1]}
        return {"id": f"id-{number}", "resourceSpans": [{"scopeSpans": [{"spans": [value]}]}]}

    write(tmp_path / "logs/spans.jsonl", [span(1, day(0), day(0, 1)), span(2, day(0), day(2))])
    write(tmp_path / "logs/lines.jsonl", [{"id": "id-5", "timestamp": int(day(1).timestamp() * 1000), "type": "unknown"}])
    history, view = history_of(tmp_path / "logs"), tmp_path / "view"
    history.extend(view, None, day(1))
    assert seen(view) == {"spans.jsonl": ["id-1"]}
    history.extend(view, day(1), day(3))
    assert seen(view) == {"lines.jsonl": ["id-5"], "spans.jsonl": ["id-1", "id-2"]}


def test_what_is_read_as_a_whole_appears_with_its_last_record(tmp_path):
    (tmp_path / "logs").mkdir()
    both = [record(1, text_of(day(0))), record(2, text_of(day(4)))]
    (tmp_path / "logs/array.json").write_text(json.dumps(both))
    with gzip.open(tmp_path / "logs/lines.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(one) + "\n" for one in both))
    history, view = history_of(tmp_path / "logs"), tmp_path / "view"
    assert history.extend(view, None, day(4)) == 0 and not view.exists()
    assert history.extend(view, day(4), day(5)) == 2
    assert (view / "array.json").read_bytes() == (tmp_path / "logs/array.json").read_bytes()
    assert any("read as a whole" in sentence and "array.json" in sentence for sentence in history.says())


def test_without_times_a_file_counts_by_its_name_or_its_last_change(tmp_path):
    for name in ("agent-2026-10-02.jsonl", "20261003.jsonl", "other.jsonl"):
        write(tmp_path / f"logs/{name}", [record(name)])
    os.utime(tmp_path / "logs/other.jsonl", (day(4).timestamp(),) * 2)
    history, view = history_of(tmp_path / "logs"), tmp_path / "view"
    assert [history.extend(view, day(at), day(at + 1)) for at in range(6)] == [0, 1, 1, 0, 1, 0]
    assert [sentence.split(": ")[-1] for sentence in history.says()] == [
        "the files count by the dates in their names",
        "the files count by the dates of their last change",
    ]


def test_a_file_without_a_record_counts_on_no_day(tmp_path):
    (tmp_path / "logs").mkdir()
    for name, text in (("agent-2026-10-02.jsonl", ""), ("blank.jsonl", "\n\n"), ("list.json", "[]")):
        (tmp_path / "logs" / name).write_text(text)
    with pytest.raises(DataError, match="logs: none of the log files has a record"):
        history_of(tmp_path / "logs")
    write(tmp_path / "logs/a.jsonl", [record(1, text_of(day(3)))])
    history = history_of(tmp_path / "logs")
    assert history.extend(tmp_path / "view", None, day(3)) == 0 and not history.says()
    assert history.span == (day(3), day(3)) and set(history.digests) == {"a.jsonl"}


def test_zones_are_compared_in_utc_and_a_mix_with_none_is_refused(tmp_path):
    write(tmp_path / "one/a.jsonl", [record(1, "2026-10-02T01:00:00+02:00"), record(2, "2026-10-01T22:30:00Z")])
    history, view = history_of(tmp_path / "one"), tmp_path / "view"
    history.check_zones(assume_utc=False)
    history.extend(view, None, datetime(2026, 10, 1, 22, 45, tzinfo=UTC))
    assert seen(view) == {"a.jsonl": ["id-2"]}
    assert any("several zones" in sentence and "+02:00 (1)" in sentence for sentence in history.says())

    write(tmp_path / "two/a.jsonl", [record(1, "2026-10-02T01:00:00+02:00"), record(2, "2026-10-01T22:30:00")])
    mixed = history_of(tmp_path / "two")
    with pytest.raises(DataError, match=r"a.jsonl:2: its time has no zone.*a.jsonl:1 has one \(\+02:00\)"):
        mixed.check_zones(assume_utc=False)
    mixed.check_zones(assume_utc=True)

    write(tmp_path / "three/a.jsonl", [record(1, "2026-10-02T01:00:00"), record(2, "2026-10-01 22:30:00")])
    naive = history_of(tmp_path / "three")
    naive.check_zones(assume_utc=False)
    assert naive.says() == ["the times of the logs have no zone: they count as UTC"]


def test_a_byte_order_mark_and_windows_line_ends_cost_nothing(tmp_path):
    (tmp_path / "logs").mkdir()
    lines = [json.dumps(record(number, text_of(day(number)))) for number in range(3)]
    (tmp_path / "logs/a.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    history, view = history_of(tmp_path / "logs"), tmp_path / "view"
    assert history.extend(view, None, day(9)) == 3
    assert (view / "a.jsonl").read_text().splitlines() == lines
