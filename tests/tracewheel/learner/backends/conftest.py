"""Updates on one process and on several under ZeRO, and their comparison."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tracewheel.config import UpdateSections
from tracewheel.core.files import read_json, write_json
from tracewheel.learner.backends.launch import update_job
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.probe import PROBE

WEIGHTS = "adapter/adapter_model.safetensors"
SCRIPT = Path(__file__).with_name("updates_in_turn.py")
FIVE_STEPS = {"minibatches": 5}


@pytest.fixture(scope="session")
def five_steps():
    """The learner's settings of an update with five optimiser steps."""
    return FIVE_STEPS


def on_two_processes(**backend):
    return {"backend": {"kind": "deepspeed", "processes": 2, **backend}}


@pytest.fixture(scope="session")
def on_two():
    """The learner's settings for two processes under ZeRO."""
    return on_two_processes


def run_processes(*arguments, processes=2, timeout=400):
    command = [sys.executable, "-m", "tracewheel.learner.backends.launch", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def torchrun():
    """Run a script on several processes; returns its standard output."""
    return run_processes


@pytest.fixture(scope="session")
def inputs(score_file, trajectories, rewards, tmp_path_factory):
    """Trajectories and scores."""
    return [trajectories], [score_file(tmp_path_factory.mktemp("scores") / "scores.parquet", trajectories, rewards)]


@pytest.fixture(scope="session")
def updates_in_turn(profile_with, inputs, adapter, tmp_path_factory):
    """Run updates in turn on two processes; each may start from the output of an earlier one, given by its number.

    An update is its learner's settings, start and iteration, and other sections of its profile where they differ.
    """

    def run_updates(*tasks, processes=2):
        folder = tmp_path_factory.mktemp("updates")
        outs = [folder / f"out-{number}" for number in range(len(tasks))]
        for number, (learner, state, iteration, *changes) in enumerate(tasks):
            start = outs[state] if isinstance(state, int) else state or adapter.parent
            profile = UpdateSections.of(profile_with(learner, **dict(*changes)))
            files = UpdateFiles(*inputs, start, adapter, outs[number])
            write_json(folder / f"job-{number}.json", update_job(profile, files, iteration=iteration))
        run_processes(SCRIPT, *(folder / f"job-{number}.json" for number in range(len(tasks))), processes=processes)
        return outs

    return run_updates


def compare_updates(one, other, tolerance=1e-5):
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


def largest_difference(one, other, weights=WEIGHTS):
    one, other = load_file(one / weights), load_file(other / weights)
    return max((tensor - other[name]).abs().max() for name, tensor in one.items())


@pytest.fixture(scope="session")
def assert_same_update():
    """Compare metrics, weights, optimiser state and file names; the probe is written by a single process only."""
    return compare_updates


@pytest.fixture(scope="session")
def distance():
    """The largest difference of two states' weights."""
    return largest_difference


@pytest.fixture(scope="session")
def alone(run):
    """Two updates of five steps each in one process."""
    first, _ = run(FIVE_STEPS)
    return first, run(FIVE_STEPS, state=first, iteration=2)[0]


@pytest.fixture(scope="session")
def in_bfloat16(profile_with):
    """A profile's section `policy` with the base in bfloat16."""
    return {"policy": profile_with().policy.model_dump() | {"dtype": "bfloat16"}}


@pytest.fixture(scope="session")
def on_two_stages(updates_in_turn, alone, in_bfloat16):
    """On two processes: the first update under ZeRO-2; the second under ZeRO-3, from the state of one process.

    Then the first update under ZeRO-2 and ZeRO-3 again, with the base in bfloat16.
    """
    stages = [FIVE_STEPS | on_two_processes(stage=stage) for stage in (2, 3)]
    low = [(stage, None, 1, in_bfloat16) for stage in stages]
    return updates_in_turn((stages[0], None, 1), (stages[1], alone[0], 2), *low)
