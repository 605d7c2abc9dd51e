"""What starts and ends runs that nobody watches, on a real Prefect server: new traces, drift, the time limit."""

import json
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_harness")]
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
LOOKS = 12  # seconds in which the triggers have looked at least once


def states(server, run):
    """Name and message of each state that a run had."""
    return [(state["name"], state["message"]) for state in server.ask(f"flow_run_states/?flow_run_id={run['id']}")]


def ended(server, name, number):
    """Waits until the deployment's runs are so many and have ended."""

    def look():
        runs = server.runs(name)
        return runs if len(runs) == number and all(run["state_type"] in ENDED for run in runs) else None

    return server.until(look, f"{number} runs")


def test_new_traces_start_a_run_once_there_are_enough(server, deploy, work):
    work.complete(120)
    options = ("--run-dir", work.folder, "--set", "schedule.min_new_tasks=1000")
    _, log = deploy(work.profile, "--on-new-traces", work.log.parent, "--min-new", 20, *options)
    (first,) = ended(server, work.name, 1)
    assert "on-new-traces" in first["tags"] and "120 new records in" in states(server, first)[0][1]
    assert first["state_name"] == "Skipped" and "which is complete" in states(server, first)[-1][1]

    work.write(135)
    time.sleep(LOOKS)
    assert len(server.runs(work.name)) == 1, "15 records are too few"
    work.write(145)
    _, second = ended(server, work.name, 2)
    assert "25 new records in" in states(server, second)[0][1] and "25 new records in" in log.read_text()
    assert second["state_name"] == "Skipped" and "(needs 1000)" in states(server, second)[-1][1]
    assert work.journal()[-1]["why"] == states(server, second)[-1][1]
    time.sleep(LOOKS)
    assert len(server.runs(work.name)) == 2, "they have been taken in"


def test_a_drift_starts_a_training_that_the_number_of_new_tasks_would_not(server, deploy, work):
    solved, failed = work.solved_and_failed(400)
    work.log.write_bytes(b"".join([*solved[:80], *failed[:20]]))
    work.complete()
    work.log.write_bytes(b"".join([*solved[:87], *failed[:60]]))
    process, log = deploy(work.profile, "--on-drift", "--run-dir", work.folder)
    server.until(lambda: (work.folder / "decisions.jsonl").is_file(), "the decision")
    (decision,) = work.journal()
    assert decision["starts"] and "drift: success of" in decision["why"] and decision["drift"]["found"]
    (run,) = server.runs(work.name)
    assert "on-drift" in run["tags"] and "a look for drift in 147 new records" in states(server, run)[0][1]
    process.terminate()  # it trains now, which others test
    assert process.wait(timeout=40) == 143, log.read_text()
    (run,) = server.runs(work.name)
    assert (run["state_type"], run["state_name"]) == ("CANCELLED", "Stopped"), states(server, run)


def test_a_scheduled_run_over_its_time_stops_and_the_next_tick_resumes_it(server, deploy, work):
    work.write(200)
    limit = ("--set", "schedule.max_run_seconds=0.5")
    process, _ = deploy(work.profile, "--cron", "0 3 1 1 *", "--run-dir", work.folder, *limit)

    def over(least):
        runs = [run for run in server.runs(work.name) if run["state_type"] in ENDED]
        return runs if len(runs) >= least else None

    stored = {}
    for starts in (1, 2):
        server.start_run(work.name)
        run = server.until(lambda least=starts: over(least), f"end {starts}")[-1]
        message = states(server, run)[-1][1]
        assert (run["state_type"], run["state_name"]) == ("FAILED", "TimedOut"), message
        assert "stopped (schedule.max_run_seconds: over 0.5 s) at" in message and "the next start, resumes it" in message
        (path,) = work.folder.glob("*/state.json")
        state = json.loads(path.read_text())
        assert (state["state"], state["starts"], state["message"]) == ("stopped", starts, message)
        entries = {path.name: path.stat().st_mtime_ns for path in (work.folder / "store").glob("[!.]*-*")}
        assert entries and entries.items() >= stored.items(), "it went on from what was complete"
        stored = entries
    assert process.poll() is None, "the schedule goes on"
