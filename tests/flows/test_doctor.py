"""The doctor on a real run: from the command line, in the report, and stopping a run, which then resumes."""

import json
import shutil
from pathlib import Path

import pytest

from tracewheel.config import DoctorConfig
from tracewheel.report.doctor import CHECKS

# Every run exceeds a limit of 0, so the check fails for as long as the test needs.
SEVERE = ("--set", "doctor.limits={truncation: [0, 0]}")


@pytest.fixture(scope="module")
def copied(finished, tmp_path_factory):
    """The finished run in a folder of its own."""
    folder, _, summary = finished
    place = tmp_path_factory.mktemp("copied") / "runs"
    shutil.copytree(folder, place)
    return place, summary["run_id"]


def test_the_doctor_examines_the_run_of_the_profile(finished, profile, run):
    folder, _, summary = finished
    code, out, err = run("doctor", profile, "--run-dir", folder, "--json")
    said = json.loads(out)
    severe = [item["check"] for item in said["findings"] if item["severity"] == "severe"]
    assert code == (4 if severe else 0), err
    assert [item["check"] for item in said["findings"]] == list(CHECKS)
    assert (said["run_id"], said["iterations"]) == (summary["run_id"], 2)
    by_check = {item["check"]: item for item in said["findings"]}
    for name in ("observation_loss", "sampler_mismatch", "stale_adapter"):
        assert by_check[name]["severity"] == "healthy", by_check[name]


def test_findings_during_training_equal_those_of_the_command(finished, profile, run):
    folder, _, summary = finished
    stored = json.loads((folder / summary["run_id"] / "doctor.json").read_text())
    now = json.loads(run("doctor", profile, "--run-dir", folder, "--run", summary["run_id"], "--json")[1])
    assert stored["findings"] == now["findings"]
    assert stored["iteration"] == 2


def test_the_report_shows_the_findings(finished):
    _, _, summary = finished
    page = Path(summary["report"]).read_text()
    for check in CHECKS:
        assert check.replace("_", " ") in page


def test_severe_findings_print_a_table_and_exit_with_4(copied, profile, run):
    folder, run_id = copied
    code, out, err = run("doctor", profile, "--run-dir", folder, "--run", run_id, *SEVERE)
    assert code == 4
    assert "truncation" in out
    assert "Raise rollout.max_tokens" in out
    assert f"tracewheel: doctor: run {run_id}: truncation" in err


@pytest.mark.parametrize("reached", [True, False], ids=["a loop", "no loop"])
def test_a_run_that_failed_says_by_what(copied, profile, run, tmp_path, reached):
    folder, run_id = shutil.copytree(copied[0], tmp_path / "runs"), copied[1]
    why = "4 of 4 episodes failed in the program (rollout.harness), most often: 400 max_tokens: must be a number"
    state = {"state": "failed", "stage": "rollout 1 of 2", "message": why, "failures": {"stage": "rollout 1 of 2", "times": 1}}
    (folder / run_id / "state.json").write_text(json.dumps(state))
    if not reached:
        (folder / run_id / "loop.json").unlink()
    code, out, err = run("doctor", profile, "--run-dir", folder, "--run", run_id, "--json")
    first = json.loads(out)["findings"][0]
    assert code == 4 and f"run {run_id}: failed" in err
    assert (first["check"], first["severity"], first["evidence"]) == ("failed", "severe", {"at": "rollout 1 of 2", "by": why})


def test_a_missing_run_is_bad_input(profile, run, tmp_path):
    code, _, err = run("doctor", profile, "--run-dir", tmp_path, "--run", "nowhere")
    assert code == 2
    assert "no such run" in err


@pytest.mark.slow
def test_a_stopped_run_resumes_without_the_check(copied, profile, command):
    folder, run_id = copied
    arguments = ("retrain", profile, "--run-dir", folder, "--json", *SEVERE)
    for _ in range(2):  # it stops at the same place until the cause is removed
        stopped = command(*arguments, "--set", "doctor.stop_on=[truncation]")
        assert stopped.returncode == 4, stopped.stderr
        assert f"run {run_id} stopped after iteration 1: truncation" in stopped.stderr
        assert "doctor.stop_on=[]" in stopped.stderr
        assert json.loads(stopped.stdout)["severity"] == "severe"
    goes_on = command(*arguments)
    assert goes_on.returncode in (0, 3), goes_on.stderr
    summary = json.loads(goes_on.stdout)
    assert summary["run_id"] == run_id
    assert set(summary["cached"]) == set(summary["seconds"])
    assert "doctor, severe: truncation" in goes_on.stderr


def test_stop_on_takes_the_names_of_checks():
    assert set(DoctorConfig.model_fields["stop_on"].annotation.__args__[0].__args__) == set(CHECKS)
