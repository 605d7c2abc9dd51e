"""Undoing promotions, in a real MLflow store."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlparse

import pytest

from flows.cli import main
from tasks.tracking.client import make_client
from tasks.tracking.promotion import CHAMPION
from tasks.tracking.registry import find_champion, register
from tasks.tracking.rollback import roll_back
from tracewheel.core.errors import DataError, InfrastructureError

PROMOTED = {
    "verdict": "promoted",
    "difference": 0.25,
    "interval": [0.1, 0.4],
    "confidence": 0.95,
    "p_value": 0.001,
    "baseline": "x",
}
REFUSED = {"verdict": "refused"}


@pytest.fixture
def promoted(make_run, adapter):
    """Promotes adapters one after the other, each by its own run; gives the runs and the versions."""

    def promote(*names):
        runs = [make_run(tracked=True, seed=number) for number, _ in enumerate(names)]
        return runs, [register(run, adapter(name), PROMOTED) for run, name in zip(runs, names, strict=True)]

    return promote


@pytest.fixture
def tags(promoted):
    def read(run, version):
        return make_client(run.config.tracking.uri).get_model_version(run.config.tracking.model_name, version).tags

    return read


def champion_of(run):
    return find_champion(run.config)[0].version


def test_a_promotion_records_what_it_replaced(promoted, tags):
    (run, _), (one, two) = promoted("one", "two")
    assert (tags(run, one)["replaced"], tags(run, two)["replaced"]) == ("none", one)
    assert tags(run, two)["promoted_at"].startswith("20")
    assert json.loads(tags(run, two)["gate"]) == {key: value for key, value in PROMOTED.items() if key != "verdict"}


def test_rolling_back_twice_goes_back_two_and_then_there_is_none(promoted, tags):
    (run, *_), (one, two, three) = promoted("one", "two", "three")
    assert roll_back(run.config, why="loops in production")["restored"] == two
    assert champion_of(run) == two
    assert tags(run, three)["rolled_back"] == "loops in production"
    assert (tags(run, three)["rolled_back_to"], "restored_at" in tags(run, two)) == (two, True)
    assert roll_back(run.config)["restored"] == one
    assert champion_of(run) == one
    with pytest.raises(DataError, match=f"version {one} was the first champion: there is none to go back to"):
        roll_back(run.config)
    assert champion_of(run) == one


def test_a_repeated_run_does_not_promote_what_was_rolled_back(promoted, tmp_path):
    runs, (one, two) = promoted("one", "two")
    roll_back(runs[0].config)
    assert register(runs[1], tmp_path / "two", PROMOTED) == two
    assert champion_of(runs[0]) == one


@pytest.mark.slow
def test_the_next_promotion_replaces_the_restored_champion(promoted, make_run, adapter, tags):
    (run, _), (one, two) = promoted("one", "two")
    roll_back(run.config)
    three = register(make_run(tracked=True, seed=9), adapter("three"), PROMOTED)
    assert tags(run, three)["replaced"] == one
    assert roll_back(run.config)["restored"] == one, "version two was rolled back and is left out"
    assert two != one


def test_a_run_that_started_from_a_champion_rolled_back_since_does_not_become_champion(promoted, make_run, adapter):
    (run, _), (one, two) = promoted("one", "two")
    late = make_run(tracked=True, seed=9)
    with late.hold():
        late.record.start(lambda: {"champion": find_champion(late.config)[0].to_record()})
    roll_back(run.config)
    three = register(late, adapter("three"), PROMOTED)
    assert three not in (one, two)
    assert champion_of(run) == one


@pytest.mark.slow
def test_a_version_is_restored_by_number_only_if_it_was_champion(promoted, make_run, adapter, tags):
    (run, *_), (one, two, three) = promoted("one", "two", "three")
    refused = register(make_run(tracked=True, seed=9), adapter("refused"), REFUSED)
    for version, problem in (
        (refused, "was never champion"),
        ("77", "has no such version"),
        (three, "is the champion already"),
    ):
        with pytest.raises(DataError, match=problem):
            roll_back(run.config, to=version)
    assert champion_of(run) == three
    assert roll_back(run.config, to=one)["restored"] == one
    assert roll_back(run.config, to=three)["restored"] == three, "an error is undone by number too"
    assert "rolled_back" not in tags(run, three)
    assert "rolled_back" not in tags(run, two)


@pytest.mark.slow
def test_champions_of_earlier_versions_name_no_predecessor(promoted):
    (run, _), (one, two) = promoted("one", "two")
    make_client(run.config.tracking.uri).delete_model_version_tag(run.config.tracking.model_name, two, "replaced")
    with pytest.raises(DataError, match="does not record which champion it replaced.*--to"):
        roll_back(run.config)
    assert roll_back(run.config, to=one)["restored"] == one


def test_without_a_champion_there_is_nothing_to_roll_back(make_run, tmp_path):
    with pytest.raises(DataError, match="no champion to roll back"):
        roll_back(make_run(tracked=True).config)
    with pytest.raises(DataError, match="does not exist"):
        roll_back(make_run(tracking={"uri": f"sqlite:///{tmp_path}/nowhere.db"}).config)
    assert not (tmp_path / "nowhere.db").exists()


@pytest.mark.parametrize("harm", ["changed", pytest.param("deleted", marks=pytest.mark.slow)])
def test_weights_that_are_not_those_registered_are_not_restored(promoted, tags, harm):
    (run, _), (one, two) = promoted("one", "two")
    source = make_client(run.config.tracking.uri).get_model_version(run.config.tracking.model_name, one).source
    folder = Path(urlparse(source).path)
    (folder / "adapter_model.safetensors").write_bytes(b"other") if harm == "changed" else shutil.rmtree(folder)
    with pytest.raises(InfrastructureError):
        roll_back(run.config)
    assert champion_of(run) == two
    assert "rolled_back" not in tags(run, two)


@pytest.mark.slow
def test_a_champion_of_another_base_is_not_restored(promoted):
    (run, _), (one, two) = promoted("one", "two")
    make_client(run.config.tracking.uri).set_model_version_tag(run.config.tracking.model_name, one, "base_hash", "another")
    with pytest.raises(DataError, match="was made for another base, another"):
        roll_back(run.config)
    assert champion_of(run) == two


@pytest.mark.slow
def test_a_killed_rollback_is_completed_by_the_next(promoted, monkeypatch):
    (run, *_), (_, two, _) = promoted("one", "two", "three")

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("mlflow.MlflowClient.set_registered_model_alias", interrupt)
        roll_back(run.config)
    assert roll_back(run.config)["restored"] == two


def test_two_rollbacks_at_once_go_back_two(promoted):
    (run, *_), (one, two, three) = promoted("one", "two", "three")
    with ThreadPoolExecutor(2) as threads:
        done = [future.result() for future in [threads.submit(roll_back, run.config) for _ in range(2)]]
    assert {(item["rolled_back"], item["restored"]) for item in done} == {(three, two), (two, one)}
    assert champion_of(run) == one


def test_the_command_says_what_it_did(promoted, profile_of, capsys):
    (run, _), (one, two) = promoted("one", "two")
    assert main(["champion", "rollback", profile_of(run), "--why", "worse in production"]) == 0
    shown = capsys.readouterr().out
    assert f"Version {one}, of run {run.record.run_id}, is champion again" in shown
    assert f"version {two} is marked as rolled back: worse in production" in shown
    assert main(["champion", "rollback", profile_of(run), "--json"]) == 2
    assert "there is none to go back to" in json.loads(capsys.readouterr().out)["error"]
    alias = make_client(run.config.tracking.uri).get_model_version_by_alias(run.config.tracking.model_name, CHAMPION)
    assert str(alias.version) == one


@pytest.fixture
def profile_of(tmp_path):
    """The profile of a run as a file."""

    def write(run):
        path = tmp_path / "profile.yaml"
        path.write_text(json.dumps(run.config.model_dump(mode="json", exclude_unset=True)))
        return str(path)

    return write
