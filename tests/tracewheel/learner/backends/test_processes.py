"""The processes of an update: how they fail, how they end, and the command under torchrun."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pandas
import psutil
import pytest
import yaml

from tracewheel.config import UpdateSections
from tracewheel.core.errors import DataError, InfrastructureError, SamplerMismatchError
from tracewheel.core.fingerprint import digest_file
from tracewheel.learner.backends.launch import release_processes, update_by_processes, update_job
from tracewheel.learner.update_files import UpdateFiles


@pytest.fixture(autouse=True)
def none_kept():
    release_processes()
    yield
    release_processes()


def test_an_error_in_a_process_is_raised_by_the_update(profile_with, inputs, adapter, tmp_path, on_two):
    """Started in the way of `tracewheel stage update` and of the flow."""
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
    profile_with, inputs, adapter, alone, tasks, tmp_path, five_steps, on_two, assert_same_update, torchrun
):
    """One process writes and prints; a profile for one process is refused."""
    [trajectories], [scores] = inputs
    profile, curated = tmp_path / "profile.yaml", tmp_path / "curated"
    curated.mkdir()
    pandas.DataFrame([task.to_record() | {"split": "train"} for task in tasks]).to_parquet(curated / "tasks.parquet")
    (curated / "episodes.parquet").touch()

    def arguments(learner):
        profile.write_text(yaml.safe_dump(profile_with(learner).model_dump(mode="json", exclude_unset=True)))
        files = {"trajectories": trajectories, "scores": scores, "state": adapter.parent, "reference": adapter}
        files["curated"] = curated
        options = [text for name, path in files.items() for text in (f"--{name}", path)]
        return ["--module", "flows.cli", "stage", "update", profile, *options, "--out", tmp_path / "out", "--json"]

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
    profile, files = UpdateSections.of(profile_with(on_two())), UpdateFiles(*inputs, adapter.parent, adapter, tmp_path / "out")
    code = "import json, sys; from tracewheel.learner.backends.worker import carry_out; carry_out(json.loads(sys.argv[1]))"
    starter = psutil.Popen([sys.executable, "-c", code, json.dumps(update_job(profile, files, iteration=1))])
    workers = workers_of(starter)
    launcher = workers[0].parent()
    starter.kill()
    starter.wait(30)
    assert not psutil.wait_procs([launcher, *workers], timeout=60)[1]


def files_of(out):
    return {str(path.relative_to(out)): digest_file(path) for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_kept_processes_write_the_bytes_of_new_ones(profile_with, inputs, adapter, tmp_path, on_two, stage):
    """Three updates of policy, critic and both optimisers; the processes of the first are those of the last."""
    learner = {"kind": "ppo", "minibatches": 2, **on_two(stage=stage)}
    outs = {}
    for keep in (True, False):
        state, of_first = adapter.parent, None
        for iteration in (1, 2, 3):
            out = tmp_path / f"{keep}-{iteration}"
            profile = UpdateSections.of(profile_with(learner, placement={"keep_learner": keep}))
            update_by_processes(profile, UpdateFiles(*inputs, state, adapter, out), iteration=iteration)
            outs[keep, iteration], state = files_of(out), out
            children = {process.pid for process in psutil.Process().children(recursive=True)}
            assert bool(children) == keep
            assert children == (of_first or children)
            of_first = children
        release_processes()
        assert not psutil.Process().children(recursive=True)
    for iteration in (1, 2, 3):
        assert outs[True, iteration] == outs[False, iteration], iteration


@pytest.mark.slow
def test_an_update_after_a_kill_starts_new_processes(profile_with, inputs, adapter, tmp_path, on_two):
    """Idle processes are killed; so are busy ones, whose update is repeated from the same state."""
    profile = UpdateSections.of(profile_with(on_two()))

    def update(state, out, iteration):
        update_by_processes(profile, UpdateFiles(*inputs, state, adapter, tmp_path / out), iteration=iteration)
        return files_of(tmp_path / out)

    update(adapter.parent, "first", 1)
    expected = update(tmp_path / "first", "second", 2)
    idle = workers_of(psutil.Process())
    idle[0].kill()
    assert not psutil.wait_procs([*idle, idle[0].parent()], timeout=60)[1]
    assert update(tmp_path / "first", "after-idle", 2) == expected
    busy = workers_of(psutil.Process())
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(update, tmp_path / "first", "interrupted", 2)
        busy[1].kill()
        with pytest.raises(InfrastructureError, match="the update on 2 processes ended with exit code 1"):
            pending.result(timeout=120)
    assert not psutil.Process().children(recursive=True)
    assert update(tmp_path / "first", "after-busy", 2) == expected
