"""The page about your agent: its program and its commands, as they stand there."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "your-agent.md").read_text()
REFUSED = 3


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tracewheel_projects") is None, reason="pip install ./plugins/projects")
def test_the_commands_of_the_page_run(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "agent.py").write_text(program)
    folder, ran = tmp_path, []
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for line in "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines():
        command, *words = shlex.split(line)
        if command == "cd":
            folder = folder / words[0]
            continue
        done = subprocess.run([sys.executable, "-m", "flows.cli", *words], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode in (0, REFUSED) if words[0] == "retrain" else done.returncode == 0, done.stderr
        ran.append(words[0])
    assert ran == ["init", "retrain"]
    assert len(list((tmp_path / "my-agent" / "runs").glob("*/gate.json"))) == 1
