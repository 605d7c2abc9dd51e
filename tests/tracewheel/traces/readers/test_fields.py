"""Fields by their names and at given paths, and times in UTC."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.cli import main
from tracewheel.config import IngestConfig
from tracewheel.core.types import Trace
from tracewheel.traces.ingest import ingest
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.fields import NAMES, utc_time
from tracewheel.traces.readers.reading import read_traces

ROOT = Path(__file__).parents[4]
MESSAGES = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]


@pytest.fixture
def read(tmp_path):
    """Reads values, one a line."""

    def call(*values, **options):
        path = tmp_path / "log.jsonl"
        path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
        return list(read_traces({"log": path}, **options))

    return call


# What is logged, the field, and its value.
USUAL_NAMES = [
    ({"success": True}, "outcome", 1.0),
    ({"success": "no"}, "outcome", 0.0),
    ({"resolved": False}, "outcome", 0.0),
    ({"score": 0.25}, "outcome", 0.25),
    ({"metadata": {"reward": 1}}, "outcome", 1.0),
    ({"metadata": {"Is-Correct": "true"}, "note": "x"}, "outcome", 1.0),
    ({"success": None, "result": {"score": "0.5"}}, "outcome", 0.5),
    ({"score": 0.9, "success": False}, "outcome", 0.0),
    ({"score": {"f1": 1}}, "outcome", None),
    ({"score": 87}, "outcome", None),
    ({"outcome": "error"}, "outcome", None),
    ({"result": {"outcome": "completed"}}, "outcome", None),
    ({"userId": 7}, "user", "7"),
    ({"end_user": "u"}, "user", "u"),
    ({"user": {"name": "n"}, "metadata": {"user_id": "u"}}, "user", "u"),
    ({"sessionId": "s"}, "session", "s"),
    ({"startTime": "2026-10-01T10:00:00+02:00"}, "created", "2026-10-01T08:00:00Z"),
    ({"created": 1790000000}, "created", "2026-09-21T14:13:20Z"),
    ({"created": "1790000000123"}, "created", "2026-09-21T14:13:20.123000Z"),
    ({"timestamp": {"$date": "2026-10-01T08:00:00Z"}}, "created", "2026-10-01T08:00:00Z"),
    ({"model_name": "m"}, "model", "m"),
    ({"instance_id": "i"}, "task", "i"),
    ({"traj_id": "t"}, "id", "t"),
]


@pytest.mark.parametrize(("logged", "field", "value"), USUAL_NAMES)
def test_fields_are_found_by_their_usual_names(read, logged, field, value):
    (trace,) = read({"messages": MESSAGES} | logged)
    assert getattr(trace, field) == value


def test_a_message_may_have_the_time_that_the_record_lacks(read):
    first = MESSAGES[0] | {"timestamp": 1790000000}
    (trace,) = read({"messages": [first, MESSAGES[1]]})
    assert trace.created == "2026-09-21T14:13:20Z"


def test_a_time_that_cannot_be_read_is_counted_and_kept(tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    values = [
        {"messages": MESSAGES, "created": time, "id": str(at)} for at, time in enumerate(("one day", "2026-10-01", "soon"))
    ]
    values[2]["messages"] = [MESSAGES[0], {"role": "assistant", "content": "Hi."}]
    values[1]["messages"] = [MESSAGES[0], {"role": "assistant", "content": "Ho."}]
    log.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    assert main(["ingest", str(log), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unreadable_times"] == 2
    rows = pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")
    traces = {trace.id: trace for trace in map(Trace.from_record, rows)}
    assert [traces[id].created for id in "012"] == [None, "2026-10-01T00:00:00Z", None]
    assert traces["2"].info == {"created": "soon"}


TIMES = st.datetimes(datetime(1991, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TIMES, st.integers(-14 * 60, 14 * 60), st.sampled_from(["iso", "space", "s", "ms", "us", "ns", "text"]))
def test_every_way_to_write_a_time_gives_the_same_moment(moment, minutes, way):
    micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    local = moment.astimezone(timezone(timedelta(minutes=minutes)))
    logged, unit = {
        "iso": (local.isoformat(), 1),
        "space": (local.isoformat(" "), 1),
        "s": (micros // 10**6, 10**6),
        "ms": (micros // 1000, 1000),
        "us": (micros, 1),
        "ns": (micros * 1000 + 7, 1),
        "text": (str(micros // 1000), 1000),
    }[way]
    (read_back,) = pandas.to_datetime([utc_time(logged)], utc=True, format="ISO8601")
    assert read_back == pandas.Timestamp(moment - timedelta(microseconds=micros % unit))
    assert utc_time(utc_time(logged)) == utc_time(logged)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.one_of(
        st.text(), st.floats(), st.integers(), st.none(), st.dictionaries(st.sampled_from(["$date", "seconds"]), st.integers())
    )
)
def test_nothing_raises_and_what_is_read_is_a_time_for_pandas(value):
    time = utc_time(value)
    if time is not None:
        assert not pandas.isna(pandas.to_datetime([time], utc=True, format="ISO8601", errors="coerce")[0])


def test_given_fields_come_before_those_that_a_reader_found(read):
    fields = {
        "outcome": "grade.passed[-1]",
        "user": 'grade."by.whom"',
        "model": "=ours",
        "tenant": "grade.tenant",
        "task": "no.such",
    }
    record = {"messages": MESSAGES, "reward": 0, "task": "t", "grade": {"passed": ["no", "yes"], "by.whom": 3, "tenant": "a"}}
    (trace,) = read(record, fields=fields)
    assert (trace.outcome, trace.user, trace.model, trace.task, trace.info["tenant"]) == (1.0, "3", "ours", "t", "a")
    (bad,) = read({"messages": MESSAGES, "grade": {"passed": [{"a": 1}]}}, fields=fields)
    assert isinstance(bad, Quarantined)
    assert "ingest.fields, outcome" in bad.detail and "grade.passed[-1]" in bad.detail


def test_given_fields_in_a_config(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"messages": MESSAGES, "grade": "pass"}) + "\n")
    ingest(IngestConfig(paths=(str(log),), fields={"outcome": "grade"}), tmp_path / "out")
    assert pandas.read_parquet(tmp_path / "out/traces.parquet").outcome.tolist() == [1.0]
    with pytest.raises(ValueError, match="no path"):
        IngestConfig(fields={"outcome": "a[x]"})


def test_the_docs_list_the_names():
    rows = re.findall(
        r"^\| `(\w+)` \| (`.*) \|$",
        (ROOT / "docs/traces.md").read_text().split("## Fields and times")[1].split("\n## ")[0],
        re.MULTILINE,
    )
    listed = {field: tuple(re.findall(r"`(\w+)`", names)) for field, names in rows if field in NAMES}
    assert listed == NAMES
