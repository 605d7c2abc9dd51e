"""A secret that one record reveals is redacted in all others."""

import base64
import json

import pandas
import pytest

from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest
from tracewheel.traces.redaction import known_values
from tracewheel.traces.redaction.known_values import KnownSecrets
from tracewheel.traces.redaction.unescaped import Unescaped

SECRET = "hunter2-and-more"
NAMED = f"My password is {SECRET}."
BARE = f"I typed {SECRET} and nothing came of it."
CODES = {"patterns": {"code": r"code ([0-9a-f]{12})"}}


def line(text, **fields):
    """A record of a log."""
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Done."}]
    return json.dumps({"messages": messages, **fields}).encode()


def read(folder):
    """What an ingest wrote, but for hashes."""
    texts = [frame.to_json() for frame in map(pandas.read_parquet, sorted(folder.rglob("part-*.parquet")))]
    for entry in (folder / "quarantine.jsonl").read_text().splitlines():
        record = json.loads(entry)
        texts += [entry, base64.b64decode(record.get("raw_base64", "")).decode("utf-16-le", "ignore")]
    return "\n".join(texts)


@pytest.fixture
def log(tmp_path):
    """Writes a log; returns the config that reads it."""

    def write(*lines, name="log.jsonl", **redaction):
        path = tmp_path / "logs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\n".join(lines) + b"\n")
        return IngestConfig(paths=(str(path.parent),), redaction=RedactionConfig(**redaction))

    return write


ORDERS = {
    "given away first": [line(NAMED), line(BARE)],
    "given away last": [line(BARE), line(NAMED)],
    "bare in what cannot be read": [line(BARE)[:-5], line(BARE).replace(b"typed", b"typed \xff"), line(NAMED)],
    "bare in UTF-16": [line(BARE).decode().encode("utf-16-le"), line(NAMED)],
    "given away in what cannot be read": [line(BARE), line(NAMED)[:-5]],
    "given away as a session": [line(BARE), line("Hello", session=f"password={SECRET}")],
    "bare in letters as escapes": [line(BARE).replace(b"hunter", b"h\\u0075nter"), line(NAMED)],
    "bare in an argument": [line(json.dumps({"deep": json.dumps(BARE)})), line(NAMED)],
}


@pytest.mark.parametrize("lines", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("incremental", [False, True])
def test_a_secret_revealed_by_one_record_is_redacted_in_all(log, tmp_path, lines, incremental):
    config = log(*lines)
    report = ingest_new(config, tmp_path / "out") if incremental else ingest(config, tmp_path / "out")
    written = read(tmp_path / "out")
    assert SECRET not in written and "hunter" not in written
    assert report["redacted"]["password"] >= len(lines)
    assert report["read"] == report["kept"] + report["quarantined"] == len(lines)


@pytest.mark.parametrize("most_searched", [known_values.MOST_SEARCHED, 1], ids=["one search", "word by word"])
def test_many_secrets_are_found_like_few(monkeypatch, most_searched):
    monkeypatch.setattr(known_values, "MOST_SEARCHED", most_searched)
    known = KnownSecrets({f"secret{number:08d}-x": "password" for number in range(100)})
    for written in (
        "a secret00000042-x.",
        json.dumps("a\nsecret00000042-x"),
        json.dumps(json.dumps("é\tsecret00000042-x")),
    ):
        assert known.may_be_in(written.encode())
        assert [item.value for item in known.find(Unescaped(written))] == ["secret00000042-x"]
    for written in ("secret00000043", "secret00000042-xy", ""):
        assert list(known.find(Unescaped(written))) == []
    assert not known.may_be_in(b"secret0000004 2-x")
    assert not KnownSecrets().may_be_in(b"secret00000042-x")


def test_values_of_custom_patterns_are_redacted_in_all_records(log, tmp_path):
    config = log(line("Why a1b2c3d4e5f6?"), line("It is code a1b2c3d4e5f6."), **CODES)
    assert ingest(config, tmp_path / "out")["redacted"] == {"code": 2}
    assert "a1b2c3d4e5f6" not in read(tmp_path / "out")


@pytest.mark.parametrize(
    "text",
    [
        "My password is sunshine!",
        "My phone number is 4158675309.",
        "My password is a1b2c.",
        "password: 1234567",
        "password: пароль٣٣٣",
    ],
)
def test_ambiguous_values_stay_in_other_records(log, tmp_path, text):
    value = text.split()[-1].rstrip(".!")
    ingest(log(line(f"order {value} please"), line(text)), tmp_path / "out")
    first, second = pandas.read_parquet(tmp_path / "out/traces.parquet")["messages"]
    assert f"order {value} please" in first
    assert value not in second or value == "sunshine"


def test_equal_logs_give_equal_bytes_however_the_secret_was_learned(log, tmp_path):
    config = log(line(BARE), line(NAMED), line("Hello"))
    for name in ("one", "two"):
        ingest(config, tmp_path / name)
    files = ("traces.parquet/part-00000.parquet", "quarantine.jsonl", "report.json")
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)
    assert [json.loads(text)[0]["content"] for text in pandas.read_parquet(tmp_path / "one/traces.parquet")["messages"]] == [
        "I typed REDACTED_PASSWORD_1 and nothing came of it.",
        "My password is REDACTED_PASSWORD_1",
        "Hello",
    ]


def test_a_learned_secret_is_redacted_in_earlier_parts_too(log, tmp_path):
    config = log(line("Hello"), line(BARE))
    assert SECRET in read(tmp_path / "out") if ingest_new(config, tmp_path / "out") else False
    config = log(line(NAMED), name="later.jsonl")
    report = ingest_new(config, tmp_path / "out")
    assert (report["read"], report["added"]["read"], report["redacted"]) == (3, 1, {"password": 2})
    assert len(list((tmp_path / "out").rglob("part-*.parquet"))) > 1
    assert SECRET not in read(tmp_path / "out")
    assert ingest_new(config, tmp_path / "out")["added"]["read"] == 0


def test_a_file_named_after_a_secret_is_named_anew_once_a_record_reveals_it(log, tmp_path):
    log(line("Hello"), b"{", name=f"{SECRET}.jsonl")
    (tmp_path / "logs" / f"{SECRET}.txt").write_text("no log")
    config = log(line(NAMED), name="z.jsonl")
    report = ingest_new(config, tmp_path / "out")
    assert (report["read"], report["kept"], report["quarantined"]) == (3, 2, 1)
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()
    assert SECRET not in read(tmp_path / "out")
    assert ingest_new(config, tmp_path / "out")["added"]["read"] == 0


def test_what_messages_reveal_is_redacted_in_tools_that_earlier_records_had_too(log, tmp_path):
    tools = [
        {"type": "function", "function": {"name": "save", "description": f"Not {SECRET}", "parameters": {"type": "object"}}}
    ]
    ingest(log(line("Hello", tools=tools), line(NAMED, tools=tools), line("Bye", tools=tools)), tmp_path / "out")
    assert SECRET not in read(tmp_path / "out")


def test_file_names_are_redacted_everywhere(log, tmp_path):
    names = ["of maria@corp.com.jsonl", "of bob@corp.com.jsonl"]
    for name in names:
        config = log(line(f"Hello {name[3:4]}"), b"{", name=name)
    (tmp_path / "logs" / "of maria@corp.com.txt").write_text("no log")
    report = ingest_new(config, tmp_path / "out")
    stored = pandas.read_parquet(tmp_path / "out/traces.parquet")["source_file"]
    quarantined = [json.loads(entry)["file"] for entry in (tmp_path / "out/quarantine.jsonl").read_text().splitlines()]
    assert len(set(stored)) == 2 and set(stored) == set(quarantined)
    assert all(name.startswith("file-") for name in [*stored, *report["skipped"]])
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or b"corp.com" not in path.read_bytes()
    assert ingest_new(config, tmp_path / "out")["added"]["read"] == 0
    assert ingest(config, tmp_path / "all")["skipped"] == report["skipped"]
