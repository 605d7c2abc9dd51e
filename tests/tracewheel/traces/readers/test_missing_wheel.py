"""Without the wheel of logs: whoever names one of its formats, or has a log that nobody knows, is told how to get it."""

import json

import pytest

from flows.cli import main
from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.log_formats import LOG_FILES, LOG_FORMATS, READERS, REQUEST_BODIES
from tracewheel.traces.ingest import ingest
from tracewheel.traces.readers import log_reader
from tracewheel.traces.readers.reading import read_traces

HOW = "not installed: pip install tracewheel-logs"
SPAN = {"traceId": "t", "spanId": "s", "name": "chat", "attributes": {"llm.input_messages.0.message.role": "user"}}
CHAT = [{"role": "user", "content": "Weather in Rome?"}, {"role": "assistant", "content": "It is sunny."}]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No wheel is installed."""
    for table in (LOG_FORMATS, LOG_FILES, READERS, REQUEST_BODIES):
        monkeypatch.setattr(table, "wheels", {})
    log_reader.built_in_readers.cache_clear()
    yield
    log_reader.built_in_readers.cache_clear()


def test_a_format_named_in_a_profile_or_on_the_command_line(tmp_path, capsys):
    with pytest.raises(ValueError, match=f"log format 'langfuse' is {HOW}"):
        IngestConfig(format="langfuse")
    with pytest.raises(ValueError, match=f"reader 'mapping' is {HOW}"):
        IngestConfig(readers=({"kind": "mapping", "args": {"conversation": "a"}},))
    with pytest.raises(ValueError, match="no log format is called 'jsonl'; known: auto, openai"):
        IngestConfig(format="jsonl")
    with pytest.raises(SystemExit) as ended:
        main(["ingest", str(tmp_path), "--format", "langfuse", "--out", str(tmp_path / "out")])
    assert ended.value.code == 2 and f"'langfuse' is {HOW}" in capsys.readouterr().err


@pytest.mark.parametrize("record", [{"trace": {"id": "t"}, "observations": []}, SPAN])
def test_a_record_that_nobody_knows(tmp_path, record):
    (tmp_path / "log.jsonl").write_text(json.dumps(record))
    (item,) = read_traces({"log": tmp_path / "log.jsonl"})
    assert item.reason in ("unknown format", "no messages") and HOW in item.detail


def test_an_archive_of_inspect(tmp_path):
    (tmp_path / "a.eval").write_bytes(b"PK")
    with pytest.raises(DataError, match=f"a.eval: what reads .eval files is {HOW}"):
        ingest(IngestConfig(paths=(str(tmp_path / "a.eval"),)), tmp_path / "out")


def test_a_list_of_chat_messages_is_the_cores(tmp_path):
    (tmp_path / "log.json").write_text(json.dumps(CHAT))
    (trace,) = read_traces({"log": tmp_path / "log.json"})
    assert (trace.format, trace.messages) == ("openai", CHAT)
