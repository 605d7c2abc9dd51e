"""Secrets and personal data planted in logs: none is in any file that data stages, or (slow) a whole run, leave behind.

The search looks at every byte below the run's folder and at what those bytes stand for: Parquet, sqlite, gzip and Zstandard,
JSON within JSON, HTML and URL escapes, base64. It is tried on the logs themselves and on an ingest without redaction, where it
has to find every value that was planted.
"""

import base64
import gzip
import html
import json
import re
import sqlite3
import urllib.parse
from pathlib import Path

import pytest
import yaml

from tests.flows.conftest import WITHOUT_COMPARISONS

LOGS = Path(__file__).parents[2] / "data" / "traces" / "workspace.jsonl"
KEY_BODY = "MIIEowIBAAKCAQEAx8fJ2mQ0v5pQ1c7dU3nXw9kT4rLsY6hBzE0aGfVjKoPqWtMn"
SENTENCES = {
    "sk-proj-Zk39xQm2LpW8vTnB4rYc71HdUs": "Use {} for the model.",
    "AKIA2X7QPLMN4WEKRT6Z": "export AWS_ACCESS_KEY_ID={}",
    "wJ4lrXUtnFEMI/K7MDENG/bPxRfiCYzzTREALKEY": "aws_secret_access_key = {}",
    "ghp_a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6": "git clone https://x-access-token:{}@github.com/o/r",
    "xoxb-2048123456-2048654321987-AbCdEfGhIjKlMnOpQrStUvWx": "Post with {}.",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc": "It is {}",
    "AIzaSyD4x7Qm2LpW8vTnB4rYc71HdUs_9kL2m3N": "maps?key={}",
    "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": "login with {}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJlLW9mLWFsaWNl": "session {}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_BODY}\n-----END RSA PRIVATE KEY-----": "the key:\n{}\nis in place",
    "9f8e7d6c5b4a39281706": 'curl -H "Authorization: Bearer {}" host',
    "hunter2-and-more": "My password is {}.",
    "s3cr3tWord77": "postgresql://app:{}@db.internal:5432/app",
    "8f14e45fceea167a5a36dedd4bea2543": "Cookie: sid={}; theme=dark",
    "maria.garcia@corp.co.uk": "Write to {} please.",
    "+49 30 901820": "Call {} today.",
    "4111 1111 1111 1111": "Charge {}.",
    "DE89 3704 0044 0532 0130 00": "to {} please",
    "185.220.101.77": "from {}.",
}
PLANTED = tuple(SENTENCES)
BARE = "hunter2-and-more"
# The values without spaces, signs and line breaks: the body of the key, the digits of a number.
CORES = {value: KEY_BODY if "PRIVATE" in value else re.sub(r"[ +]", "", value) for value in PLANTED}
# Even shorter than the test profile: what counts is what is written, not what is learned.
SHORTER = {
    "curation": {"train_tasks": 4, "validation_tasks": 2, "held_out_tasks": 6, "harder_tasks": 2},
    "training": {"iterations": 1, "tasks_per_iteration": 4, "validate_every": 1},
    "rollout": {"group_size": 2},
    "evaluation": {"samples": 1, "pass_at": [1]},
    "tracking": {"traces_per_evaluation": 100},
    "comparison": WITHOUT_COMPARISONS,
}


# Planting: each value in one trace of its own at every place, all values in some traces and in records that are damaged.


def plant(record, text):
    """The record with a text in every text field of the format, and in some fields it does not have."""
    nested = json.dumps({"result": json.dumps({"note": text})})
    for message in record["messages"]:
        if message["role"] in ("system", "user"):
            message["content"] += f" {text}"
        elif message["role"] == "tool":
            message["content"] = nested
        else:
            message["content"], message["reasoning_content"] = f"I know {text}", text
    last = record["messages"][-1]
    for call in last.get("tool_calls", []):
        call["function"]["arguments"] = json.dumps({"note": text, "deep": nested})
    record["tools"][0]["function"]["description"] += text
    record["environment"]["initial_state"]["files"] |= {"/inbox/note.txt": text, f"/inbox/{text}": nested}
    return record | {"info": {"notes": [text, {"deep": nested}]}, "metadata": {"note": text}, "name": text}


def as_escapes(written):
    r"""The same JSON with each letter and sign that may hide a value as an escape: `\u0040`, `\u002d`, `\/`."""
    return re.sub(r"(?<!\\)[@.+_-]", lambda match: f"\\u{ord(match.group()):04x}", written).replace("/", "\\/")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The shipped log with the values planted in some traces, followed by further records."""
    folder = tmp_path_factory.mktemp("logs")
    lines = LOGS.read_bytes().splitlines()[:600]
    readable = [at for at, line in enumerate(lines) if is_whole(line)]
    everything = "\n".join(sentence.format(value) for value, sentence in SENTENCES.items())
    texts = [sentence.format(value) for value, sentence in SENTENCES.items()] + [everything] * 3
    for number, (at, text) in enumerate(zip(readable[5::17], texts, strict=False)):
        record = plant(json.loads(lines[at]), text)
        written = json.dumps(record, ensure_ascii=number % 2 == 0)
        lines[at] = (as_escapes(written) if number % 3 == 0 else written).encode()
    # Without the words that identify it elsewhere: ahead of those traces, and in an unreadable record.
    bare = json.loads(lines[readable[1]])
    bare["messages"][0]["content"] += f" I typed {BARE}."
    lines[readable[1]] = json.dumps(bare).encode()
    people = [json.loads(lines[at]) for at in readable[-6:]]
    for record, name in zip(people, ("user", "session", "id", "model", "created", "task"), strict=True):
        record[name] = "maria.garcia@corp.co.uk"
    lines += [json.dumps(record).encode() for record in people]
    lines += damaged(json.loads(lines[readable[0]]), everything)
    (folder / "workspace.jsonl").write_bytes(b"\n".join([lines[readable[1]][:-1], *lines]) + b"\n")
    named = json.dumps(json.loads(lines[readable[2]]) | {"id": "named"}).encode()
    (folder / "of maria.garcia@corp.co.uk.jsonl").write_bytes(named + b"\n{\n")
    (folder / "of maria.garcia@corp.co.uk.txt").write_text("no log")
    with gzip.open(folder / "zipped.jsonl.gz", "wb") as file:
        file.write(json.dumps(plant(json.loads(lines[readable[1]]) | {"id": "zipped"}, everything)).encode())
    return folder


def is_whole(line):
    try:
        return json.loads(line)["environment"]["kind"] == "workspace"
    except (ValueError, KeyError, TypeError):
        return False


def damaged(record, text):
    """Records that go to quarantine, each for another reason; most reasons quote the record."""
    written = json.dumps(plant(json.loads(json.dumps(record)), text))
    yield written[: len(written) - 40].encode()
    yield written.encode().replace(b"I know", b"I know \xff\xfe")
    yield written.encode("utf-16-le")
    yield text.replace("\n", " ").encode()
    call = {"id": text, "type": "function", "function": {"name": text, "arguments": text}}
    user = {"role": "user", "content": "Hello"}
    for messages in (
        [user, {"role": text, "content": "Hello"}],
        [user, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": text}],
        [user, {"role": "tool", "tool_call_id": text, "content": text}, {"role": "assistant", "content": "x"}],
        [user, {"role": "assistant", "content": None, "tool_calls": [call, call]}],
        [user, {"role": "assistant", "content": {"type": text}}],
        [text],
    ):
        yield json.dumps({"messages": messages}).encode()
    for field in ("reward", "tools", "environment", "messages", "created"):
        yield json.dumps({"messages": [user, {"role": "assistant", "content": "Hello"}], field: text}).encode()


# Searching: the bytes of all files below a folder, raw and decoded.


NESTED = 3


def views(data, depth=3):
    """The bytes and their decoded forms."""
    yield data
    if depth and data[:4] == b"\x28\xb5\x2f\xfd":
        import pyarrow

        yield from views(pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd").read(), depth - 1)
    if depth and data[:2] == b"\x1f\x8b":
        yield from views(gzip.decompress(data), depth - 1)
    for encoding in ("utf-8", "utf-16-le"):
        text = data.decode(encoding, "ignore")
        read = text
        for _ in range(NESTED):
            read = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda match: chr(int(match.group(1), 16)), read)
            read = re.sub(r"\\+([/\"n])", lambda match: {"n": "\n"}.get(match.group(1), match.group(1)), read)
            read = urllib.parse.unquote(html.unescape(read))
        yield read.encode("utf-8", "ignore")
    if depth:
        for run in re.findall(rb"(?:[A-Za-z0-9+/_-]{4}){6,}", data):
            yield from views(base64.b64decode(run.translate(bytes.maketrans(b"-_", b"+/"))), 0)


def rows(path):
    """The text of Parquet and sqlite tables."""
    if path.suffix == ".parquet":
        import pandas

        yield json.dumps(pandas.read_parquet(path).to_dict("list"), default=str, ensure_ascii=False).encode()
    if path.is_file() and path.open("rb").read(16) == b"SQLite format 3\0":
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
                for row in database.execute(f'select * from "{table}"'):
                    yield "\n".join(map(str, row)).encode()
                    yield from (value for value in row if isinstance(value, bytes))


def forms(value):
    """A value as it may be written: with spaces or without, in base64 at each of its three places, in a URL."""
    for written in {value, CORES[value]}:
        raw = written.encode()
        yield raw
        yield urllib.parse.quote(written, safe="").encode()
        for shift in range(3):
            # The characters at both ends share bits with the neighbours of the value.
            whole = base64.b64encode(b"\0" * shift + raw)
            yield whole[(0, 2, 3)[shift] : len(whole) // 4 * 4 - 4]


NEEDLES = {value: set(forms(value)) for value in PLANTED}


def found_in(blobs):
    """The values found in the bytes, each with the place where it was seen first."""
    found = {}
    for place, data in blobs:
        for view in views(data):
            for value in PLANTED:
                if value not in found and any(needle in view for needle in NEEDLES[value]):
                    found[value] = place
    return found


def below(folder):
    """Every file below a folder, its name, and its rows."""
    for path in sorted(folder.rglob("*")):
        yield f"name of {path}", str(path.relative_to(folder)).encode()
        if path.is_file():
            yield str(path), path.read_bytes()
            yield from ((f"rows of {path}", row) for row in rows(path))


@pytest.fixture(scope="module")
def planted_profile(profile, logs, tmp_path_factory):
    values = yaml.safe_load(profile.read_text()) | {"ingest": {"paths": [str(logs)]}}
    for section, changes in SHORTER.items():
        values[section] = values.get(section, {}) | changes
    path = tmp_path_factory.mktemp("planted") / "planted.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_the_search_finds_planted_secrets(logs):
    assert found_in(below(logs)).keys() == set(PLANTED)


def test_the_search_finds_all_secrets_without_redaction(planted_profile, command, tmp_path):
    done = command("ingest", planted_profile, "--out", tmp_path / "out", "--set", "ingest.redaction.enabled=false", "--json")
    assert done.returncode == 0, done.stderr
    part = tmp_path / "out" / "traces.parquet"
    assert found_in(below(part)).keys() == set(PLANTED)
    (part / "part-00000.parquet").unlink()
    assert found_in(below(tmp_path / "out")).keys() == set(PLANTED)


def carry_out(command, folder, whole_run, profile):
    """The commands, each with all it logs: what they printed."""
    said = {}

    def call(name, *arguments):
        done = command(*arguments, "--debug")
        said[name] = done.stdout + done.stderr
        assert done.returncode in (0, 3), done.stderr

    if whole_run:
        call("retrain", "retrain", profile, "--run-dir", folder, "--json")
        ingested, curated = (next(folder.glob(f"store/{stage}-*")) for stage in ("ingest", "curate"))
        call("grown", "ingest", json_paths(profile), "--out", folder / "grown", "--json")
    else:
        ingested, curated = folder / "traces", folder / "curated"
        call("ingest", "ingest", profile, "--out", ingested, "--json")
        call("curate", "curate", profile, "--traces", ingested, "--out", curated, "--json")
    call("quality", "data", "report", curated, "--traces", ingested, "--out", folder / "quality")
    return said


@pytest.fixture(scope="module")
def data(planted_profile, command, tmp_path_factory):
    """The stages that read logged text, and their report: the folder with all their output, and what the processes printed."""
    folder = tmp_path_factory.mktemp("data")
    return folder, carry_out(command, folder, False, planted_profile)


@pytest.fixture(scope="module")
def run(planted_profile, command, tmp_path_factory):
    """A whole run and its reports."""
    folder = tmp_path_factory.mktemp("run")
    return folder, carry_out(command, folder, True, planted_profile)


def json_paths(profile):
    return yaml.safe_load(profile.read_text())["ingest"]["paths"][0]


@pytest.mark.parametrize("made", ["data", pytest.param("run", marks=pytest.mark.slow)])
def test_no_planted_secret_is_in_data_tracking_or_logs(made, request):
    folder, said = request.getfixturevalue(made)
    assert found_in([*below(folder), *((name, text.encode()) for name, text in said.items())]) == {}


def test_every_way_to_quarantine_and_kind_of_secret_is_tried(data):
    folder, _ = data
    report = json.loads((folder / "traces" / "report.json").read_text())
    assert report["quarantined"] >= 15
    assert len(report["by_reason"]) >= 8
    assert set(report["redacted"]) >= {"email", "phone", "card", "iban", "ip", "private_key", "password", "jwt"}
    assert (folder / "quality" / "quality.html").is_file()


@pytest.mark.slow
def test_the_run_writes_every_kind_of_file_that_is_searched(run):
    folder, said = run
    assert (folder / "mlflow.db").is_file()
    assert list(folder.glob("artifacts/**/*.html"))
    assert (folder / "quality" / "quality.html").is_file()
    assert list((folder / ".prefect").rglob("*.db"))
    assert "DEBUG" in said["retrain"]
