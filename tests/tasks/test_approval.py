"""Promotions that wait for a person: registered, not champion, and decided once."""

import shutil

import pytest

from tasks.tracking.approval import approve
from tasks.tracking.client import make_client
from tasks.tracking.registry import find_champion, register
from tracewheel.core.errors import DataError, InputError
from tracewheel.core.files import read_json, write_json
from tracewheel.core.fingerprint import digest_of
from tracewheel.operations.approval import approval_of
from tracewheel.traces.forgotten import NOBODY

PROMOTED = {"verdict": "promoted", "reasons": ["it is better"]}
NOTES = {"by": "Ada", "note": "looked at twenty of them", "say": lambda text: None}


@pytest.fixture
def ended(make_run, adapter):
    """Makes runs that have ended: their record, and the version that they registered."""

    def make(name, approval="required", **changes):
        run = make_run(tracked=True, gate={"approval": approval}, **changes)
        with run.hold():
            shutil.copytree(adapter(name), run.record.path / "adapter")
            champion, _ = find_champion(run.config)
            write_json(run.record.path / "start.json", {"champion": champion.to_record() if champion else None})
            version = register(run, run.record.path / "adapter", PROMOTED)
            write_json(run.record.path / "summary.json", {"gate": PROMOTED, "report": "report.html"})
            run.record.state.end("awaiting approval" if approval == "required" else "promoted", "")
        return run, version

    return make


def tags_of(run, version):
    return make_client(run.config.tracking.uri).get_model_version(run.config.tracking.model_name, version).tags


def test_the_key_makes_no_other_run(make_run):
    assert make_run().record.run_id == make_run(gate={"approval": "required"}).record.run_id


def test_an_approved_run_becomes_champion(ended):
    run, version = ended("one")
    assert find_champion(run.config)[0] is None, "the alias has not moved"
    assert tags_of(run, version)["not_champion"] == "its promotion waits for approval"
    decided = approve(run.record, "approved", **NOTES)
    assert (decided.outcome, decided.by) == ("promoted", "Ada")
    champion, _ = find_champion(run.config)
    assert (champion.version, champion.digest) == (version, digest_of(run.record.path / "adapter"))
    tags = tags_of(run, version)
    assert (tags["crowned"], tags["approval"], tags["approval_by"]) == ("yes", "approved", "Ada")
    assert "not_champion" not in tags
    assert run.record.state.read()["state"] == "promoted"
    assert run.record.summary["approval"]["note"] == "looked at twenty of them"
    logged = make_client(run.config.tracking.uri).get_run(run.tracking.mlflow_run).data.tags
    assert logged["tracewheel.approval"] == "approved" and logged["tracewheel.approval_by"] == "Ada"


def test_a_refused_run_is_registered_and_stays_so_when_it_is_repeated(ended):
    run, version = ended("one")
    approve(run.record, "refused", **NOTES)
    assert register(run, run.record.path / "adapter", PROMOTED) == version
    assert find_champion(run.config)[0] is None
    assert tags_of(run, version)["not_champion"] == "refused by Ada: looked at twenty of them"
    assert run.record.state.read()["state"] == "refused"


def test_what_learnt_from_somebody_who_was_forgotten_since_is_promoted_by_nobody(ended):
    run, version = ended("one")
    NOBODY.adding([], [digest_of(run.record.path / "adapter")]).write(run.config.work_dir)
    with pytest.raises(DataError, match="is approved, and not champion: it learnt from somebody who was forgotten since"):
        approve(run.record, "approved", **NOTES)
    assert find_champion(run.config)[0] is None
    assert "crowned" not in tags_of(run, version) and "forgotten" in tags_of(run, version)


def test_a_decision_is_given_once(ended):
    run, _ = ended("one")
    approve(run.record, "approved", **NOTES)
    for decision, by in (("refused", "Ada"), ("approved", "Ada"), ("refused", "Bob")):
        with pytest.raises(InputError, match="decided already: approved by Ada"):
            approve(run.record, decision, by, "", lambda text: None)
    assert approval_of(run.record.path).decision == "approved"


def test_an_approval_loses_against_a_champion_that_came_in_between(ended):
    waiting, version = ended("one")
    other, crowned = ended("two", approval="none", seed=1)
    assert find_champion(other.config)[0].version == crowned
    with pytest.raises(DataError, match=f"approved, and not champion: .* version {crowned} .* never compared"):
        approve(waiting.record, "approved", **NOTES)
    assert find_champion(other.config)[0].version == crowned
    assert approval_of(waiting.record.path).outcome == "overtaken"
    assert "crowned" not in tags_of(waiting, version)
    assert waiting.record.state.read()["state"] == "refused"


def test_a_decision_whose_work_was_cut_off_is_carried_out_by_the_same_one_again(ended, monkeypatch):
    run, version = ended("one")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("tasks.tracking.approval.register", interrupt)
        approve(run.record, "approved", **NOTES)
    assert approval_of(run.record.path).outcome == ""
    with pytest.raises(InputError, match="not carried out yet"):
        approve(run.record, "refused", **NOTES)
    approve(run.record, "approved", **NOTES)
    assert find_champion(run.config)[0].version == version


def test_what_nobody_waits_for_cannot_be_decided(ended):
    run, _ = ended("one", approval="none")
    with pytest.raises(InputError, match="does not wait for approval"):
        approve(run.record, "approved", **NOTES)
    waiting, _ = ended("two", seed=1)
    for by, note in (("", ""), ("Ada\x1b[31m", ""), ("Ada", "a" * 501), ("Ada", "line\nline"), ("Ada\u202e", "")):
        with pytest.raises(InputError):
            approve(waiting.record, "approved", by, note, lambda text: None)
    with pytest.raises(InputError, match="give approved or refused"):
        approve(waiting.record, "perhaps", **NOTES)
    assert approval_of(waiting.record.path).waits
    write_json(waiting.record.path / "approval.json", {"asked": 3})
    with pytest.raises(DataError, match="not an approval"):
        approve(waiting.record, "approved", **NOTES)
    assert read_json(waiting.record.path / "approval.json") == {"asked": 3}


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_a_run_that_waits_ends_as_such_and_is_told_of_as_such(ended):
    from flows.deploy.ends import complete
    from tasks.records.telling import STATES

    run, _ = ended("one")
    summary = {"gate": PROMOTED | {"baseline": "champion"}, "report": "report.html"}
    state = complete(run, summary)
    assert (state.name, state.data) == ("AwaitingApproval", summary) and "tracewheel champion approve" in state.message
    assert STATES[state.name] == "awaiting"
    approve(run.record, "refused", **NOTES)
    assert complete(run, summary).name == "Refused"


def test_a_run_that_needs_nobody_is_promoted(ended):
    from flows.deploy.ends import complete

    run, _ = ended("one", approval="none")
    assert complete(run, {"gate": PROMOTED | {"baseline": "champion"}, "report": "report.html"}).name == "Promoted"
