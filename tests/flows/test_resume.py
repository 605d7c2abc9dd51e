"""After a kill at any moment the same command resumes and makes the same bytes."""

import json
import random
import time

import psutil
import pytest

from tracewheel.core.fingerprint import digest_of
from tracewheel.core.store import Store

EARLIEST, LATEST = 0.05, 0.95


@pytest.fixture(scope="session")
def duration(timed):
    """Seconds of an uninterrupted run in a fresh folder."""
    return timed[3]


def check_kills(rounds, seed, *, finished, duration, profile, command, spawn, entries, tmp_path):
    """Kill a run in a fresh folder at a random moment, resume it and compare; `rounds` times."""
    whole, _, summary = finished
    rng = random.Random(seed)
    for number in range(rounds):
        folder = tmp_path / str(number)
        process = spawn("retrain", profile, "--run-dir", folder, log=tmp_path / f"{number}.log")
        moment = duration * rng.uniform(EARLIEST, LATEST)
        time.sleep(moment)
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive, "a process outlived the killed command"
        resumed = command("retrain", profile, "--run-dir", folder, "--json")
        assert resumed.returncode in (0, 3), (moment, resumed.stderr)
        result = json.loads(resumed.stdout)
        assert digest_of(folder / result["run_id"] / "adapter") == digest_of(whole / summary["run_id"] / "adapter"), moment
        assert entries(folder) == entries(whole), moment
        assert not list(folder.rglob(".partial-*")), moment
        for name in ("success", "sampled", "harder", "gate", "tokens"):
            assert result[name] == summary[name]
        assert len(mlflow_runs(result)) == 1


def mlflow_runs(summary):
    import mlflow

    client = mlflow.MlflowClient(summary["mlflow_uri"])
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    history = client.get_metric_history(summary["mlflow_run"], "rollout/reward")
    assert [metric.step for metric in history] == [1, 2]
    return [run.info.run_id for run in runs]


@pytest.mark.slow
def test_a_killed_run_resumes(finished, duration, profile, command, spawn, entries, tmp_path):
    check_kills(
        1,
        5,
        finished=finished,
        duration=duration,
        profile=profile,
        command=command,
        spawn=spawn,
        entries=entries,
        tmp_path=tmp_path,
    )


@pytest.mark.slow
def test_twenty_kills_and_resumes_give_the_same_adapter(finished, duration, profile, command, spawn, entries, tmp_path):
    check_kills(
        20,
        6,
        finished=finished,
        duration=duration,
        profile=profile,
        command=command,
        spawn=spawn,
        entries=entries,
        tmp_path=tmp_path,
    )


def test_a_second_run_in_the_same_folder_is_refused(finished, profile, run_on_prefect):
    folder, _, _ = finished
    with Store(folder / "store").exclusive():
        code, _, err = run_on_prefect("retrain", profile, "--run-dir", folder)
    assert code == 1
    assert "in use by another run (process" in err
    assert "Traceback" not in err
