"""Classes by name."""

import subprocess
import sys
from pathlib import Path

import pytest

from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import give, load_class

CODE = """
from tracewheel.core.fingerprint import code_version
from tracewheel.core.kind_table import give
from tracewheel.core.kind_table import load_class
keys = {code_version("tracewheel.core.kind_table", plugins=(module,)) for module in ("own_desk", "no_such_module")}
print(load_class(give("own_desk:Desk"), {}, "environment").kind, len(keys) == 2)
"""


def test_a_module_in_the_working_folder_is_found(tmp_path):
    """As an installed command runs: the working folder is not on Python's path (`-P`)."""
    (tmp_path / "own_desk.py").write_text("class Desk:\n    kind = 'own'\n")
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-P", "-c", CODE], cwd=tmp_path, env={"PYTHONPATH": root}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["own", "True"], done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Desk", "No module named 'no_such_module'.*the folder that you start from"),
        ("calendar:Desk", "no attribute 'Desk'.*calendar.py"),
        ("desk", "no environment is called 'desk'"),
    ],
)
def test_an_error_says_where_was_looked(name, message):
    with pytest.raises(ConfigError, match=message):
        load_class(give(name), {}, "environment")
