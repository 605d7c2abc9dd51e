"""`forget` of five people in the project of `tracewheel init` leaves none of their bytes; the command line ends with 0."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "forget_bytes.py"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tracewheel_projects") is None, reason="pip install ./plugins/projects")
def test_none_of_their_bytes_is_left(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "init", "--work", tmp_path / "mine"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["files_before"] > 10 and not found["after"] and not found["after_rewriting_logs"]
