"""What holds something of a forgotten user is found and deleted, other users' data stays, and nothing brings them back."""

import json
import shutil
from pathlib import Path

import pandas
import pytest

from flows.intake import take_in
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tasks.records.gate_ledger import read_ledger
from tasks.stages.curate import curate_tasks
from tasks.tracking.client import make_client
from tasks.tracking.registry import find_champion, register
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.fingerprint import digest_of
from tracewheel.curation.split_record import SplitRecord, identity_key
from tracewheel.dashboard.digests import FOLDER as DASHBOARD
from tracewheel.policy.adapters import digests_of
from tracewheel.traces.forgotten import FORGOTTEN_FILE, list_with_adapter, read_forgotten
from tracewheel_forgetting.file_search import Searcher
from tracewheel_forgetting.forgetting import forget, look_for
from tracewheel_forgetting.scrubbing import drop_lines
from tracewheel_forgetting.theirs import Wanted

ROOT = Path(__file__).parents[3]
LOG = ROOT / "data" / "traces" / "workspace.jsonl"
USER = "user-003"
PROMOTED = {"verdict": "promoted", "reasons": []}
INTAKE = {"batches": [], "quarantined": 1, "read": 300}


@pytest.fixture
def config(make_run, copy_store, tmp_path):
    lines = LOG.read_bytes().splitlines(keepends=True)[:300]
    broken = b'{"user": "user-003", "messages": [{"role": "user", "content": "cut\n'
    (tmp_path / "traces.jsonl").write_bytes(b"".join([*lines, broken]))
    config = make_run().config
    database = copy_store(tmp_path / "mlflow" / "mlflow.db")  # its own: the search goes through all that is beside it
    tracking = config.tracking.model_copy(update={"uri": f"sqlite:///{database}", "experiment": "own", "model_name": "own"})
    sizes = {"train_tasks": 100, "validation_tasks": 4, "held_out_tasks": 8, "harder_tasks": 2, "counts": "auto"}
    curation = config.curation.model_copy(update=sizes)
    return config.model_copy(update={"curation": curation, "tracking": tracking})


@pytest.fixture
def night(config, adapter, track):
    """A run up to its curation, as if it had trained, been tracked and promoted an adapter."""

    def start(name):
        run = track(begin_run(config, driver=DirectDriver()))
        with run.hold():
            run.record.start(lambda: {"champion": None, "splits": None})
            traces = take_in(run)
            curated = curate_tasks(run, traces=traces)
            (run.record.path / "report.html").write_text("<p>the run's report</p>")
            run.record.write("intake.json", INTAKE | {"examples": [f"{USER} said so", "user-0031 too"]})
            (run.record.path / "splits.parquet").write_bytes((curated.path / "splits.parquet").read_bytes())
            run.record.write("summary.json", {"gate": PROMOTED, "report": "report.html"})
            frame = pandas.read_parquet(traces.path / "traces.parquet").rename(columns={"id": "trace_id"})
            frame[["trace_id", "user", "session"]].to_parquet(run.record.path / "learned.parquet")
            run.record.write("lineage.json", {**run.record.lineage, "policies": {"rl": {"adapter": {"folder": name}}}})
            intake = str(run.record.path / "intake.json")
            make_client(config.tracking.uri).log_artifact(run.tracking.mlflow_run, intake, "data")
            shutil.copytree(adapter(name), run.record.path / "adapter")
            register(run, run.record.path / "adapter", PROMOTED)
        return run, traces, curated

    return start


def test_a_user_is_forgotten(config, night, tmp_path, monkeypatch):
    run, traces, curated = night("one")
    _dvc_project(tmp_path, traces.path / "traces.parquet" / "part-00000.parquet")
    monkeypatch.chdir(tmp_path)
    wanted = Wanted.of([USER], [], [], config.ingest.redaction)
    theirs = pandas.read_parquet(traces.path / "traces.parquet").query("user == @USER")
    affected = look_for(config, wanted)
    assert set(affected.theirs.traces) == set(theirs["id"]) and len(affected.theirs.records) == 1
    found = affected.to_record(Path(config.work_dir))
    assert found["log_lines"][-1] == "traces.jsonl:301" and len(found["log_lines"]) == len(theirs) + 1
    assert found["runs"][run.record.run_id]["learnt"]
    assert found["mlflow"]["champion"] in found["mlflow"]["versions"]
    assert any(path.endswith("intake.json") for path in found["mlflow"]["artifacts"])
    assert {f"{run.record.run_id}/intake.json", f"store/{traces.path.name}/quarantine.jsonl"} <= set(found["files"])
    assert found["dvc"] == {"files": ["kept.parquet", ".dvc/cache/files/copy"], "not_searched": ["far"]}
    before = SplitRecord.read(run.record.path)
    index = Path(config.work_dir) / DASHBOARD
    index.mkdir()
    (index / "index.db").write_text(f"words of {USER}")
    assert not any(path.startswith(DASHBOARD) for path in look_for(config, wanted).to_record(Path(config.work_dir))["files"])

    done = forget(config, affected)
    assert not index.exists()
    assert done["proof"]["found"] == 0 and done["entries_deleted"] >= 2
    assert not traces.path.exists() and not curated.path.exists() and not (run.record.path / "report.html").exists()
    assert json.loads((run.record.path / "intake.json").read_text())["examples"] == ["(forgotten) said so", "user-0031 too"]
    after = SplitRecord.read(run.record.path)
    gone = before.states.keys() - after.states.keys()
    assert identity_key("user", USER) in gone and {before.kinds[key] for key in gone} == {"user", "session"}
    learned = pandas.read_parquet(run.record.path / "learned.parquet")
    assert USER not in set(learned["user"]) and len(learned) > 200
    champion, why = find_champion(config)
    assert champion is None and "forgotten since" in why
    # The adapter that it left is known by its digest, wherever it lies; DVC's copies are its owner's to delete.
    kept = tmp_path / "elsewhere" / "copy"
    shutil.copytree(run.record.path / "adapter", kept)
    assert list_with_adapter(digests_of(kept).values(), [Path(config.work_dir)]) == Path(config.work_dir) / FORGOTTEN_FILE
    assert not list_with_adapter(["0" * 64], [Path(config.work_dir)]) and (tmp_path / "kept.parquet").is_file()
    names = [path.name for path in Path(config.work_dir).glob("forgotten*")]
    assert sorted(names) == ["forgotten", "forgotten.json"] and not Searcher([USER]).search([Path(config.work_dir)]).found

    again, rebuilt, _ = night("two")
    assert again.record.run_id != run.record.run_id
    report = json.loads((rebuilt.path / "report.json").read_text())
    assert report["forgotten"] == len(theirs) + 1
    stored = pandas.read_parquet(rebuilt.path / "traces.parquet")
    assert USER not in set(stored["user"]) and len(stored) > 200
    assert find_champion(config)[0].run_id == again.record.run_id
    left = look_for(config, wanted)
    assert [reader.record.run_id for reader in left.made.runs] == [run.record.run_id]
    assert not left.mlflow.versions and not left.mlflow.traces  # the version is marked, and nobody is named any more
    assert {found.path.name for found in left.search.found} == {"intake.json"}  # which the fixture wrote again


@pytest.mark.parametrize("digest", ["its own", "another"])
def test_a_candidate_ends_that_learnt_from_them_or_was_confirmed_on_their_tasks(config, night, digest):
    run, _, curated = night("one")
    learnt = digest_of(run.record.path / "adapter")
    own = {"weights": "", "against": "", "champion": "", "planned": 9, "screens": [], "nights": []}
    own |= {"digest": learnt} if digest == "its own" else {"digest": "d", "screens": [curated.path.name]}
    line = {"evidence": "candidate", "run": "r", "baseline": "champion", "began": "2026-11-01T00:00:00+00:00", "level": 0.001}
    (Path(config.work_dir) / "gates.json").write_text(json.dumps([{**line, "candidate": own}]))
    done = forget(config, look_for(config, Wanted.of([USER], [], [], config.ingest.redaction)))
    (after,) = read_ledger(config.work_dir)
    why = "it learnt from somebody who was" if digest == "its own" else "its evidence is on tasks of somebody who was"
    assert after["verdict"] == "ended" and after["why"].startswith(why) and after["why"] in done["candidate"]


def test_a_kill_half_way_is_finished_by_the_same_command(config, night, monkeypatch):
    run, traces, _ = night("one")
    wanted = Wanted.of([USER], [], [], config.ingest.redaction)
    affected = look_for(config, wanted)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("tasks.afterwards.made_of.Made.delete_entries", _interrupt)
        forget(config, affected, delete_adapters=True)
    assert read_forgotten(config.work_dir) and traces.path.exists()
    done = forget(config, look_for(config, wanted), delete_adapters=True)
    assert done["proof"]["found"] == 0 and not traces.path.exists()
    assert make_client(run.config.tracking.uri).search_model_versions(f"name = '{config.tracking.model_name}'") == []


def test_the_proof_fails_on_what_cannot_be_cleaned(config, night, tmp_path):
    night("one")
    wanted = Wanted.of([USER], [], [], config.ingest.redaction)
    affected = look_for(config, wanted)
    (tmp_path / "mlflow" / "copy.bin").write_bytes(b"\x00user-003\x00")
    with pytest.raises(InfrastructureError, match=r"copy\.bin"):
        forget(config, affected)


@pytest.fixture
def served(config):
    """What `serve` logged in the work folder: a conversation of theirs, one of somebody else, and a reply in the shadow."""
    folder = Path(config.work_dir) / "serving" / "logs"
    (folder / "shadow").mkdir(parents=True)
    said = [
        {"role": "user", "content": "Please note the Zyxthorpe estate, served raw."},
        {"role": "assistant", "content": "ok"},
    ]
    lines = [
        {"id": f"served-{user}", "messages": said[:], "user": user, "session": f"of {user}", "format": "tracewheel"}
        for user in (USER, "user-999")
    ]
    lines[1]["messages"] = [{"role": "user", "content": "Something else."}, said[1]]
    log, shadow = folder / "conversations-x-0001.jsonl", folder / "shadow" / "replies-x-0001.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shadow.write_text(json.dumps({"conversation": f"served-{USER}", "turn": "t", "shadow": said[1]}) + "\n")
    return log, shadow


def test_what_was_served_goes_whole(config, night, served):
    night("one")
    (_, stays), (log, shadow) = served[0].read_text().splitlines(), served
    done = forget(config, look_for(config, Wanted.of([USER], [], [], config.ingest.redaction)))
    assert done["proof"]["found"] == 0
    assert log.read_text() == stays + "\n" and shadow.read_text() == ""


def test_logs_of_the_profile_are_changed_only_on_demand(config, night, served):
    night("one")
    log, before = served[0], served[0].read_bytes()
    paths = (*config.ingest.paths, str(log))
    config = config.model_copy(update={"ingest": config.ingest.model_copy(update={"paths": paths})})
    wanted = Wanted.of([USER], [], [], config.ingest.redaction)
    affected = look_for(config, wanted)
    assert [line for file, line in affected.lines if file.endswith(log.name)] == [1]
    forget(config, affected)
    assert log.read_bytes() == before and served[1].read_text() == ""
    assert [line for file, line in look_for(config, wanted).lines if file.endswith(log.name)] == [1]  # it is still found
    forget(config, look_for(config, wanted), rewrite_logs=True)
    assert log.read_bytes() == before.splitlines(keepends=True)[1]


def test_a_judges_journal_is_named_and_stays(config, night, tmp_path, monkeypatch):
    night("one")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.jsonl").write_text('{"reply": "Fine."}\n{"reply": "The agent told user-003 so."}\n')
    with pytest.raises(InfrastructureError, match=r"judge\.jsonl:2"):
        forget(config, look_for(config, Wanted.of([USER], [], [], config.ingest.redaction)))
    assert USER in (tmp_path / "judge.jsonl").read_text()


def test_lines_leave_the_log(config, tmp_path):
    log = tmp_path / "traces.jsonl"
    before = log.read_bytes().splitlines()
    theirs = [line for line in before if b'"user":"user-003"' in line]
    assert drop_lines(log, [USER], [before[-1]]) == len(theirs) + 1
    assert log.read_bytes().splitlines() == [line for line in before[:-1] if line not in theirs]


def test_nobody_and_a_store_that_is_in_use(config, night):
    with pytest.raises(ConfigError, match="--user"):
        Wanted.of([], [], [], config.ingest.redaction)
    run, traces, _ = night("one")
    affected = look_for(config, Wanted.of([], ["user-003-session-1"], [], config.ingest.redaction))
    assert {trace.session for trace in affected.theirs.traces.values()} == {"user-003-session-1"}
    assert USER not in affected.theirs.needles(affected.wanted)
    with run.hold(), pytest.raises(InfrastructureError):
        forget(config, affected)
    assert traces.path.exists() and not read_forgotten(config.work_dir)


def test_what_was_said_later_of_a_user_is_forgotten_too(config, tmp_path):
    traces = [json.loads(line) for line in LOG.read_bytes().splitlines()[:40]]
    own = next(trace for trace in traces if trace["user"] == USER)
    other = next(trace for trace in traces if trace["user"] != USER)
    said, served = tmp_path / "said.csv", tmp_path / "served.jsonl"
    said.write_text(f"id,value\n{own['id']},1\n{other['id']},1\n")
    lines = [
        {"type": "tracewheel.outcome", "session": trace["session"], "value": 0.0, "kind": "thumb"} for trace in (own, other)
    ]
    served.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ingest = config.ingest.model_dump() | {"outcomes": {"paths": [str(said)]}, "paths": (*config.ingest.paths, str(served))}
    config = config.model_copy(update={"ingest": type(config.ingest).model_validate(ingest)})
    run = begin_run(config, driver=DirectDriver())
    with run.hold():
        run.record.start(lambda: {"champion": None, "splits": None})
        assert take_in(run).result["outcomes"]["said"] == 4
    affected = look_for(config, Wanted.of([USER], [], [], config.ingest.redaction))
    assert affected.to_record(Path(config.work_dir))["outcomes"] == 2
    assert {("outcomes/said.csv", 2), ("served.jsonl", 1)} <= set(affected.lines)
    forget(config, affected, rewrite_logs=True)
    assert said.read_text() == f"id,value\n{other['id']},1\n" and other["session"] in served.read_text()
    assert own["session"] not in served.read_text()
    said.write_text(f"id,value\n{own['id']},1\n{other['id']},1\n")  # their file comes again
    run = begin_run(config, driver=DirectDriver())
    with run.hold():
        run.record.start(lambda: {"champion": None, "splits": None})
        again = take_in(run)
    assert again.result["outcomes"]["said"] == 2 and own["id"] not in (again.path / "outcomes.jsonl").read_text()


def _dvc_project(folder, part):
    """A project whose cache and one of whose outputs are copies of an ingest's part."""
    (folder / ".dvc" / "cache" / "files").mkdir(parents=True)
    for copy in (folder / ".dvc" / "cache" / "files" / "copy", folder / "kept.parquet"):
        shutil.copyfile(part, copy)
    (folder / ".dvc" / "config").write_text("['remote \"far\"']\n    url = ssh://host/place\n")
    (folder / "kept.parquet.dvc").write_text("outs: [{path: kept.parquet, md5: a}]\n")


def _interrupt(*_):
    raise KeyboardInterrupt
