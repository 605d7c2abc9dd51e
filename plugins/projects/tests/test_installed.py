"""The distribution: what the built wheel holds, and the command as one has it who never saw a checkout."""

import json
import os
import shutil
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.flows.test_installed import NO_FILES, built, run, wheel  # noqa: F401 (a fixture)

PROJECTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel_of_projects(tmp_path_factory):
    """Built from a copy."""
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path_factory.mktemp("projects") / "source"
    shutil.copytree(PROJECTS, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return built(source, tmp_path_factory.mktemp("wheels_of_projects"))


def test_the_wheel_holds_every_file_of_its_package(wheel_of_projects):
    held = set(zipfile.ZipFile(wheel_of_projects).namelist())
    files = [path for path in (PROJECTS / "tracewheel_projects").rglob("*") if path.is_file()]
    wanted = {path.relative_to(PROJECTS).as_posix() for path in files if not any(part in str(path) for part in NO_FILES)}
    assert len(wanted) > 20 and wanted - held == set()


@pytest.mark.slow
def test_the_installed_wheels_make_a_project_that_finds_its_command(wheel, wheel_of_projects, tmp_path):  # noqa: F811
    shared = tmp_path / "shared"
    shared.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "tracewheel" not in path.name:  # not the checkout, nor its wheels
            (shared / path.name).symlink_to(path)
    venv.create(tmp_path / "env", symlinks=True)
    bin_folder = tmp_path / "env" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", bin_folder / "python", "install", "--no-deps", "--no-index"]
    run([*pip, wheel, wheel_of_projects])
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
