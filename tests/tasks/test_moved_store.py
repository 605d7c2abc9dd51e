"""A sqlite store of MLflow that was copied with its work folder: the copy is logged and read in its own place."""

import shutil
from pathlib import Path
from urllib.parse import urlparse

import pytest

from tasks.engine.reading import begin_run
from tasks.tracking.client import artifacts_of, make_client
from tasks.tracking.log_run import log_run
from tasks.tracking.registry import fetch_registered, register
from tasks.tracking.tracking import tracking_client
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.fingerprint import digest_of


@pytest.fixture
def original(copy_store, make_run, track, tmp_path):
    """A run in a work folder with a store of its own."""
    run, folder = make_run(), tmp_path / "original"
    copy_store(folder / "mlflow.db")
    tracking = run.config.tracking.model_copy(update={"uri": f"sqlite:///{folder}/mlflow.db", "experiment": "moved"})
    return track(begin_run(run.config.model_copy(update={"work_dir": str(folder), "tracking": tracking})))


@pytest.mark.parametrize("original_stays", [True, False])
def test_a_copy_is_logged_and_read_in_its_own_place(original, adapter, original_stays, tmp_path):
    weights, name = adapter("weights"), original.config.tracking.model_name
    original.tracking.log_iteration(1, {"reward": 0.5})
    version = register(original, weights, {"verdict": "promoted"})
    old, copy = tmp_path / "original", tmp_path / "else where"
    shutil.copytree(old, copy)
    before = digest_of(old)
    if not original_stays:
        shutil.rmtree(old)

    uri, database = f"sqlite:///{copy}/mlflow.db", copy / "mlflow.db"
    fetched = fetch_registered(uri, name, version, None, tmp_path)
    assert digest_of(fetched) == digest_of(weights)
    shutil.rmtree(copy / "artifacts")
    settings = original.config.tracking.model_copy(update={"uri": uri})
    logged = log_run(copy / original.record.run_id, settings)
    assert not logged.waits
    client = make_client(uri)
    run = client.get_run(logged.mlflow_run)
    assert run.info.artifact_uri.startswith(artifacts_of(database)) and run.data.metrics["rollout/reward"] == 0.5
    assert (Path(urlparse(run.info.artifact_uri).path.replace("%20", " ")) / "config.yaml").is_file()
    assert client.get_experiment(run.info.experiment_id).name == "moved"
    assert [one.name for one in client.search_experiments() if "was in" in one.name] == [f"moved (was in {old / 'artifacts'})"]
    assert log_run(copy / original.record.run_id).brought == 0
    assert digest_of(old) == before if original_stays else not old.exists()


def test_who_needs_every_artifact_is_told_of_a_move(original, tmp_path):
    config = original.config
    with tracking_client(config, "a look", print, every_artifact=True) as client:
        assert client.get_experiment_by_name("moved")
    (tmp_path / "original").rename(tmp_path / "new")
    tracking = config.tracking.model_copy(update={"uri": f"sqlite:///{tmp_path}/new/mlflow.db"})
    config = config.model_copy(update={"work_dir": str(tmp_path / "empty"), "tracking": tracking})
    with pytest.raises(InfrastructureError, match="MLflow: "), tracking_client(config, "a look", print) as client:
        client.get_run("no-such")
    moved = pytest.raises(InfrastructureError, match="was moved, and MLflow looks for artifacts in")
    with moved, tracking_client(config, "a look", print, every_artifact=True):
        pass


def test_a_place_that_someone_chose_stays(original, tmp_path):
    client = make_client(original.config.tracking.uri)
    client.create_experiment("elsewhere", artifact_location=(tmp_path / "chosen" / "artifacts").as_uri())
    settings = original.config.tracking.model_copy(update={"experiment": "elsewhere"})
    run_id = log_run(original.record.path, settings).mlflow_run
    assert client.get_run(run_id).info.artifact_uri.startswith((tmp_path / "chosen").as_uri())
