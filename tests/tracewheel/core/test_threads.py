"""How torch's threads wait: what its own OpenMP runtime reads, in a process that imports Tracewheel."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracewheel.core.threads import USERS_OWN

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(importlib.util.find_spec("torch").origin).parent / "lib"
LOAD = f"import ctypes, glob; [ctypes.CDLL(file) for file in glob.glob({str(LIBRARIES)!r} + '/libgomp*')]"


def run(code, **variables):
    """What a process prints whose user has set nothing but these variables."""
    kept = {name: value for name, value in os.environ.items() if name not in USERS_OWN}
    environment = kept | {"PYTHONPATH": str(ROOT), "OMP_DISPLAY_ENV": "VERBOSE"} | variables
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout + done.stderr


@pytest.mark.skipif(not list(LIBRARIES.glob("libgomp*")), reason="this torch has another OpenMP runtime")
@pytest.mark.parametrize(
    "module",
    ["tracewheel", "flows.cli", "tracewheel.rollout.worker_process", "tracewheel.engines.vllm_child", "tracewheel.learner"],
)
def test_the_runtime_that_torch_brings_spins_a_moment_and_then_sleeps(module):
    told = run(f"import {module}; {LOAD}")
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in told
    assert "GOMP_SPINCOUNT = '5000'" in told


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("GOMP_SPINCOUNT", "77"), ("KMP_BLOCKTIME", "200")])
def test_a_setting_of_the_users_is_kept(name, value):
    show = f"import os, tracewheel; print([(name, os.environ.get(name)) for name in {USERS_OWN!r}])"
    told = run(show, **{name: value, "OMP_DISPLAY_ENV": "FALSE"})
    assert told.strip() == str([(other, value if other == name else None) for other in USERS_OWN])


@pytest.mark.parametrize(
    ("first", "threads", "times"), [("torch, tracewheel", 2, 1), ("torch, tracewheel", 1, 0), ("tracewheel, torch", 2, 0)]
)
def test_torch_imported_first_is_said_once(first, threads, times):
    # An empty module in torch's place: what counts is the order.
    code = f"""
import sys, types
def load(name):
    sys.modules.setdefault(name, types.ModuleType(name)) if name == "torch" else __import__(name)
[load(name) for name in {first!r}.split(", ")]
from tracewheel.core.threads import warn_if_spinning
warn_if_spinning({threads}), warn_if_spinning({threads})
"""
    assert run(code, OMP_DISPLAY_ENV="FALSE").count("spin while they wait") == times
