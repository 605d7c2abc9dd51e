"""Secrets planted in real and random text: no ingest stops, every record is accounted for, JSON stays JSON, nothing is left."""

import dataclasses
import json
import random
import string
from pathlib import Path

import orjson
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.core.types import Trace
from tracewheel.traces.ingest import ingest
from tracewheel.traces.redaction.json_text import is_json
from tracewheel.traces.redaction.redactor import Redactor

SHARED = Path(__file__).parents[5] / "shared/traces"
OWN = Path(__file__).parents[4] / "data/traces/workspace.jsonl"
REDACTOR = Redactor(RedactionConfig())


def letters(drawn, count):
    """Letters and digits, both."""
    return "a1" + "".join(drawn.choices(string.ascii_letters + string.digits, k=count)) + "Z9"


SECRETS = (
    lambda drawn: ("ghp_" + letters(drawn, 32), "clone with {}"),
    lambda drawn: ("sk-proj-" + letters(drawn, 28), "Use {} for the model."),
    lambda drawn: ("AKIA" + letters(drawn, 20).upper()[:16], "export AWS_ACCESS_KEY_ID={}"),
    lambda drawn: ("hf_" + letters(drawn, 30), "login with {}"),
    lambda drawn: (letters(drawn, 10), "My password is {}"),
    lambda drawn: (letters(drawn, 12), '{{"client_secret": "{}"}}'),
    lambda drawn: (letters(drawn, 12), "password='{}'"),
    lambda drawn: (letters(drawn, 20), "Authorization: Bearer {}"),
    lambda drawn: (letters(drawn, 12), "postgresql://app:{}@db.internal:5432/app"),
    lambda drawn: (f"{letters(drawn, 6).lower()}@corp{drawn.randrange(10**6)}.co.uk", "Write to {} please."),
)


def planted(drawn):
    """A secret and a sentence with it."""
    secret, sentence = drawn.choice(SECRETS)(drawn)
    return secret, sentence.format(secret)


def strings_in(value):
    """All strings of parsed JSON, those in JSON text too."""
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):
            try:
                yield from strings_in(json.loads(value))
            except (ValueError, RecursionError):
                return
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def real_strings():
    """Every string of the shared traces, or of our own log where they are absent."""
    found = {}
    for path in sorted(SHARED.rglob("*")) if SHARED.is_dir() else [OWN]:
        if path.suffix in (".json", ".jsonl", ".traj"):
            raw = path.read_bytes()
            for record in [raw] if path.suffix != ".jsonl" else raw.splitlines():
                try:
                    value = json.loads(record)
                except ValueError:
                    continue
                found |= dict.fromkeys(text for text in strings_in(value) if text.strip())
    return list(found)


def conversation(texts, secret_key="note"):
    """Messages with texts at each place, as JSON in JSON, and in keys."""
    messages = []
    for number, text in enumerate(texts):
        deep = json.dumps({"result": json.dumps([{secret_key: text}, text], ensure_ascii=number % 2 == 0), text[-300:]: 1})
        call = {"id": f"c{number}", "type": "function", "function": {"name": "save", "arguments": json.dumps({"text": text})}}
        messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": f"I see {text}", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": deep},
            {"role": "assistant", "content": text},
        ]
    return messages


def shape(value):
    """The structure of a value: types, the number of items, names that are words; JSON text within text too."""
    if isinstance(value, str) and is_json(value):
        return "json", shape(json.loads(value))
    if isinstance(value, dict):
        return [(key if key.isidentifier() else "?", shape(item)) for key, item in value.items()]
    return [shape(item) for item in value] if isinstance(value, list) else "value"


def stored(folder):
    """All that an ingest wrote, as text."""
    for part in folder.rglob("*.parquet"):
        if part.is_file():
            for row in pandas.read_parquet(part).to_dict("records"):
                yield json.dumps(row, ensure_ascii=False, default=str)
    for name in ("quarantine.jsonl", "report.json"):
        yield (folder / name).read_text(errors="replace")


def check_ingest(lines, secrets, out):
    """Ingest lines, and check what must hold for any lines."""
    path = out.with_suffix(".jsonl")
    path.write_bytes(b"\n".join(lines) + b"\n")
    report = ingest(IngestConfig(paths=(str(path),)), out)
    assert report["read"] == report["kept"] + report["duplicates"] + report["quarantined"]
    everything = "\n".join(stored(out))
    assert [secret for secret in secrets if secret in everything] == []
    originals = dict(enumerate(lines, 1))
    again = Redactor(RedactionConfig())
    for row in pandas.read_parquet(out / "traces.parquet").to_dict("records"):
        trace = Trace.from_record(row)
        before = json.loads(originals[trace.source_line])["messages"]
        assert [message["role"] for message in trace.messages] == [message["role"] for message in before]
        for message, was in zip(trace.messages, before, strict=True):
            assert shape({name: message.get(name) for name in was}) == shape(was)
        assert again.trace(trace)[0] is trace
    return report


def log_of(texts, drawn, at_once):
    """Lines of a log with a secret planted in every second conversation; some lines are damaged."""
    secrets = []
    for start in range(0, len(texts), at_once):
        chosen = [text[:4000] for text in texts[start : start + at_once]]
        name = "note"
        if drawn.random() < 0.5:
            secret, sentence = planted(drawn)
            secrets.append(secret)
            place = drawn.randrange(len(chosen))
            chosen[place] = drawn.choice(("{0}\n{1}", "{1}\n{0}", "{1}")).format(chosen[place], sentence)
        line = json.dumps({"messages": conversation(chosen, name)}, ensure_ascii=drawn.random() < 0.5).encode()
        yield (line[: -drawn.randrange(2, 60)] if drawn.random() < 0.1 else line), secrets


def real_log(count, at_once, seed):
    texts = real_strings()
    drawn = random.Random(seed)
    drawn.shuffle(texts)
    lines, secrets = [], []
    for line, so_far in log_of(texts[:count], drawn, at_once):
        lines.append(line)
        secrets = so_far
    return lines, secrets


def test_secrets_in_real_text(tmp_path):
    lines, secrets = real_log(600, 12, 20261123)
    assert len(secrets) > 15
    report = check_ingest(lines, secrets, tmp_path / "out")
    assert report["by_reason"].keys() <= {"not JSON", "truncated"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_secrets_in_every_string_of_real_traces(tmp_path, seed):
    lines, secrets = real_log(100_000, 8, seed)
    check_ingest(lines, secrets, tmp_path / "out")


ODD = st.text(
    st.one_of(
        st.characters(), st.sampled_from("\\\"'{}[],:\n\t%@=\ud83d\udc00\ue000\ue001\u2028 "), st.sampled_from("aZ09-_/+.")
    ),
    max_size=40,
)
LEADS = (
    "password:",
    'password: "',
    'token = "',
    "secret is ",
    "api_key=",
    "Bearer ",
    "Cookie: a=",
    "tel: ",
    "%70assword%3D",
    "",
)
JSONS = st.recursive(
    st.one_of(
        ODD,
        st.integers(-(10**25), 10**25),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.none(),
        st.builds(str.__add__, ODD, st.sampled_from(LEADS)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(ODD, st.sampled_from(("password", "token", "name", "value", "id", "role"))), inner, max_size=4
        ),
        st.builds(json.dumps, inner),
    ),
    max_leaves=12,
)


def check_trace(value, seed):
    secret, sentence = planted(random.Random(seed))
    held = [value, sentence, json.dumps({"deep": json.dumps([value, sentence])}), {"a b " + sentence: value}]
    text = json.dumps(held)
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": sentence + str(value), "reasoning": f"{value}\n{sentence}"},
        {"role": "tool", "tool_call_id": "c", "content": json.dumps({"x": text}, ensure_ascii=False)},
    ]
    trace = Trace("t", messages, [], {"kind": "k", "state": held}, None, None, None, None, None, "f", 1, info={"held": held})
    redacted, counts = REDACTOR.trace(trace)
    assert counts
    assert secret not in json.dumps(dataclasses.asdict(redacted), ensure_ascii=False)
    assert shape(redacted.messages) == shape(messages)
    assert shape(redacted.environment) == shape(trace.environment)
    assert REDACTOR.trace(redacted)[0] is redacted


@settings(max_examples=80, derandomize=True, deadline=None)
@given(JSONS, st.integers(0, 10**6))
def test_secrets_in_odd_values(value, seed):
    check_trace(value, seed)


@pytest.mark.slow
@settings(max_examples=2_000, derandomize=True, deadline=None)
@given(JSONS, st.integers(0, 10**6))
def test_secrets_in_many_odd_values(value, seed):
    check_trace(value, seed)


@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=80), JSONS.map(lambda value: json.dumps({"messages": value}).encode())), max_size=12)
)
def test_no_bytes_stop_an_ingest(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("bytes")
    deep = {"messages": conversation(["x"]), "metadata": orjson.loads(b"[" * 200 + b"]" * 200)}
    huge = (
        json.dumps({"messages": conversation(["y"]), "metadata": 1})
        .encode()
        .replace(b'"metadata": 1', b'"metadata": 1' + b"0" * 500)
    )
    half = json.dumps({"messages": conversation(['{"a": "\\ud83d"}', "\\ud83d"])}).encode()
    (folder / "log.jsonl").write_bytes(b"\n".join([*lines, json.dumps(deep).encode(), huge, half]))
    report = ingest(IngestConfig(paths=(str(folder),)), folder / "out")
    assert report["read"] == report["kept"] + report["duplicates"] + report["quarantined"]
