"""Updates on two real processes under ZeRO: the same figures and weights as one process, and the same state files."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file

from tracewheel.config import UpdateSections
from tracewheel.core.errors import DataError, InfrastructureError, SamplerMismatchError
from tracewheel.core.files import read_json
from tracewheel.learner.backends.launch import update_by_processes, write_job
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.probe import PROBE

WEIGHTS = "adapter/adapter_model.safetensors"
SCRIPT = Path(__file__).with_name("several_updates.py")
FIVE_STEPS = {"minibatches": 5}
PPO = {"kind": "ppo", "minibatches": 2}


def on_two(**backend):
    return {"backend": {"kind": "deepspeed", "processes": 2, **backend}}


def torchrun(*arguments, processes=2, timeout=400):
    """Run a script on several processes; its standard output."""
    command = [sys.executable, "-m", "tracewheel.learner.backends.launch", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def inputs(score_file, trajectories, rewards, tmp_path_factory):
    """Trajectories and scores."""
    return [trajectories], [score_file(tmp_path_factory.mktemp("scores") / "scores.parquet", trajectories, rewards)]


@pytest.fixture(scope="session")
def several(profile_with, inputs, adapter, tmp_path_factory):
    """Run updates one after the other on two processes; each may start from an earlier one's output, by its number."""

    def updates(*tasks, processes=2):
        folder = tmp_path_factory.mktemp("several")
        outs = [folder / f"out-{number}" for number in range(len(tasks))]
        for number, (learner, state, iteration) in enumerate(tasks):
            start = outs[state] if isinstance(state, int) else state or adapter.parent
            job = folder / f"job-{number}.json"
            write_job(
                job,
                UpdateSections.of(profile_with(learner)),
                UpdateFiles(*inputs, start, adapter, outs[number]),
                iteration=iteration,
            )
        torchrun(SCRIPT, *(folder / f"job-{number}.json" for number in range(len(tasks))), processes=processes)
        return outs

    return updates


def assert_same_update(one, other, tolerance=1e-5):
    """The same metrics, weights and optimiser state, and the same files but for the probe, which one process alone leaves."""
    figures, others = read_json(one / "metrics.json"), read_json(other / "metrics.json")
    assert figures.keys() == others.keys()
    for name, value in figures.items():
        assert others[name] == pytest.approx(value, rel=1e-4, abs=tolerance), name
    files, others = (
        {path.relative_to(out) for path in out.rglob("*") if path.is_file() and path.name != PROBE} for out in (one, other)
    )
    assert files == others
    for name in files:
        if name.suffix == ".safetensors":
            assert_same_tensors(load_file(one / name), load_file(other / name), tolerance)
        if name.suffix == ".pt":
            state, others = (torch.load(folder / name, weights_only=True) for folder in (one, other))
            assert state["param_groups"] == others["param_groups"]
            assert state["state"].keys() == others["state"].keys()
            for number, moments in state["state"].items():
                assert_same_tensors(moments, others["state"][number], tolerance)


def assert_same_tensors(one, other, tolerance):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype and tensor.shape == other[name].shape
        assert (tensor - other[name]).abs().max() < tolerance, name


def distance(one, other, weights=WEIGHTS):
    """The largest difference of the weights."""
    one, other = load_file(one / weights), load_file(other / weights)
    return max((tensor - other[name]).abs().max() for name, tensor in one.items())


@pytest.fixture(scope="session")
def alone(run):
    """Two updates of five steps each in one process."""
    first, _ = run(FIVE_STEPS)
    return first, run(FIVE_STEPS, state=first, iteration=2)[0]


@pytest.fixture(scope="session")
def spread(several, alone):
    """On two processes: the first update under ZeRO-2, the second under ZeRO-3 from where the one process was."""
    return several((FIVE_STEPS | on_two(stage=2), None, 1), (FIVE_STEPS | on_two(stage=3), alone[0], 2))


def test_zero_2_takes_the_same_five_steps(alone, spread, adapter):
    assert_same_update(alone[0], spread[0])
    assert distance(spread[0], adapter.parent) > 1e-3


def test_zero_3_goes_on_where_one_process_stopped(alone, spread):
    assert_same_update(alone[1], spread[1])
    assert distance(spread[1], alone[0]) > 1e-3


def test_one_process_goes_on_where_two_stopped(run, alone, spread):
    """The second update in one process, from the state that two have written."""
    resumed, _ = run(FIVE_STEPS, state=spread[0], iteration=2)
    assert_same_update(alone[1], resumed)


def test_what_a_process_finds_wrong_is_what_the_update_says(profile_with, inputs, adapter, tmp_path):
    """Started from here, as `tracewheel update` and the flow do it."""
    profile, absent = UpdateSections.of(profile_with(on_two())), tmp_path / "absent.parquet"
    with pytest.raises(DataError, match=r"absent\.parquet: no such file"):
        update_by_processes(profile, UpdateFiles(inputs[0], [absent], adapter.parent, adapter, tmp_path / "out"), iteration=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_offload_and_layouts_change_nothing(several, alone):
    """The state or all in main memory; packed without padding; shared beginnings; with recomputed activations."""
    variants = [
        on_two(stage=2, offload="optimizer"),
        on_two(stage=3, offload="optimizer"),
        on_two(stage=3, offload="all", overlap_comm=False),
        on_two(stage=3) | {"layout": "packed"},
        on_two(stage=3) | {"layout": "shared_prefix", "gradient_checkpointing": True},
    ]
    for out in several(*((FIVE_STEPS | variant, alone[0], 2) for variant in variants)):
        assert_same_update(alone[1], out)


# Rounding alone is past it, so an update that compares anything is past it.
ANY = 1e-12


@pytest.mark.slow
def test_a_mismatch_is_the_same_on_all_processes(run, several):
    """Measured, and corrected, over the tokens of all processes together."""
    corrected = FIVE_STEPS | {"mismatch": {"action": "correct", "threshold": ANY}}
    one, metrics = run(corrected)
    assert metrics["sampler_mismatch_action"] == 2.0 and metrics["sampler_mismatch_measured"] == 1.0
    outs = several((corrected | on_two(stage=2), None, 1), (corrected | on_two(stage=3), None, 1))
    for out in outs:
        assert_same_update(one, out)
        assert read_json(out / "metrics.json")["sampler_mismatch_mean"] == pytest.approx(
            metrics["sampler_mismatch_mean"], rel=0.3
        )


@pytest.mark.slow
def test_a_mismatch_stops_all_processes(profile_with, inputs, adapter, tmp_path):
    profile = profile_with(on_two() | {"mismatch": {"action": "stop", "threshold": ANY}})
    with pytest.raises(SamplerMismatchError, match="rollout.engine"):
        update_by_processes(
            UpdateSections.of(profile), UpdateFiles(*inputs, adapter.parent, adapter, tmp_path / "out"), iteration=1
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_critic_learns_the_same_values(run, several):
    """PPO with either critic, over its warm-up and one update of the policy."""
    for kind in ("trunk", "light"):
        ppo = PPO | {"advantage": {"critic": {"kind": kind}}}
        first, _ = run(ppo)
        second, _ = run(ppo, state=first, iteration=2)
        for stage in (2, 3):
            backend = on_two(stage=stage)
            one, two = several((ppo | backend, None, 1), (ppo | backend, 0, 2))
            assert_same_update(first, one)
            assert_same_update(second, two, tolerance=3e-5)


@pytest.mark.slow
def test_every_weight_can_be_trained(run, several):
    """Full fine-tuning: the model and the reference beside it.

    Steps are small, because Adam takes whole steps on noise: some embeddings have next to no gradient.
    """
    full = FIVE_STEPS | {"weights": "full", "learning_rate": 1e-5}
    one, _ = run(full)
    again, _ = run(full, state=one, iteration=2)
    assert distance(one, again, "model/model.safetensors") > 3e-5
    for stage in (2, 3):
        first, second = several((full | on_two(stage=stage), None, 1), (full | on_two(stage=stage), 0, 2))
        assert_same_update(one, first)
        assert_same_update(again, second)


@pytest.mark.slow
def test_three_processes_split_what_does_not_divide(run, several, alone):
    learner = FIVE_STEPS | {"backend": {"kind": "deepspeed", "stage": 3}}
    [out] = several((learner, alone[0], 2), processes=3)
    assert_same_update(alone[1], out)


@pytest.mark.slow
def test_the_command_runs_under_torchrun(profile_with, inputs, adapter, alone, tmp_path):
    """One of the processes writes and prints; a profile for one process is refused."""
    [trajectories], [scores] = inputs
    profile = tmp_path / "profile.yaml"

    def arguments(learner):
        profile.write_text(yaml.safe_dump(profile_with(learner).model_dump(mode="json", exclude_unset=True)))
        files = {"trajectories": trajectories, "scores": scores, "state": adapter.parent, "reference": adapter}
        options = [text for name, path in files.items() for text in (f"--{name}", path)]
        return ["--module", "flows.cli", "update", profile, *options, "--out", tmp_path / "out", "--json"]

    printed = torchrun(*arguments(FIVE_STEPS | on_two(stage=2)))
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [line["steps"] for line in lines] == [5.0]
    assert_same_update(alone[0], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if ".partial" in path.name] == []
    with pytest.raises(AssertionError, match="learner.backend.kind is 'local': set it to 'deepspeed'"):
        torchrun(*arguments(FIVE_STEPS))


def workers_of(process, processes=2, patience=60):
    """The processes of an update that `process` has started, when all are there."""
    for _ in range(patience * 5):
        found = [worker for launcher in process.children() for worker in launcher.children()]
        found = [worker for worker in found if "tracewheel.learner.backends.worker" in worker.cmdline()]
        if len(found) == processes:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{process} has not started {processes} workers within {patience} seconds")


@pytest.mark.slow
def test_a_killed_process_ends_the_update(profile_with, inputs, adapter, tmp_path):
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
def test_nothing_is_left_of_an_update_whose_starter_is_killed(profile_with, inputs, adapter, tmp_path):
    """The starter has no chance to clean up."""
    job = tmp_path / "job.json"
    write_job(
        job,
        UpdateSections.of(profile_with(on_two())),
        UpdateFiles(*inputs, adapter.parent, adapter, tmp_path / "out"),
        iteration=1,
    )
    code = "import sys; from pathlib import Path; from tracewheel.learner.backends.worker import work; work(Path(sys.argv[1]))"
    starter = psutil.Popen([sys.executable, "-c", code, str(job)])
    workers = workers_of(starter)
    launcher = workers[0].parent()
    starter.kill()
    starter.wait(30)
    assert not psutil.wait_procs([launcher, *workers], timeout=60)[1]
