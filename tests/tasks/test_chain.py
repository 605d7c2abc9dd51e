"""A night's ingest continues the night before: the same traces as from one ingest of everything, at the cost of what is new."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from flows.intake import take_in
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tracewheel.config import CurateSections, load_config
from tracewheel.core.fingerprint import digest_of
from tracewheel.curation.curate import curate
from tracewheel.traces.ingest import ingest
from tracewheel.traces.readers.log_reader import LogReader

ROOT = Path(__file__).parents[2]


def line(number, **fields):
    messages = [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is {number}."}]
    return json.dumps({"id": f"id-{number}", "messages": messages, **fields}) + "\n"


def append(file, *records):
    with file.open("a") as stream:
        stream.writelines(records)


@pytest.fixture
def config(make_run, tmp_path):
    (tmp_path / "logs").mkdir()
    config = make_run().config
    ingest = config.ingest.model_copy(update={"paths": (str(tmp_path / "logs"),), "allow_quarantine": True})
    return config.model_copy(update={"ingest": ingest})


class Says:
    def __init__(self):
        self.sentences = []

    def say(self, text):
        self.sentences.append(text)

    def start(self, label): ...

    def move(self, progress): ...

    def end(self, label, state, seconds): ...


@pytest.fixture
def night(config):
    """A night up to the ingest: the run, its entry, and what was said."""

    def start(complete=True, **options):
        says = Says()
        run = begin_run(config, says, DirectDriver(), **options)
        with run.hold():
            entry = take_in(run)
            if complete:
                run.record.write("summary.json", {"gate": {}})
        return run, entry, says.sentences

    return start


@pytest.fixture
def read(monkeypatch):
    """The places of all pieces that a reader is given."""
    places = []
    usual = LogReader.read

    def noting(self, pieces, file):
        def noted():
            for piece in pieces:
                places.append((file, piece.line))
                yield piece

        return usual(self, noted(), file)

    monkeypatch.setattr(LogReader, "read", noting)
    return places


def stored(entry):
    report = json.loads((entry.path / "report.json").read_text())
    frame = pandas.read_parquet(entry.path / "traces.parquet")
    assert report["read"] == report["kept"] + report["duplicates"] + report["quarantined"]
    assert len(frame) == report["kept"]
    assert len((entry.path / "quarantine.jsonl").read_bytes().splitlines()) == report["quarantined"]
    return frame, report


def test_nights_give_the_traces_of_one_ingest_and_read_only_what_is_new(config, night, read, tmp_path):
    file = tmp_path / "logs/a.jsonl"
    append(file, *map(line, range(5)))
    _, first, _ = night()
    ingest(config.ingest, tmp_path / "alone")
    assert digest_of(tmp_path / "alone") == first.digest
    read.clear()
    append(file, line(5), line(2), "{\n")
    append(tmp_path / "logs/b.jsonl", line(6))
    _, second, said = night()
    assert read == [("a.jsonl", 6), ("a.jsonl", 7), ("a.jsonl", 8), ("b.jsonl", 1)]
    assert not any("anew" in sentence for sentence in said)
    frame, report = stored(second)
    assert {name: report["added"][name] for name in ("read", "kept", "duplicates", "quarantined")} == {
        "read": 4, "kept": 2, "duplicates": 1, "quarantined": 1
    }  # fmt: skip
    ingest(config.ingest, tmp_path / "whole")
    whole = pandas.read_parquet(tmp_path / "whole/traces.parquet")
    pandas.testing.assert_frame_equal(frame, whole)
    counts = json.loads((tmp_path / "whole/report.json").read_text())
    assert {name: report[name] for name in counts} == counts
    parts = [entry.path / "traces.parquet/part-00000.parquet" for entry in (first, second)]
    assert parts[0].stat().st_ino == parts[1].stat().st_ino


@pytest.mark.parametrize("news", ["nothing", "an empty file", "a name", "a folder", "a time", "a copy"])
def test_what_is_no_news_makes_nothing_anew(news, night, read, tmp_path):
    logs = tmp_path / "logs"
    (logs / "day").mkdir()
    append(logs / "day/a.jsonl", *map(line, range(3)))
    append(logs / "day/b.jsonl", *map(line, range(3, 6)))
    run, entry, _ = night()
    read.clear()
    match news:
        case "an empty file":
            append(logs / "day/c.jsonl")
        case "a name":
            (logs / "day/a.jsonl").rename(logs / "day/z.jsonl")
        case "a folder":
            (logs / "day").rename(logs / "night")
        case "a time":
            os.utime(logs / "day/a.jsonl", (1, 1))
        case "a copy":
            append(logs / "copy.jsonl", *map(line, range(3)))
    again, same, said = night()
    assert (again.record.run_id, same.digest, same.reused) == (run.record.run_id, entry.digest, True)
    assert again.record.summary and not read and not said


def test_an_incomplete_run_is_resumed_on_its_own_logs(night, read, tmp_path):
    file = tmp_path / "logs/a.jsonl"
    append(file, *map(line, range(3)))
    night()
    append(file, line(3))
    run, entry, _ = night(complete=False)
    append(file, line(4))
    append(tmp_path / "logs/b.jsonl", line(5))
    read.clear()
    resumed, same, said = night(complete=False)
    assert (resumed.record.run_id, same.digest) == (run.record.run_id, entry.digest) and not read
    assert [sentence.split(" on the logs as of")[0] for sentence in said] == [f"resumes run {run.record.run_id}"]
    fresh, newer, _ = night(fresh=True)
    assert fresh.record.run_id != run.record.run_id and len(stored(newer)[0]) == 6
    assert night()[0].record.run_id == fresh.record.run_id  # the run before it is not resumed any more


def test_a_run_whose_logs_are_gone_is_not_resumed(night, tmp_path):
    file = tmp_path / "logs/a.jsonl"
    append(file, *map(line, range(3)))
    run, _, _ = night(complete=False)
    file.write_text(line(7))
    other, entry, said = night()
    assert other.record.run_id != run.record.run_id and stored(entry)[0]["id"].tolist() == ["id-7"]
    assert "cannot be resumed: the logs no longer hold what it reads" in said[0]
    assert "everything is ingested anew" in said[1]


def test_a_rotated_log_is_known_by_its_bytes(night, read, tmp_path):
    logs = tmp_path / "logs"
    append(logs / "a.jsonl", *map(line, range(3)))
    night()
    append(logs / "a.jsonl", line(3))
    (logs / "a.jsonl").rename(logs / "a-1.jsonl")
    append(logs / "a.jsonl", line(4))
    read.clear()
    _, entry, said = night()
    assert read == [("a-1.jsonl", 4), ("a.jsonl", 1)] and not said
    assert sorted(stored(entry)[0]["id"]) == [f"id-{number}" for number in range(5)]


@pytest.mark.parametrize("lost", ["entry", "damaged part", "state", "chain"])
def test_a_lost_link_is_said_and_everything_is_ingested_anew(lost, night, tmp_path):
    file = tmp_path / "logs/a.jsonl"
    append(file, *map(line, range(3)))
    run, entry, _ = night()
    work_dir = run.record.path.parent
    match lost:
        case "entry":
            entry.path.rename(tmp_path / "elsewhere")
        case "damaged part":
            part = entry.path / "traces.parquet/part-00000.parquet"
            part.write_bytes(part.read_bytes()[:-1])
        case "state":
            next(work_dir.glob("ingested/*/ids.hashes")).unlink()
        case "chain":
            (work_dir / "ingested.json").unlink()
    append(file, line(3))
    _, second, said = night()
    assert stored(second)[0]["id"].tolist() == [f"id-{number}" for number in range(4)]
    assert len(list((second.path / "traces.parquet").iterdir())) == 1
    assert lost == "chain" or "everything is ingested anew: no earlier ingest can be continued" in said[0]


def test_a_store_that_was_copied_alone_is_reused(night, tmp_path):
    append(tmp_path / "logs/a.jsonl", *map(line, range(3)))
    run, _, _ = night()
    for path in run.record.path.parent.iterdir():
        if path.name != "store":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert night()[1].reused
    append(tmp_path / "logs/a.jsonl", line(3))
    _, second, _ = night()
    assert stored(second)[0]["id"].tolist() == [f"id-{number}" for number in range(4)]


def test_a_deleted_log_is_gone(night, tmp_path):
    logs = tmp_path / "logs"
    append(logs / "a.jsonl", *map(line, range(3)))
    append(logs / "b.jsonl", line(3))
    night()
    (logs / "b.jsonl").unlink()
    _, entry, said = night()
    assert stored(entry)[0]["id"].tolist() == ["id-0", "id-1", "id-2"]
    assert "the logs no longer hold all that it read" in said[0]


SECRET = "hunter2-zq9x7"
NAMED, BARE = f"My password is {SECRET}", f"I typed {SECRET} and nothing came of it."


@pytest.mark.parametrize("texts", [(NAMED, BARE), (BARE, NAMED)], ids=["revealed before", "revealed later"])
def test_a_secret_that_one_night_reveals_is_redacted_in_the_records_of_others(texts, config, night, tmp_path):
    file = tmp_path / "logs/a.jsonl"
    entries, said = [], []
    for number, text in enumerate(["Hello", texts[0], "Hello again", texts[1], "Good night"]):
        append(file, line(number, messages=[{"role": "user", "content": text}, {"role": "assistant", "content": "So?"}]))
        _, entry, words = night()
        entries.append(entry)
        said += words
    ingest(config.ingest, tmp_path / "whole")
    whole = pandas.read_parquet(tmp_path / "whole/traces.parquet")
    pandas.testing.assert_frame_equal(stored(entries[-1])[0], whole)
    assert not said
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file() and entries[1].path not in path.parents]
    later = [path for path in written if entries[2].path not in path.parents]
    assert not any(SECRET.encode() in path.read_bytes() for path in later)
    assert [part.name for part in sorted((entries[-1].path / "traces.parquet").iterdir())] == [
        f"part-{number:05d}.parquet" for number in range(5)
    ]


def session(*texts):
    """Lines of a coding agent's session, each linked to the one before."""
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        content = [{"type": "text", "text": text}] if number % 2 else text
        yield json.dumps({
            "type": role, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None, "sessionId": "s",
            "timestamp": f"2026-11-01T00:00:{number:02d}Z", "cwd": "/w", "version": "2.0", "isSidechain": False,
            "message": {"role": role, "content": content, **({"id": f"m{number}", "model": "x"} if number % 2 else {})},
        }) + "\n"  # fmt: skip


def test_a_session_that_grows_replaces_what_was_stored_of_it(config, night, tmp_path):
    file = tmp_path / "logs/s.jsonl"
    texts = ["What is 1?", "It is 1.", "And 2?", "It is 2.", "And 3?", "It is 3."]
    append(tmp_path / "logs/a.jsonl", line(0))
    for turns in (2, 4, 6):
        file.write_text("".join(session(*texts[:turns])))
        _, entry, said = night()
        frame, report = stored(entry)
        assert (len(frame), report["read"]) == (2, 2) and not said
        assert texts[turns - 1] in frame.set_index("source_file")["messages"]["s.jsonl"]


KILLED = """
import os, signal, sys
from pathlib import Path
from flows.intake import take_in
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tracewheel.config import load_config
from tracewheel.traces.intake import Intake

usual = Intake.flush
def kill(self):
    usual(self)
    os.kill(os.getpid(), signal.SIGKILL)
Intake.flush = kill
run = begin_run(load_config(Path(sys.argv[1])), driver=DirectDriver())
with run.hold():
    take_in(run)
"""


@pytest.mark.slow
def test_a_kill_during_a_nights_ingest_costs_nothing(config, night, tmp_path):
    file = tmp_path / "logs/a.jsonl"
    append(file, *map(line, range(3)))
    night()
    append(file, line(3))
    profile = tmp_path / "profile.json"
    profile.with_suffix(".yaml").write_text(json.dumps(config.model_dump(mode="json")))
    done = subprocess.run([sys.executable, "-c", KILLED, str(profile.with_suffix(".yaml"))], timeout=120)
    assert done.returncode == -signal.SIGKILL
    append(file, line(4))
    run, entry, said = night()
    assert stored(entry)[0]["id"].tolist() == [f"id-{number}" for number in range(4)]
    assert said[0].startswith(f"resumes run {run.record.run_id}")
    assert len(stored(night()[1])[0]) == 5


@pytest.mark.slow
def test_curation_of_a_chain_is_that_of_one_ingest_of_everything(config, night, tmp_path):
    shipped = (ROOT / "data/traces/workspace.jsonl").read_bytes().splitlines(keepends=True)
    for begin, end in ((0, 600), (600, 700), (700, len(shipped))):
        with (tmp_path / "logs/log.jsonl").open("ab") as file:
            file.writelines(shipped[begin:end])
        _, entry, _ = night()
    ingest(config.ingest, tmp_path / "whole")
    sections = CurateSections.of(load_config(str(ROOT / "configs/tiny-short.yaml"), []))
    for name, traces in (("chain", entry.path), ("anew", tmp_path / "whole")):
        (tmp_path / name).mkdir()
        curate(sections, traces, tmp_path / name)
    for file in ("tasks.parquet", "episodes.parquet", "splits.parquet", "duplicates.parquet"):
        assert digest_of(tmp_path / "chain" / file) == digest_of(tmp_path / "anew" / file), file
