"""The distribution: what the built wheel holds."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("tracewheel", "tasks", "flows")
NO_FILES = ("__pycache__", ".pyc", ".egg-info")


def run(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def built(source, out):
    """The wheel of a folder, without the network."""
    run([sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", out])
    [wheel] = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The core's wheel, built from a copy."""
    pytest.importorskip("setuptools", minversion="77")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    for folder in (*PACKAGES, *(str(Path(pattern).parent) for [pattern] in data.values())):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return built(source, out)


def test_the_wheel_holds_every_file_of_the_packages_and_what_init_copies(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = {path.relative_to(ROOT).as_posix() for path in files if not any(part in str(path) for part in NO_FILES)}
    assert len(wanted) > 500 and wanted - held == set()
    shared = {name.partition(".data/data/share/tracewheel/")[2] for name in held} - {""}
    assert {f"base/{path.name}" for path in (ROOT / "data" / "base").iterdir()} <= shared
    assert "templates/smollm2.pythonic.jinja" in shared
