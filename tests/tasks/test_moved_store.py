"""A copied sqlite store of MLflow names its own folder, and is read by MLflow's own client when the original is gone."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from tasks.engine.reading import begin_run
from tasks.tracking.client import forget_database, make_client
from tasks.tracking.moved_store import follow, location_of
from tasks.tracking.tracking import Tracking
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.run_record import RunRecord


@pytest.fixture
def original(copy_store, make_run, track, tmp_path):
    """A work folder with a store of its own: the shared one, emptied of what other tests logged by another experiment name."""
    run, folder = make_run(), tmp_path / "original"
    copy_store(folder / "mlflow.db")
    tracking = run.config.tracking.model_copy(update={"uri": f"sqlite:///{folder}/mlflow.db", "experiment": "moved"})
    run = begin_run(run.config.model_copy(update={"work_dir": str(folder), "tracking": tracking}))
    yield track(run)
    forget_database(run.config.tracking.uri)


def addresses(database):
    """Every text in a store that holds `original`."""
    with sqlite3.connect(database) as store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = [(table, row[1]) for table in tables for row in store.execute(f"PRAGMA table_info({table})")]
        return [
            (table, column, value)
            for table, column in columns
            for (value,) in store.execute(
                f'SELECT "{column}" FROM "{table}" WHERE CAST("{column}" AS TEXT) LIKE ?', ("%/original%",)
            )
        ]


def test_a_copy_is_read_by_mlflows_own_client_when_the_original_is_gone(original, adapter, tmp_path):
    import mlflow

    weights, run_id = adapter("weights"), original.tracking.mlflow_run_id
    original.tracking.log_weights("rl", weights)
    place = f"adapters/registered-{digest_of(weights)[:8]}"
    client = original.tracking.client
    client.log_artifacts(run_id, str(weights), place)
    client.create_registered_model("moved")
    source = f"{client.get_run(run_id).info.artifact_uri}/{place}"
    client.create_model_version("moved", source, run_id)
    original.tracking.stop()  # nothing writes into a folder that is copied and deleted
    old = tmp_path / "original"
    copy = tmp_path / "else where"
    shutil.copytree(old, copy)
    shutil.rmtree(old)

    uri = f"sqlite:///{copy}/mlflow.db"
    make_client(uri)  # what every command does first
    assert addresses(copy / "mlflow.db") == []
    own = mlflow.MlflowClient(uri)
    run = own.get_run(run_id)
    assert run.info.artifact_uri.startswith(location_of(copy / "mlflow.db"))
    fetched = own.download_artifacts(run.info.run_id, "adapters/rl", str(tmp_path))
    assert digest_of(Path(fetched)) == digest_of(weights)
    mlflow.set_tracking_uri(uri)
    registered = mlflow.artifacts.download_artifacts(artifact_uri="models:/moved/1", dst_path=str(tmp_path / "registered"))
    assert digest_of(Path(registered)) == digest_of(weights)

    moved = RunRecord(copy, original.record.run_id)
    again = Tracking.open(
        original.config.model_copy(
            update={"work_dir": str(copy), "tracking": original.config.tracking.model_copy(update={"uri": uri})}
        ),
        moved,
    )
    assert again.mlflow_run_id == run.info.run_id, "the copied run goes on in its own MLflow run"
    forget_database(uri)
    assert follow(copy / "mlflow.db") == []


def test_a_location_that_someone_chose_stays(original, tmp_path):
    client = original.tracking.client
    client.create_experiment("elsewhere", artifact_location=(tmp_path / "chosen" / "artifacts").as_uri())
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    assert follow(tmp_path / "copy" / "mlflow.db") == [location_of(tmp_path / "original" / "mlflow.db")]
    client = make_client(f"sqlite:///{tmp_path}/copy/mlflow.db")
    assert client.get_experiment_by_name("elsewhere").artifact_location == (tmp_path / "chosen" / "artifacts").as_uri()
    forget_database(f"sqlite:///{tmp_path}/copy/mlflow.db")


def test_a_copy_that_cannot_be_written_says_so(original, tmp_path):
    assert original.tracking.settle()
    original.tracking.stop()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "original", copy)
    with sqlite3.connect(copy / "mlflow.db") as store:
        store.execute("CREATE TRIGGER frozen BEFORE UPDATE ON experiments BEGIN SELECT RAISE(ABORT, 'read-only'); END")
    with pytest.raises(InfrastructureError, match=r"was moved here from .*original, and its addresses cannot be changed"):
        follow(copy / "mlflow.db")


def test_what_is_no_store_is_left_to_mlflow(tmp_path):
    (tmp_path / "mlflow.db").write_text("no database")
    assert follow(tmp_path / "mlflow.db") == [] and follow(tmp_path / "missing.db") == []
