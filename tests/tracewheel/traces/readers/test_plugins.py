"""Readers of one's own: the example, mistakes in a class, and what they change in a folder and in a stage's key."""

import json
import sys
from pathlib import Path

import pandas
import pytest

from flows.cli import main
from tasks.stages.curate import curate_tasks
from tasks.stages.ingest import ingest_traces
from tracewheel.config import IngestConfig, ReaderConfig, RetrainConfig
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.types import Trace
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.reading import read_traces

ROOT = Path(__file__).parents[4]
EXAMPLE = "examples.help_desk_reader:HelpDeskReader"
TICKET = {
    "ticket": 4711,
    "status": "refunded",
    "opened": "2026-10-01T08:00:00Z",
    "dialogue": [
        {"who": "customer", "said": "Weather in Rome?"},
        {"who": "agent", "said": "", "did": {"tool": "weather", "with": {"city": "Rome"}, "gave": "sunny"}},
        {"who": "agent", "said": "It is sunny."},
    ],
}
USUAL = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]}


@pytest.fixture
def log(tmp_path):
    """Writes values to a log, one a line."""

    def write(*values, name="log.jsonl"):
        path = tmp_path / name
        path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
        return path

    return write


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A module `own_desk` in the folder that we start from; called with the source of its class `Reader`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(body):
        sys.modules.pop("own_desk", None)
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        (tmp_path / "own_desk.py").write_text(f"from tracewheel import InvalidRecord, RawTrace\n\nclass Reader:\n{lines}\n")
        import importlib

        importlib.invalidate_caches()
        return ReaderConfig(kind="own_desk:Reader")

    yield write
    sys.modules.pop("own_desk", None)


def test_the_example_reads_beside_the_built_in_formats(log, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    path = log(TICKET, USUAL, TICKET | {"ticket": 1, "status": "open", "dialogue": [{"who": "robot", "said": "Hi"}]})
    set_ = 'ingest.readers=[{kind: "examples.help_desk_reader:HelpDeskReader", args: {solved: [refunded]}}]'
    main(["ingest", str(path), "--set", set_, "--out", str(tmp_path / "out"), "--json"])
    assert json.loads(capsys.readouterr().out)["by_format"] == {"help_desk": 1, "openai": 1}
    trace = Trace.from_record(pandas.read_parquet(tmp_path / "out/traces.parquet").iloc[0].to_dict())
    assert [message["role"] for message in trace.messages] == ["user", "assistant", "tool", "assistant"]
    (call,) = trace.messages[1]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert trace.messages[2]["tool_call_id"] == call["id"]
    assert (trace.id, trace.outcome, trace.format, trace.created) == ("4711", 1.0, "help_desk", "2026-10-01T08:00:00Z")
    (bad,) = map(json.loads, (tmp_path / "out/quarantine.jsonl").read_text().splitlines())
    assert (bad["reason"], bad["line"]) == ("unknown role", 3)
    assert EXAMPLE in bad["detail"]


def test_a_record_that_nobody_knows_is_told_of_own_readers(log):
    (item,) = read_traces({"log": log({"dialogue": []})})
    assert item.reason == "unknown format"
    assert "--reader module:Class" in item.detail


def test_an_own_reader_comes_before_the_built_in_ones_even_for_usual_lines(log, desk):
    own = desk(
        "name = 'mine'\n"
        "def recognises(self, value):\n    return True\n"
        "def read(self, value, place):\n    return RawTrace(value['messages'], session=7)"
    )
    traces = list(read_traces({"log": log(USUAL, USUAL)}, own=own_readers([own])))
    assert [(trace.format, trace.session) for trace in traces] == [("mine", "7")] * 2


RECOGNISES = "def recognises(self, value):\n    return {}\n"
READ = "def read(self, value, place):\n    {}"


@pytest.mark.parametrize(
    ("known", "read", "reason", "said"),
    [
        ("value['y']", "pass", "message unreadable", "own_desk:Reader', recognises: KeyError"),
        ("'x' in value", "return 1 / 0", "message unreadable", "own_desk:Reader': ZeroDivisionError"),
        ("'x' in value", "return value", "message unreadable", "is to return a RawTrace"),
        ("'x' in value", "raise InvalidRecord('odd', 'so odd')", "message unreadable", "odd: so odd"),
        ("'x' in value", "return RawTrace([])", "no assistant turn", "own_desk:Reader"),
        ("'x' in value", "return RawTrace(value['x'], info={'s': {1}})", "message unreadable", "set"),
        ("'x' in value", "return RawTrace(value['x'], user=['a'])", "field unreadable", "'user'"),
        ("'x' in value", "return RawTrace(value['x'], outcome='good')", "reward is not a number", "good"),
    ],
)
def test_a_mistake_in_a_reader_only_costs_that_record(log, desk, known, read, reason, said):
    own = own_readers([desk(RECOGNISES.format(known) + READ.format(read))])
    first, second = read_traces({"log": log({"x": USUAL["messages"]}, USUAL | {"y": False})}, own=own)
    assert isinstance(first, Quarantined)
    assert first.reason == reason
    assert ("own_desk:Reader" in first.detail and said in first.detail) or reason == "no assistant turn"
    assert isinstance(second, Trace)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"kind": "own_desk:Reader", "args": {"solved": 1}}, "args.solved: no such argument; it takes no arguments"),
        ({"kind": "own_desk:Reader"}, "has no method read"),
        ({"kind": "own_desk:Other"}, "reader 'own_desk:Other' cannot be imported"),
        ({"kind": "no_such_module:Reader"}, "in the folder that you start from"),
    ],
)
def test_a_reader_that_cannot_be_made_is_an_error_before_anything_is_read(log, desk, tmp_path, config, said):
    desk("def recognises(self, value):\n    return True")
    with pytest.raises(ConfigError) as raised:
        ingest(IngestConfig(paths=(str(log(USUAL)),), readers=(config,)), tmp_path / "out")
    assert said in str(raised.value)


def test_a_name_that_is_no_class_is_refused_with_the_key(log, tmp_path, capsys):
    assert main(["ingest", str(log(USUAL)), "--reader", "desk", "--out", str(tmp_path / "out")]) == 2
    assert "readers.0.kind: Value error, a reader of your own is 'module:Class' or one of mapping" in capsys.readouterr().err


def test_the_code_of_a_reader_belongs_to_the_keys_of_stages_that_ingest_only():
    config = RetrainConfig(name="x", ingest={"readers": [{"kind": EXAMPLE}]})
    assert "examples.help_desk_reader" in ingest_traces.code_parts(config)
    assert "examples.help_desk_reader" not in curate_tasks.code_parts(config)


def test_other_code_of_a_reader_needs_a_full_ingest(log, desk, tmp_path):
    read = RECOGNISES.format("'x' in value") + READ.format("return RawTrace(value['x'])")
    config = IngestConfig(paths=(str(log({"x": USUAL["messages"]})),), readers=(desk(read),))
    assert ingest_new(config, tmp_path / "out")["kept"] == 1
    assert ingest_new(config, tmp_path / "out")["kept"] == 1
    desk(read.replace("['x'])", "['x'], user='u')"))
    with pytest.raises(DataError, match="other code of a reader"):
        ingest_new(config, tmp_path / "out")
    assert ingest_new(config, tmp_path / "out", full=True)["kept"] == 1
