"""What `state.json` says of a run: while it runs, after each end, and after a kill."""

import json

from tracewheel.core.run_state import CRASHED, FAILED, RUNNING, STATE_FILE, STOPPED, RunState, describe


def killed_at(record, stage):
    """A start whose process ends without a word, as another process finds it."""
    state = RunState(record)
    state.begin("flow")
    state.at(stage)
    return RunState(record)


def test_a_running_state_without_a_holder_is_a_crash(tmp_path):
    killed_at(tmp_path, "update 2 of 8")
    assert describe(tmp_path, held=True)["state"] == RUNNING
    shown = describe(tmp_path, held=False)
    assert shown["state"] == CRASHED and shown["message"] == "its process ended at update 2 of 8 without a word"
    assert "resumes it" in shown["next"]
    RunState(tmp_path).crashed()
    assert json.loads((tmp_path / STATE_FILE).read_text())["state"] == CRASHED


def test_failures_in_a_row_at_the_same_stage_are_counted_until_the_run_gets_further(tmp_path):
    for times in (1, 2):
        assert RunState(tmp_path).gives_up(times) is None
        killed_at(tmp_path, "curate")
        RunState(tmp_path).crashed()
    assert RunState(tmp_path).gives_up(2) == "failed 2 times in a row at curate"

    state = RunState(tmp_path)
    state.begin()
    assert state.gives_up(2)  # it has not got anywhere yet
    state.end(FAILED, "gave up")
    assert RunState(tmp_path).gives_up(2) == "failed 2 times in a row at curate"  # giving up is no failure of its own

    state = RunState(tmp_path)
    state.begin()
    state.at("curate")
    state.at("evaluate base")
    state.end(STOPPED, "SIGTERM")
    assert RunState(tmp_path).gives_up(3) is None
    state = RunState(tmp_path)
    state.begin()
    state.at("evaluate base")
    state.end(FAILED, "no engine")
    assert RunState(tmp_path).gives_up(1) == "failed 1 times in a row at evaluate base"
    assert describe(tmp_path, held=False) | {"process": 0, "host": ""} == {
        "state": FAILED, "message": "no engine", "stage": "evaluate base", "starts": 5, "process": 0, "host": "",
        "next": "mend what the message names; `tracewheel retrain` resumes it",
    }  # fmt: skip


def test_who_never_had_the_store_writes_nothing_and_a_damaged_state_is_none(tmp_path):
    RunState(tmp_path).end(FAILED, "in use by another run")
    assert not (tmp_path / STATE_FILE).exists()
    (tmp_path / STATE_FILE).write_text("{")
    assert RunState(tmp_path).read() == {} and describe(tmp_path, held=False)["state"] == "incomplete"
    RunState(tmp_path).begin()
    assert RunState(tmp_path).read()["starts"] == 1
