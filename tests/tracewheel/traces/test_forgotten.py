"""A forgotten user, session, trace or damaged record stays out of every later ingest, though the logs still hold it."""

import json
from dataclasses import replace

import pandas
import pytest

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.traces.forgotten import FORGOTTEN_FILE, NOBODY, hash_of_identity, hash_of_record, read_forgotten
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest
from tracewheel.traces.snapshot import Snapshot, take_snapshot


def line(name, **fields):
    messages = [{"role": "user", "content": f"I am {name}."}, {"role": "assistant", "content": f"Hello {name}."}]
    return json.dumps({"id": f"id-{name}", "messages": messages, **fields}) + "\n"


@pytest.fixture
def config(tmp_path):
    lines = [
        line("ann", user="ann@mail.example.org"),
        line("bob", user="bob", session="s-1"),
        line("cas", user="cas", session="s-2"),
        line("dan", user="dan"),
        '{"id": "cut", "user": "eve", "mess\n',
        line("fay", user="fay"),
    ]
    (tmp_path / "log.jsonl").write_text("".join(lines))
    return IngestConfig(paths=(str(tmp_path / "log.jsonl"),))


def ids(out):
    return pandas.read_parquet(out / "traces.parquet")["id"].tolist()


def without(config, *hashes):
    return replace(take_snapshot(config), forgotten=NOBODY.adding(hashes))


def test_each_kind_is_left_out_and_counted(config, tmp_path):
    ingest(config, tmp_path / "before")
    broken = json.loads((tmp_path / "before" / "quarantine.jsonl").read_text())
    stored_name = pandas.read_parquet(tmp_path / "before" / "traces.parquet")["user"][0]
    assert stored_name != "ann@mail.example.org"
    hashes = [
        hash_of_identity("user", "ann@mail.example.org"),
        hash_of_identity("session", "s-1"),
        hash_of_identity("trace", "id-dan"),
        hash_of_record(broken),
    ]
    report = ingest(config, tmp_path / "out", without(config, *hashes))
    assert ids(tmp_path / "out") == ["id-cas", "id-fay"]
    assert not (tmp_path / "out" / "quarantine.jsonl").read_bytes()
    assert (report["read"], report["kept"], report["quarantined"], report["forgotten"]) == (6, 2, 0, 4)
    by_stored_name = ingest(config, tmp_path / "stored", without(config, hash_of_identity("user", stored_name)))
    assert by_stored_name["forgotten"] == 1 and "id-ann" not in ids(tmp_path / "stored")
    held = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert not any(name in held for name in (b"ann", b"bob", b"dan", b"eve"))


def test_a_name_of_another_kind_forgets_nobody(config, tmp_path):
    report = ingest(config, tmp_path / "out", without(config, hash_of_identity("user", "s-1")))
    assert "forgotten" not in report and report["kept"] == 5


def test_the_list_is_part_of_what_an_ingest_depends_on(config, tmp_path):
    plain, listed = take_snapshot(config), without(config, hash_of_identity("user", "bob"))
    assert plain.digest != listed.digest and plain.digests == listed.digests
    assert Snapshot.from_record(listed.to_record()).forgotten == listed.forgotten
    assert "forgotten" not in plain.to_record()
    forgotten = NOBODY.adding([hash_of_identity("user", "bob")])
    ingest_new(config, tmp_path / "out")
    with pytest.raises(DataError, match="somebody was forgotten"):
        ingest_new(config, tmp_path / "out", forgotten=forgotten)
    report = ingest_new(config, tmp_path / "out", full=True, forgotten=forgotten)
    assert report["forgotten"] == 1 and "id-bob" not in ids(tmp_path / "out")
    again = ingest_new(config, tmp_path / "out", forgotten=forgotten)
    assert (again["forgotten"], again["read"], again["added"]["read"]) == (1, 6, 0)


def test_a_damaged_list_is_refused(tmp_path):
    assert read_forgotten(tmp_path) == NOBODY
    NOBODY.adding(["a", "b"]).write(tmp_path)
    assert read_forgotten(tmp_path).hashes == {"a", "b"}
    for damaged in ("", "{}", '{"version": 1, "hashes": [1]}', "[1]"):
        (tmp_path / FORGOTTEN_FILE).write_text(damaged)
        with pytest.raises(DataError, match=FORGOTTEN_FILE):
            read_forgotten(tmp_path)
