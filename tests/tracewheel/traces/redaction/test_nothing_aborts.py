"""No text stops an ingest: what cannot be redacted is put aside, without its bytes."""

import itertools
import json

import pandas
import pytest

from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest

ORDINARY = [
    'Set api_key = "API_KEY" and go on.',
    "Tel: (03) 1234-5678",
    'My password is "password1". And then password:',
    "the password:",
    '{"password": 12345678, "pin": 1}',
    "password = 'PASSWORD_1' and secret: REDACTED_SECRET_1x9",
    "token: user1@redacted.example.com, secret_key = 'SECRET_KEY_1'",
    "Authorization: Bearer REDACTED_AUTHORIZATION_1, Cookie: a=REDACTED_TOKEN_1; sid=8f14e45fceea167a5a36dedd4bea2543",
    "It costs 73519 EUR, or 1 EUR",
]


def line(*texts, **fields):
    """A record of a log in which each text is said by the user and answered in a call's reply."""
    messages = []
    for number, text in enumerate(texts):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": text})}}
        messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps({"found": [text, {"note": text}]})},
            {"role": "assistant", "content": text},
        ]
    return json.dumps({"messages": messages, **fields}, ensure_ascii=False).encode()


@pytest.fixture
def log(tmp_path):
    """Writes a log; returns the config that reads it."""

    def write(*lines, **redaction):
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n")
        return IngestConfig(paths=(str(path),), redaction=RedactionConfig(**redaction))

    return write


def entries(folder):
    return [json.loads(entry) for entry in (folder / "quarantine.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("text", ORDINARY)
@pytest.mark.parametrize("cut", [None, -5], ids=["whole", "truncated"])
def test_ordinary_text_is_kept(log, tmp_path, text, cut):
    config = log(line("Hello"), line(text)[:cut], line("Bye"), patterns={"amount": r"\d+(?= EUR)"})
    for make in (ingest, ingest_new):
        out = tmp_path / make.__name__
        report = make(config, out)
        assert report["read"] == 3 and report["kept"] == (2 if cut else 3)
        for messages in pandas.read_parquet(out / "traces.parquet")["messages"]:
            user, call, reply, last = json.loads(messages)
            assert [message["role"] for message in (user, call, reply, last)] == ["user", "assistant", "tool", "assistant"]
            assert json.loads(call["tool_calls"][0]["function"]["arguments"])["at"] == user["content"] == last["content"]
            assert json.loads(reply["content"])["found"] == [user["content"], {"note": user["content"]}]


def test_a_number_in_place_of_a_secret_stays_json(log, tmp_path):
    ingest(log(line('{"password": 12345678, "deep": "{\\"password\\": 87654321}"}')), tmp_path / "out")
    (messages,) = pandas.read_parquet(tmp_path / "out/traces.parquet")["messages"]
    said = json.loads(json.loads(messages)[0]["content"])
    assert said == {"password": "REDACTED_PASSWORD_1", "deep": '{"password": "REDACTED_PASSWORD_2"}'}


# Each round of redaction reveals the next word, more often than a record is searched.
CHAIN = {"patterns": {"word": r"(?:\bstart |(?<=_\d ))([a-z]+\d+)"}}
CHAINED = "start " + " ".join(f"{word * 4}{number}" for number, word in enumerate("abcdefghi"))


@pytest.mark.parametrize("cut", [None, -5], ids=["a trace", "in quarantine already"])
def test_what_cannot_be_redacted_goes_to_quarantine_without_its_bytes(log, tmp_path, cut):
    config = log(line("Hello"), line(CHAINED)[:cut], **CHAIN)
    report = ingest(config, tmp_path / "out")
    assert (report["read"], report["kept"], report["quarantined"], report["by_reason"]) == (2, 1, 1, {"secret left": 1})
    (entry,) = entries(tmp_path / "out")
    assert (entry["reason"], entry["line"], len(entry["sha256"])) == ("secret left", 2, 64)
    assert "word" in entry["detail"] and "raw" not in entry and "raw_base64" not in entry
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or b"hhhh7" not in path.read_bytes()


@pytest.mark.parametrize("incremental", [False, True])
def test_secrets_that_reveal_one_another_come_to_an_end(log, tmp_path, incremental):
    secrets = [f"{letter * 8}{number}" for number, letter in enumerate("abcdefghijkl")]
    pairs = [f"say {one} then {two}." for one, two in itertools.pairwise(secrets)]
    lines = [line(text) for text in (*reversed(pairs), f"It is code {secrets[0]}.")]
    config = log(*lines, lines[3][:-9], patterns={"code": r"(?:code |_\d+ then )(\w{8,}\d)"})
    report = (ingest_new if incremental else ingest)(config, tmp_path / "out")
    assert report["read"] == len(lines) + 1 == report["kept"] + report["quarantined"]
    assert 4 <= report["by_reason"]["secret left"] <= len(pairs)
    stored = (tmp_path / "out/quarantine.jsonl").read_text()
    stored += pandas.read_parquet(tmp_path / "out/traces.parquet").to_json()
    assert [secret for secret in secrets if secret in stored] == []
    assert len(pandas.read_parquet(tmp_path / "out/traces.parquet")) == report["kept"]


def test_a_name_of_the_record_is_no_secret_elsewhere(log, tmp_path):
    tool = {"type": "function", "function": {"name": "look_up2", "parameters": {"type": "object"}}}
    lines = [
        line(f"{text}, I said", model="model-4o-mini", tools=[tool]) for text in ("token: model-4o-mini", "token=look_up2-x")
    ]
    ingest(log(*lines, line("model-4o-mini and look_up2", model="model-4o-mini")), tmp_path / "out")
    rows = pandas.read_parquet(tmp_path / "out/traces.parquet")
    assert set(rows["model"]) == {"model-4o-mini"}
    assert "model-4o-mini and look_up2" in rows["messages"][2]
