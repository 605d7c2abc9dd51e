"""The schedule on a real Prefect server: a tick without new traces is skipped with its reason."""

import json
import re
import shutil
import time
import urllib.request

import psutil

PATIENCE = 300


def flow_runs(address):
    request = urllib.request.Request(
        f"{address}/flow_runs/filter", data=b'{"sort": "EXPECTED_START_TIME_ASC"}', headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def wait_for(look, process, log):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        found = look()
        if found:
            return found
        time.sleep(1)
    raise AssertionError(log.read_text())


def test_two_ticks_fire_and_the_second_is_skipped(finished, profile, spawn, tmp_path):
    whole, _, summary = finished
    folder, log = tmp_path / "runs", tmp_path / "deploy.log"
    shutil.copytree(whole / "store", folder / "store")  # the first tick makes a run from stored stages
    process = spawn("deploy", profile, "--interval", 5, "--run-dir", folder, log=log)
    address = wait_for(lambda: re.search(r"Prefect server: (\S+)", log.read_text()), process, log).group(1)

    def ended():
        done = [run for run in flow_runs(address) if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED")]
        return done if len(done) >= 2 else None

    first, second = wait_for(ended, process, log)[:2]
    assert first["state_name"] == "Completed", log.read_text()
    assert (second["state_type"], second["state_name"]) == ("COMPLETED", "Skipped")
    assert second["state"]["message"] == f"no new traces since run {summary['run_id']}, which is complete"
    assert first["parameters"]["only_new"]
    assert json.loads((folder / summary["run_id"] / "summary.json").read_text())["success"] == summary["success"]

    children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    process.wait(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
