"""The distribution: what the built wheel holds, and the command as one has it who never saw a checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("tracewheel", "tasks", "flows")
NO_FILES = ("__pycache__", ".pyc", ".egg-info")


def run(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The core's wheel, built from a copy, without the network."""
    pytest.importorskip("setuptools", minversion="77")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    for folder in (*PACKAGES, *(str(Path(pattern).parent) for [pattern] in data.values())):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    build = ["-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", out]
    run([sys.executable, *build])
    [built] = out.glob("tracewheel-*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_packages_and_what_init_copies(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = {path.relative_to(ROOT).as_posix() for path in files if not any(part in str(path) for part in NO_FILES)}
    assert len(wanted) > 500 and wanted - held == set()
    shared = {name.partition(".data/data/share/tracewheel/")[2] for name in held} - {""}
    assert {f"base/{path.name}" for path in (ROOT / "data" / "base").iterdir()} <= shared
    assert "templates/smollm2.pythonic.jinja" in shared


@pytest.mark.slow
def test_the_installed_wheel_makes_a_project_that_finds_its_command(wheel, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "tracewheel" not in path.name:  # not the checkout, nor its wheels
            (shared / path.name).symlink_to(path)
    venv.create(tmp_path / "env", symlinks=True)
    bin_folder = tmp_path / "env" / "bin"
    run([sys.executable, "-m", "pip", "--python", bin_folder / "python", "install", "--no-deps", "--no-index", wheel])
    [packages] = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (packages / "shared.pth").write_text(f"{shared}\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PATH")} | {"PATH": "/usr/bin:/bin"}
    command = bin_folder / "tracewheel"
    assert "init" in run([command, "--help"], cwd=empty, env=env)
    assert "world" in run([command, "describe"], cwd=empty, env=env)
    made = run([command, "init", "my-agent", "--json"], cwd=empty, env=env)
    assert {"Makefile", "base/model.safetensors", "my_agent/environment.py"} <= set(json.loads(made)["files"])
    project = empty / "my-agent"
    (project / "Makefile").write_text((project / "Makefile").read_text() + "\nwhich:\n\t@command -v $(TRACEWHEEL)\n")
    assert run(["make", "which"], cwd=project, env=env).strip() == str(command)
    assert "nothing stands in the way" in run([command, "check", "profile.yaml"], cwd=project, env=env)
