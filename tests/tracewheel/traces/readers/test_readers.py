"""One conversation in every format of the core: all give the same messages, and each the fields that only it has."""

import copy
import json
import re
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import RECORDS, SPANS, STORY, conversation, read
from tracewheel.config import IngestConfig
from tracewheel.core.kind_table import WHEELS
from tracewheel.core.log_formats import LOG_FORMATS, TRIED
from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import REASONS, Quarantined
from tracewheel.traces.readers import log_reader
from tracewheel.traces.readers.log_reader import LogReader, built_in_readers
from tracewheel.traces.spool import Spool

ROOT = Path(__file__).parents[4]
ALL = {**{name: [record] for name, record in RECORDS.items()}, **SPANS}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("asked", ["auto", "by name"])
def test_every_format_gives_the_same_conversation(name, asked):
    (trace,) = read(*ALL[name], format="auto" if asked == "auto" else name)
    assert isinstance(trace, Trace), trace
    assert trace.format == name
    assert conversation(trace) == STORY
    for reply in trace.messages[2:3]:
        assert reply["tool_call_id"] == trace.messages[1]["tool_calls"][0]["id"]
    assert trace.source_line == 1
    assert Trace.from_record(trace.to_record()) == trace


def test_all_formats_have_a_sample_a_line_in_the_docs_and_a_name_in_the_config():
    assert set(ALL) == set(TRIED) - WHEELS["log format"].keys()
    table = (ROOT / "docs/traces.md").read_text().split("## Formats")[1].split("\n## ")[0]
    assert {name.strip("`") for name in re.findall(r"^\| (`\w+`) \|", table, re.MULTILINE)} == set(ALL)
    for name in ("auto", *LOG_FORMATS):
        assert IngestConfig(format=name).format == name
    with pytest.raises(ValueError, match="no log format is called 'jsonl'; known: auto, .*openai"):
        IngestConfig(format="jsonl")


@pytest.mark.parametrize("name", RECORDS)
def test_each_record_has_the_most_specific_signs_for_its_own_reader_only(name):
    readers = [reader for reader in built_in_readers() if reader.gathers == "record" and reader.recognises(RECORDS[name])]
    most = max(reader.signs for reader in readers)
    assert {reader.name for reader in readers if reader.signs == most} == {name}


KNOWN = {
    "openai": {"id": "x", "session": "conv", "user": "u1", "created": "2026-10-01T08:00:00Z", "model": "m", "outcome": 1.0},
    "tracewheel": {"id": "x", "task": "4", "outcome": None},
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_fields_other_than_the_conversation_are_kept(name):
    (trace,) = read(*ALL[name])
    assert {key: getattr(trace, key) for key in KNOWN[name]} == KNOWN[name]


GIVEN_TOOLS = {"openai"}


@pytest.mark.parametrize("name", ALL)
def test_tools_are_logged_ones_or_inferred_and_marked(name):
    (trace,) = read(*ALL[name])
    assert [tool["function"]["name"] for tool in trace.tools] == ["weather"]
    parameters = trace.tools[0]["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert trace.tools_inferred == (name not in GIVEN_TOOLS)


def test_tokens_and_log_probabilities_are_kept():
    (trace,) = read(RECORDS["tracewheel"])
    assert trace.tokens == {"token_ids": [1, 2, 3], "logprobs": [0.0, -0.5, -0.25], "action_mask": [0, 1, 1]}


def test_a_list_of_messages_is_one_conversation_unless_it_is_too_large(monkeypatch):
    elements = [
        Piece(json.dumps(message).encode(), number, 0, 1) for number, message in enumerate(RECORDS["openai"]["messages"], 1)
    ]
    for limit, kind in ((1 << 20, Trace), (50, Quarantined)):
        monkeypatch.setattr(log_reader, "LARGEST_LIST", limit)
        with Spool() as spool:
            (item,) = LogReader("auto", spool).read(elements, "log")
        assert isinstance(item, kind)
    assert item.reason == "too large"
    assert (item.line, item.raw) == (1, elements[0].raw)


def test_a_damaged_or_truncated_list_of_messages_is_quarantined_whole():
    """A conversation without its middle or end is not the logged one."""
    whole = [
        Piece(json.dumps(message).encode(), number, 0, 1) for number, message in enumerate(RECORDS["openai"]["messages"], 1)
    ]
    for last, reason in ((Piece(b"", 9, 0, 1, "truncated", True), "truncated"), (Piece(b"{,}", 9, 0, 1), "not JSON")):
        with Spool() as spool:
            (item,) = LogReader("auto", spool).read([*whole, last], "log")
        assert item.reason == reason
        assert item.raw.startswith(whole[0].raw)


def damaged(name, change):
    record = copy.deepcopy(RECORDS[name])
    change(record)
    return record


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"hello": "world"}, "unknown format"),
        ([{"role": "user"}], "not an object"),
        (damaged("openai", lambda r: r["messages"][1].update(content=[{"type": "image"}])), "content is not text"),
        (damaged("openai", lambda r: r["messages"][2].update(tool_call_id="c9")), "tool reply without a call"),
        (damaged("tracewheel", lambda r: r.update(logprobs=[0.0])), "tokens unreadable"),
    ],
)
def test_damaged_records_are_quarantined_with_the_reason(record, reason):
    (item,) = read(record)
    assert isinstance(item, Quarantined)
    assert item.reason == reason
    assert reason in REASONS
