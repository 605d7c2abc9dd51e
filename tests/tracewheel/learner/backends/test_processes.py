"""The processes of an update: how they fail, how they end, and the command under torchrun."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import yaml

from tracewheel.config import UpdateSections
from tracewheel.core.errors import DataError, InfrastructureError, SamplerMismatchError
from tracewheel.core.files import write_json
from tracewheel.learner.backends.launch import update_by_processes, update_job
from tracewheel.learner.update_files import UpdateFiles


def test_an_error_in_a_process_is_raised_by_the_update(profile_with, inputs, adapter, tmp_path, on_two):
    """Started in the way of `tracewheel update` and of the flow."""
    profile, absent = UpdateSections.of(profile_with(on_two())), tmp_path / "absent.parquet"
    with pytest.raises(DataError, match=r"absent\.parquet: no such file"):
        update_by_processes(profile, UpdateFiles(inputs[0], [absent], adapter.parent, adapter, tmp_path / "out"), iteration=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_mismatch_stops_all_processes(profile_with, inputs, adapter, tmp_path, on_two):
    profile = profile_with(on_two() | {"mismatch": {"action": "stop", "threshold": 1e-12}})
    with pytest.raises(SamplerMismatchError, match="rollout.engine"):
        update_by_processes(
            UpdateSections.of(profile), UpdateFiles(*inputs, adapter.parent, adapter, tmp_path / "out"), iteration=1
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_runs_under_torchrun(
    profile_with, inputs, adapter, alone, tmp_path, five_steps, on_two, assert_same_update, torchrun
):
    """One process writes and prints; a profile for one process is refused."""
    [trajectories], [scores] = inputs
    profile = tmp_path / "profile.yaml"

    def arguments(learner):
        profile.write_text(yaml.safe_dump(profile_with(learner).model_dump(mode="json", exclude_unset=True)))
        files = {"trajectories": trajectories, "scores": scores, "state": adapter.parent, "reference": adapter}
        options = [text for name, path in files.items() for text in (f"--{name}", path)]
        return ["--module", "flows.cli", "update", profile, *options, "--out", tmp_path / "out", "--json"]

    printed = torchrun(*arguments(five_steps | on_two(stage=2)))
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [line["steps"] for line in lines] == [5.0]
    assert_same_update(alone[0], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if ".partial" in path.name] == []
    with pytest.raises(AssertionError, match="learner.backend.kind is 'local': set it to 'deepspeed'"):
        torchrun(*arguments(five_steps))


def workers_of(process, processes=2, patience=60):
    """Wait for the workers of an update that `process` started."""
    for _ in range(patience * 5):
        found = [worker for launcher in process.children() for worker in launcher.children()]
        found = [worker for worker in found if "tracewheel.learner.backends.worker" in worker.cmdline()]
        if len(found) == processes:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{process} has not started {processes} workers within {patience} seconds")


@pytest.mark.slow
def test_a_killed_process_ends_the_update(profile_with, inputs, adapter, tmp_path, on_two):
    with ThreadPoolExecutor(1) as pool:
        update = pool.submit(
            update_by_processes,
            UpdateSections.of(profile_with(on_two())),
            UpdateFiles(*inputs, adapter.parent, adapter, tmp_path / "out"),
            iteration=1,
        )
        workers = workers_of(psutil.Process())
        workers[1].kill()
        with pytest.raises(InfrastructureError, match="the update on 2 processes ended with exit code 1"):
            update.result(timeout=120)
    assert not psutil.wait_procs(workers, timeout=30)[1]


@pytest.mark.slow
def test_processes_end_when_their_starter_is_killed(profile_with, inputs, adapter, tmp_path, on_two):
    """The starter cannot clean up."""
    job = tmp_path / "job.json"
    write_json(
        job,
        update_job(
            UpdateSections.of(profile_with(on_two())),
            UpdateFiles(*inputs, adapter.parent, adapter, tmp_path / "out"),
            iteration=1,
        ),
    )
    code = "import sys; from pathlib import Path; from tracewheel.learner.backends.worker import work; work(Path(sys.argv[1]))"
    starter = psutil.Popen([sys.executable, "-c", code, str(job)])
    workers = workers_of(starter)
    launcher = workers[0].parent()
    starter.kill()
    starter.wait(30)
    assert not psutil.wait_procs([launcher, *workers], timeout=60)[1]
