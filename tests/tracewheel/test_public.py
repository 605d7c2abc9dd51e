"""The public interface: what users' own classes import from `tracewheel`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tracewheel

TABLE = Path(__file__).parents[2] / "docs" / "public.md"


@pytest.mark.parametrize("name", tracewheel.__all__)
def test_public_names_are_importable(name):
    assert getattr(tracewheel, name) is not None
    assert name in dir(tracewheel)


def test_the_documentation_lists_exactly_the_public_names():
    cells = [line.split("|")[1] for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed) == sorted(name for names in tracewheel.PUBLIC.values() for name in names)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Tsk"):
        tracewheel.Tsk  # noqa: B018
    with pytest.raises(ImportError):
        exec("from tracewheel import Tsk")


def test_public_names_load_nothing_heavy():
    heavy = ("torch", "transformers", "pandas", "pyarrow", "prefect", "mlflow")
    own_classes = (
        "errors",
        "types",
        "base",
        "spread",
        "kinds",
        "running",
        "episode",
        "quarantine",
        "building",
        "plugins",
        "reader",
    )
    light = [name for module, names in tracewheel.PUBLIC.items() if module.rpartition(".")[2] in own_classes for name in names]
    script = f"import sys; from tracewheel import {', '.join(light)}; print(set({heavy}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
