"""Before the first run: one self-test for boxes that are made alike, and a look at bubblewrap's release."""

import shutil
from types import SimpleNamespace

import pytest

from tracewheel.core import machine
from tracewheel.core.machine import machine_record
from tracewheel_worlds.sandbox import Limits, SandboxConfig, bubblewrap, make_sandbox, making
from tracewheel_worlds.sandbox.making import Checked

boxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


@pytest.fixture
def tested(monkeypatch, tmp_path):
    """The sandboxes that were self-tested; nothing is run."""
    found = []
    monkeypatch.setattr(making, "self_test", lambda sandbox: found.append(sandbox.made_of) or [])
    monkeypatch.setattr(Checked, "_passed", set())
    for name in ("bwrap", "docker"):
        (tmp_path / name).write_text("#!/bin/sh\necho bubblewrap 1.0.0\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return SimpleNamespace(found=found, folder=str(tmp_path))


def prepared(**config):
    """A sandbox of a config, as it is when it would run."""
    sandbox = make_sandbox(SandboxConfig(**config))
    sandbox._sandbox.run = lambda *given: given[0]
    assert sandbox.run(["true"]) == ["true"]


def test_boxes_that_are_made_otherwise_are_tested_too(tested):
    configs = [
        {"kind": "auto"}, {"kind": "bubblewrap"}, {"kind": "auto", "limits": Limits(seconds=1)}, {"kind": "auto", "image": "b"},
        {"kind": "auto", "folders": ("app",)}, {"kind": "auto", "folders": ("app",)}, {"kind": "auto", "folders": ("app", "b")},
        {"kind": "docker", "image": "a"}, {"kind": "docker", "image": "b"}, {"kind": "docker", "image": "a"},
        {"kind": "gvisor", "image": "a"},
    ]  # fmt: skip
    for config in configs:
        prepared(**config)
    bwrap, docker = f"{tested.folder}/bwrap", f"{tested.folder}/docker"
    assert tested.found == [
        (bwrap,), (bwrap, "app"), (bwrap, "app", "b"), (docker, "a"), (docker, "b"), (docker, "a")
    ]  # fmt: skip


def test_another_program_of_the_same_name_is_tested_too(tested, monkeypatch, tmp_path):
    prepared()
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "bwrap", other / "bwrap")
    monkeypatch.setenv("PATH", f"{other}:/usr/bin:/bin")
    prepared()
    assert tested.found == [(f"{tmp_path}/bwrap",), (f"{other}/bwrap",)]


@pytest.mark.parametrize(
    ("version", "warned"), [("0.8.0", True), ("0.11.9", True), ("0.12.0", False), ("1.0", False), ("", False)]
)
def test_an_old_release_is_warned_of_once(tested, tmp_path, caplog, version, warned):
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
    for folders in ((), ("app",), ()):
        prepared(folders=folders)
    said = [record.getMessage() for record in caplog.records if record.name == making.__name__]
    assert len(said) == warned and len(tested.found) == 2
    if warned:
        for words in (
            f"bubblewrap {version}",
            "CVE-2026-87766",
            "no box binds a folder",
            "--only-upgrade bubblewrap",
            "releases",
        ):
            assert words in said[0]


@boxed
def test_boxes_of_other_folders_pass_the_real_self_test(monkeypatch):
    monkeypatch.setattr(Checked, "_passed", set())
    sandbox = make_sandbox(SandboxConfig(folders=("app",)))
    assert sandbox.run(["sh", "-c", "mkdir /box/app && cd /app && pwd -P"]).stdout == b"/box/app\n"
    assert Checked._passed == {("bubblewrap", shutil.which("bwrap"), "app")}


def test_the_machines_record_names_bubblewraps_release(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine_record()["bubblewrap"] is None
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho bubblewrap 0.12.3\n")
    (tmp_path / "bwrap").chmod(0o755)
    assert machine_record()["bubblewrap"] == "bubblewrap 0.12.3"
    assert machine.said_version(str(tmp_path / "none")) == ""
    assert bubblewrap.about(str(tmp_path / "none")) == "bubblewrap's version is unknown"
