"""MLflow away: nothing is lost, nothing is logged twice, and what waits is said. The server is MLflow's own."""

import contextlib
import json
import logging
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from tasks.stages.champion import load_champion
from tasks.tracking import client as mlflow_client
from tasks.tracking import tracking
from tasks.tracking.champion import known_champion
from tasks.tracking.client import MlflowAway, make_client
from tasks.tracking.log_run import log_run
from tasks.tracking.promotion import WAITING
from tasks.tracking.registry import find_champion, register
from tasks.tracking.rollback import roll_back
from tasks.tracking.tracking import deliver_waiting, require_mlflow, waiting_runs
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.processes import free_port

PROMOTED, REFUSED = {"verdict": "promoted", "difference": 0.25}, {"verdict": "refused"}


class Server:
    """MLflow's server in a thread: `stop` closes its port, `start` opens it again with the same store."""

    def __init__(self):
        self.port, self._server = free_port(), None
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self):
        from mlflow.server import app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", self.port, app, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The environment of MLflow's server, which reads it once."""
    import mlflow

    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_MLFLOW_SERVER_FILE_STORE", f"sqlite:///{folder}/mlflow.db")
        patch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", (folder / "artifacts").as_uri())
        patch.setenv("MLFLOW_REGISTRY_URI", "")  # the server sets it for the whole process, and a variable of that name
        mlflow_client.make_client(f"sqlite:///{folder}/mlflow.db")
        yield folder
        mlflow.set_registry_uri(None)


@pytest.fixture
def server(stores, monkeypatch):
    monkeypatch.setattr(tracking, "PAUSES", (0.0, 0.1))
    monkeypatch.setattr(tracking, "AWAY_SECONDS", 0.0)
    # A port that is closed is refused at once; a server that shares a busy machine with other tests may take its time.
    monkeypatch.setattr(mlflow_client, "PROBE_SECONDS", 60.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def served(make_run, track, server, request, tmp_path):
    """Makes runs whose MLflow is the server; each in a work folder of its own name."""

    def make(folder="here", experiment="", said=None, **changes):
        name = request.node.name
        place = {"uri": server.uri, "experiment": experiment or name, "model_name": name}
        return track(make_run(tracking=place, work_dir=str(tmp_path / folder), **changes), said)

    return make


def client_of(run):
    return make_client(run.config.tracking.uri)


def runs_of(run):
    client = client_of(run)
    return client.search_runs([client.get_experiment_by_name(run.config.tracking.experiment).experiment_id])


def versions_of(run):
    name = run.config.tracking.model_name
    return {str(version.version): version.tags for version in client_of(run).search_model_versions(f"name = '{name}'")}


def history_of(run, name="rollout/reward"):
    (found,) = runs_of(run)
    return client_of(run).get_metric_history(found.info.run_id, name)


def waiting_in(run):
    return [record.run_id for record in waiting_runs(run.config.work_dir)]


def test_a_run_goes_on_without_mlflow_and_what_it_logged_comes_later_with_its_times(served, server):
    server.stop()
    run = served()
    assert run.tracking.mlflow_run is None
    with run.tracking.closing():
        for step, reward in ((1, 0.5), (2, 0.7)):
            run.tracking.log_iteration(step, {"reward": reward, "success": None})
        (run.record.path / "report.html").write_text("page")
    assert waiting_in(run) == [run.record.run_id]
    assert list(deliver_waiting(run.config.work_dir, print).waiting) == [run.record.run_id]
    server.start()
    run.record.write("summary.json", {"gate": {"verdict": "refused"}, "report": "report.html"})
    said = []
    assert not deliver_waiting(run.config.work_dir, said.append).waiting
    assert said == [f"delivered to MLflow: run {run.record.run_id}"] and waiting_in(run) == []
    (found,) = runs_of(run)
    assert found.info.status == "FINISHED" and run.record.summary["mlflow_run"] == found.info.run_id
    assert [(metric.step, metric.value) for metric in history_of(run)] == [(1, 0.5), (2, 0.7)]
    assert [metric.timestamp for metric in history_of(run)] == [figures["at"] for figures in run.record.figures.values()]
    assert {item.path for item in client_of(run).list_artifacts(found.info.run_id)} == {"config.yaml", "report.html"}


def test_a_server_stopped_half_way_and_started_again_loses_and_repeats_nothing(served, server):
    said = []
    run = served(said=said.append)
    with run.tracking.closing():
        run.tracking.log_iteration(1, {"reward": 0.5})
        server.stop()
        run.tracking.log_iteration(2, {"reward": 0.6})
        run.tracking.log_iteration(3, {"reward": 0.7})
        server.start()
    assert waiting_in(run) == []
    assert [metric.step for metric in history_of(run)] == [1, 2, 3]
    assert len(said) == 2 and "and the run goes on" in said[0] and "MLflow answers again" in said[1]


def test_a_run_without_its_marker_is_brought_again_and_shows_nothing_twice(served, server, adapter):
    """As after a kill between MLflow's answer and the marker; and a call that finds all in its place brings nothing."""
    run = served()
    with run.tracking.closing():
        run.tracking.log_iteration(1, {"reward": 0.5})
        run.record.write("audit.json", {"verdict": "trusted", "exploitable": 0.1, "verifiers": {}, "judges": {}})
        assert register(run, adapter("one"), PROMOTED) == "1"
    assert log_run(run.record.path).brought == 0
    (run.record.path / "mlflow.json").unlink()
    assert log_run(run.record.path, run.config.tracking).brought >= 4
    for name in ("rollout/reward", "audit/exploitable"):
        assert len(history_of(run, name)) == 1
    ((version, tags),) = versions_of(run).items()
    assert tags["crowned"] == "yes" and find_champion(run.config)[0].version == version
    (run.record.path / "mlflow.json").write_text("{")
    assert not log_run(run.record.path, run.config.tracking).waits and len(runs_of(run)) == 1


def test_a_promotion_without_mlflow_is_champion_here_at_once_and_of_the_registry_later(served, server, adapter):
    first, one = served(), adapter("one")
    crowned = register(first, one, PROMOTED)
    server.stop()
    second = served(seed=1)
    with second.hold():
        began, note = find_champion(second.config, follow=True)
        assert began.version == crowned and "MLflow is away" in note
        second.record.start(lambda: {"champion": began.to_record()})
    loaded = second.store.root / "loaded"
    loaded.mkdir()
    with pytest.raises(InfrastructureError, match="has no copy of .*start MLflow"):
        load_champion.make(second, loaded, version=crowned, digest="0" * 64)
    two = adapter("two")
    assert register(second, two, PROMOTED) == WAITING
    champion, note = find_champion(second.config)
    assert (champion.version, champion.digest) == (WAITING, digest_of(two))
    assert load_champion.make(second, loaded, version=WAITING, digest=champion.digest)["policy_version"] == 7
    assert digest_of(loaded / "adapter") == digest_of(two)
    third = served(seed=2)
    with third.hold():
        third.record.start(lambda: {"champion": find_champion(third.config, follow=True)[0].to_record()})
    assert register(third, adapter("three"), PROMOTED) == WAITING
    server.start()
    assert not deliver_waiting(first.config.work_dir, print).waiting
    tags = versions_of(first)
    assert [tags[version]["replaced"] for version in sorted(tags, key=int)] == ["none", "1", "2"]
    assert find_champion(first.config)[0].version == "3" == known_champion(first.config.work_dir)["version"]


def test_a_promotion_by_another_machine_meanwhile_stays_and_that_is_said(served, server, adapter):
    here, said = served(), []
    first = register(here, adapter("one"), PROMOTED)
    late = served(seed=1)
    with late.hold():
        late.record.start(lambda: {"champion": find_champion(late.config, follow=True)[0].to_record()})
    server.stop()
    with late.tracking.closing():
        assert register(late, adapter("late"), PROMOTED) == WAITING
    server.start()
    there = served("there", seed=2)
    with there.hold():
        there.record.start(lambda: {"champion": find_champion(there.config, follow=True)[0].to_record()})
    theirs = register(there, adapter("theirs"), PROMOTED)
    assert not deliver_waiting(here.config.work_dir, said.append).waiting
    tags = versions_of(here)
    assert set(tags) == {first, theirs, "3"} and "crowned" not in tags["3"]
    assert "never compared, so the champion stays" in tags["3"]["not_champion"]
    assert f"version {theirs}" in said[0] and "registered and not champion" in said[0]
    assert find_champion(here.config)[0].version == theirs == known_champion(here.config.work_dir)["version"]


def test_what_a_person_orders_does_not_wait(served, server, adapter):
    run = served()
    register(run, adapter("one"), PROMOTED)
    server.stop()
    for order in (lambda: require_mlflow(run.config, "promote", print), lambda: roll_back(run.config)):
        with pytest.raises(MlflowAway, match="no MLflow server answers"):
            order()
    assert waiting_in(run) == []


def test_what_one_run_is_refused_does_not_hold_up_another(served, server):
    said = []
    run = served(said=said.append)
    client_of(run).delete_experiment(runs_of(run)[0].info.experiment_id)
    with run.tracking.closing():
        run.tracking.log_iteration(1, {"reward": 0.5})
    other = served(experiment="another", seed=1)
    with other.tracking.closing():
        other.tracking.log_iteration(1, {"reward": 0.7})
    (found,) = runs_of(other)
    assert found.info.status == "FINISHED"
    waiting = deliver_waiting(run.config.work_dir, print).waiting
    assert list(waiting) == [run.record.run_id] and "must be in the 'active' state" in waiting[run.record.run_id]


@pytest.fixture
def database(copy_store, tmp_path):
    """A sqlite store of the test's own."""
    return copy_store(tmp_path / "mlflow" / "mlflow.db")


def test_a_locked_sqlite_store_is_no_error_and_gets_all_later(make_run, database, monkeypatch):
    monkeypatch.setattr(tracking, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(mlflow_client, "BUSY_SECONDS", 0.1)
    run = make_run(tracked=True, tracking={"uri": f"sqlite:///{database}"})
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        run.tracking.log_iteration(1, {"reward": 0.5})
        assert waiting_in(run) == [run.record.run_id]
        holder.rollback()
    run.tracking.log_iteration(2, {"reward": 0.6})
    history = client_of(run).get_metric_history(run.tracking.mlflow_run, "rollout/reward")
    assert [metric.step for metric in history] == [1, 2]


def test_a_deleted_sqlite_store_is_made_anew_from_the_runs_folder(make_run, database, adapter):
    run = make_run(tracked=True, tracking={"uri": f"sqlite:///{database}", "model_name": "deleted"})
    run.tracking.log_iteration(1, {"reward": 0.5})
    register(run, adapter("one"), PROMOTED)
    find_champion(run.config, follow=True)
    for file in database.parent.glob("mlflow.db*"):
        file.unlink()
    champion, note = find_champion(run.config)
    assert champion.digest == digest_of(run.store.root.parents[1] / "one") and "has no model deleted any more" in note
    run.tracking.log_iteration(2, {"reward": 0.7})
    history = client_of(run).get_metric_history(run.tracking.mlflow_run, "rollout/reward")
    assert [metric.step for metric in history] == [1, 2]
    assert not deliver_waiting(run.config.work_dir, print, every=True).runs, "all of it is there"


def test_damaged_weights_of_the_registry_are_replaced_by_the_copy_that_is_right(make_run, adapter, tmp_path):
    run, folder, said = make_run(tracked=True), adapter("one"), []
    version = register(run, folder, PROMOTED)
    digest = digest_of(folder)
    (tmp_path / "out").mkdir()
    load_champion.make(run, tmp_path / "out", version=version, digest=digest)
    registered = client_of(run).get_run(run.tracking.mlflow_run).info.artifact_uri.removeprefix("file://")
    damaged = Path(registered) / "adapters" / f"rl-{digest[:8]}" / "adapter_model.safetensors"
    damaged.write_text("damaged")
    run.reporter.say = said.append
    (tmp_path / "again").mkdir()
    load_champion.make(run, tmp_path / "again", version=version, digest=digest)
    assert digest_of(tmp_path / "again" / "adapter") == digest
    assert "not those that were registered" in said[0] and "has the right digest and is used instead" in said[0]
    assert said[1].endswith("was repaired in the registry") and digest_of(damaged.parent) == digest
    damaged.write_text("damaged")
    shutil.rmtree(tmp_path / "runs" / "champion")
    (tmp_path / "third").mkdir()
    with pytest.raises(InfrastructureError, match="has no copy of .*`tracewheel champion rollback CONFIG` restores"):
        load_champion.make(run, tmp_path / "third", version=version, digest=digest)


@pytest.mark.parametrize("damage", ["{", json.dumps({"version": 3})])
def test_a_damaged_record_of_the_champion_names_the_file_and_the_way_on(make_run, damage):
    run = make_run()
    run.record.path.parent.mkdir(parents=True)
    (run.record.path.parent / "champion.json").write_text(damage)
    with pytest.raises(InfrastructureError.__mro__[1], match=r"champion\.json: .*delete it: the registry knows the champion"):
        find_champion(run.config)
