"""Ten thousand lines, many damaged in one of many ways: each is quarantined with its reason and bytes."""

import base64
import copy
import json
import random

import pandas
import pytest

from tracewheel.config import IngestConfig
from tracewheel.traces.ingest import ingest

LINES = 10_000
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def call(identity="c1", arguments='{"at": "it"}'):
    return {"id": identity, "type": "function", "function": {"name": "look", "arguments": arguments}}


def good(number):
    return {
        "id": f"chat-{number}",
        "user": f"user-{number % 50}",
        "messages": [
            {"role": "system", "content": "You look."},
            {"role": "user", "content": f"Look at number {number} – und sag mir, was du siehst."},
            {"role": "assistant", "content": None, "tool_calls": [call()]},
            {"role": "tool", "tool_call_id": "c1", "content": f"number {number}"},
            {"role": "assistant", "content": "I see it."},
        ],
        "tools": [TOOL],
        "reward": number % 2,
    }


def set_in_message(position, **fields):
    return lambda record: record["messages"][position].update(fields)


# Kind: the expected reason, and a change of a record or of its bytes.
DAMAGES = {
    "invalid UTF-8": ("not UTF-8", lambda raw: raw.replace(b"look", b"lo\xffok", 1)),
    "a character cut in two": ("not UTF-8", lambda raw: raw.replace("–".encode(), "–".encode()[:2], 1)),
    "a bracket too few": ("not JSON", lambda raw: raw[:-1]),
    "a control character": ("not JSON", lambda raw: raw.replace(b"You look.", b"You\tlook.", 1)),
    "two records on a line": ("not JSON", lambda raw: raw + raw),
    "not a number": ("not JSON", lambda raw: raw.replace(b'"reward": ', b'"reward": NaN, "was": ', 1)),
    "half of a surrogate pair": ("not JSON", lambda raw: raw.replace(b"You look.", b"\\ud83d", 1)),
    "a list": ("not an object", lambda raw: b"[" + raw + b"]"),
    "another format": ("unknown format", lambda record: record.update(said_here=record.pop("messages"))),
    "no messages": ("no messages", lambda record: record.update(messages=[])),
    "a message that is none": ("message unreadable", lambda record: record["messages"].insert(1, "hello")),
    "an unknown role": ("unknown role", set_in_message(1, role="wizard")),
    "text under another name": ("content was not read", set_in_message(1, content="", utterance="Look.")),
    "an orphan reply": ("tool reply without a call", set_in_message(3, tool_call_id="c9")),
    "a doubled reply": ("doubled call id", lambda record: record["messages"].insert(4, record["messages"][3])),
    "a doubled call": ("doubled call id", lambda record: record["messages"][2]["tool_calls"].append(call())),
    "a call without a reply": ("call without a reply", lambda record: record["messages"].pop(3)),
    "a call as text": ("content was not read", set_in_message(4, content=None, function_call="look()")),
    "calls that are none": ("tool calls unreadable", set_in_message(2, tool_calls=[{"id": "c1"}])),
    "an image without anything": ("content is not text", set_in_message(1, content=[{"type": "image_url"}])),
    "no turn of the agent": ("no assistant turn", lambda record: record.update(messages=record["messages"][:2])),
    "tools that are none": ("tools unreadable", lambda record: record.update(tools=["look"])),
    "a reward in words": ("reward is not a number", lambda record: record.update(reward="good")),
    "tokens that are none": ("tokens unreadable", lambda record: record.update(tokens=[1])),
}
OF_BYTES = {"invalid UTF-8", "a character cut in two", "a bracket too few", "a control character", "two records on a line"}
OF_BYTES |= {"not a number", "half of a surrogate pair", "a list"}


def encode(record):
    return json.dumps(record, ensure_ascii=False).encode()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The file, the reason for each damaged line, its bytes, and how many of the others are duplicates."""
    drawn = random.Random(20261122)
    lines, reasons, raws, duplicates = [], {}, {}, 0
    for number in range(1, LINES + 1):
        record = good(number)
        choice = drawn.random()
        if choice < 0.3:
            kind = list(DAMAGES)[number % len(DAMAGES)]
            reason, change = DAMAGES[kind]
            if kind in OF_BYTES:
                raw = change(encode(record))
            else:
                record = copy.deepcopy(record)
                change(record)
                raw = encode(record)
            reasons[number], raws[number] = reason, raw
        elif choice < 0.4 and number > 1 and number - 1 not in reasons:
            raw = encode({**good(number - 1), "again": f"again-{number}"})
            duplicates += 1
            if lines[-1][1] == "duplicate":
                raw, duplicates = encode(record), duplicates - 1
        else:
            raw = encode(record)
        kind = "duplicate" if b"again-" in raw else ""
        lines.append((raw + (b"\r\n" if number % 7 == 0 else b"\n"), kind))
    raws[LINES], reasons[LINES] = encode(good(0))[:-100], "truncated"
    if lines[-1][1] == "duplicate":
        duplicates -= 1
    body = b"".join(line for line, _ in lines[:-1]) + raws[LINES]
    path = tmp_path_factory.mktemp("hostile") / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + body)
    return path, reasons, raws, duplicates


def test_damaged_lines_are_quarantined_with_reason_and_bytes(corpus, tmp_path):
    path, reasons, raws, duplicates = corpus
    reasons = {number: reason for number, reason in reasons.items() if reason != "truncated"}  # the last line waits for its end
    report = ingest(IngestConfig(paths=(str(path),)), tmp_path / "out")
    assert (report["read"], report["quarantined"], report["duplicates"]) == (LINES - 1, len(reasons), duplicates)
    assert report["read"] == report["kept"] + report["duplicates"] + report["quarantined"]
    entries = [json.loads(line) for line in (tmp_path / "out/quarantine.jsonl").read_text().splitlines()]
    found = {entry["line"]: entry["reason"] for entry in entries}
    assert found == reasons
    for entry in entries:
        raw = entry["raw"].encode() if "raw" in entry else base64.b64decode(entry["raw_base64"])
        assert raw == raws[entry["line"]]
    assert len(set(reasons.values())) >= 15
    assert sum(report["by_reason"].values()) == len(reasons)
    kept = pandas.read_parquet(tmp_path / "out/traces.parquet")["source_line"]
    assert len(kept) == report["kept"]
    assert not set(kept) & set(reasons)


def test_a_list_gives_the_same_traces_as_lines(corpus, tmp_path):
    """Damage that leaves the brackets as they are costs no more in a list than in lines."""
    _, reasons, _, _ = corpus
    records, expected = [], []
    for number in range(1, 1001):
        record = good(number)
        kind = list(DAMAGES)[number % len(DAMAGES)]
        if number in reasons and kind not in OF_BYTES:
            record = copy.deepcopy(record)
            DAMAGES[kind][1](record)
            expected.append(DAMAGES[kind][0])
        records.append(record)
    path = tmp_path / "log.json"
    path.write_text(json.dumps(records, indent=1))
    report = ingest(IngestConfig(paths=(str(path),)), tmp_path / "out")
    entries = [json.loads(line) for line in (tmp_path / "out/quarantine.jsonl").read_text().splitlines()]
    assert [entry["reason"] for entry in entries] == expected
    assert (report["read"], report["kept"]) == (1000, 1000 - len(expected))
