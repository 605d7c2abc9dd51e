"""`deploy` on a Prefect server that others share: one run at a time for a champion, missed ticks, one deployment a name."""

import re
import shutil

import pytest
import yaml

pytestmark = pytest.mark.slow
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@pytest.fixture
def two_profiles(finished, profile, tmp_path):
    """Two profiles of one champion, whose runs are made from stored stages."""
    whole, _, _ = finished
    paths = []
    for name in (f"nightly-{tmp_path.name}", f"weekly-{tmp_path.name}"):
        shutil.copytree(whole / "store", tmp_path / name / "store")
        values = yaml.safe_load(profile.read_text())
        values |= {"name": name, "work_dir": str(tmp_path / name)}
        values["tracking"] |= {"uri": f"sqlite:///{tmp_path}/mlflow.db"}
        paths.append(tmp_path / f"{name}.yaml")
        paths[-1].write_text(yaml.safe_dump(values))
    return paths


def test_runs_of_two_profiles_on_one_champion_do_not_overlap(server, deploy, two_profiles):
    for path in two_profiles:
        deploy(path, "--cron", "0 3 1 1 *")
    for path in two_profiles:
        server.start_run(path.stem)

    def ended():
        done = [run for path in two_profiles for run in server.runs(path.stem) if run["state_type"] in ENDED]
        return done if len(done) == 2 else None

    runs = server.until(ended, "two runs")
    assert [run["state_type"] for run in runs] == ["COMPLETED", "COMPLETED"], runs
    (first, second) = sorted(server.working(run) for run in runs)
    assert first[1] <= second[0], "they worked at the same time"
    assert "Waiting" in second[2] and "Waiting" not in first[2]
    (limit,) = {tag for run in runs for tag in run["tags"] if tag.startswith("champion-")}
    limit = server.ask(f"v2/concurrency_limits/{limit}")
    assert (limit["limit"], limit["active_slots"]) == (1, 0)


def test_missed_ticks_leave_one_late_run(server, deploy, two_profiles):
    nightly = two_profiles[0]
    process, _ = deploy(nightly, "--interval", 10)
    server.until(lambda: len([run for run in server.runs(nightly.stem) if run["state_type"] in ENDED]) >= 1, "the first run")
    process.kill()  # as in a power cut: nothing pauses the schedule
    process.wait()
    missed = server.until(
        lambda: (late := [run for run in server.runs(nightly.stem) if run["state_name"] == "Late"])[4:] and late,
        "five missed ticks",
    )
    deploy(nightly, "--interval", 10)
    names = [run["id"] for run in missed]

    def settled():
        now = [run for run in server.runs(nightly.stem) if run["id"] in names]
        return now if all(run["state_type"] in ENDED for run in now) else None

    states = [(run["state_type"], run["state_name"]) for run in server.until(settled, "the late runs")]
    assert [kind for kind, _ in states].count("COMPLETED") == 1, states
    cancelled = [run for run in server.runs(nightly.stem) if run["id"] in names and run["state_name"] == "Missed"]
    assert len(cancelled) == len(missed) - 1
    assert re.fullmatch(
        r"missed: run \S+ of nightly-\S+ started later and takes in the same traces", cancelled[0]["state"]["message"]
    )


def test_a_deployment_registered_twice_is_one_and_its_schedule_goes_on(server, deploy, two_profiles):
    nightly = two_profiles[0]
    process, _ = deploy(nightly, "--cron", "0 3 1 1 *")
    first = server.deployment(nightly.stem)
    process.kill()
    process.wait()
    server.ask(f"deployments/{first['id']}/pause_deployment", {})  # as one that ends in order does
    deploy(nightly, "--cron", "30 4 1 1 *", "--timezone", "Europe/Berlin", "--set", "schedule.port=1")
    again = server.until(lambda: (now := server.deployment(nightly.stem)) and not now["paused"] and now, "the schedule")
    assert again["id"] == first["id"]
    assert [item["schedule"] for item in again["schedules"]] == [
        {"cron": "30 4 1 1 *", "timezone": "Europe/Berlin", "day_or": True}
    ]
    assert again["schedules"][0]["active"]
    assert len(server.ask("deployments/filter", {"deployments": {"name": {"any_": [nightly.stem]}}})) == 1
    assert "Takes in what" in again["description"]
