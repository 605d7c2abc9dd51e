"""Folders at the root of a box that are folders of its own."""

import shutil

import pytest
from pydantic import ValidationError

from tracewheel_worlds.sandbox import SandboxConfig, make_sandbox


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
def test_a_folder_at_the_root_comes_back_with_the_files():
    sandbox = make_sandbox(SandboxConfig(folders=("app", "logs")))
    command = ["bash", "-c", "cd /app && cat in && mkdir -p /logs/deep && echo out > /logs/deep/file; touch /other"]
    run = sandbox.run(command, {"app/in": b"hello", "logs/first": b""}, keep=True)
    assert (run.stdout, run.files["logs/deep/file"].content) == (b"hello", b"out\n")
    assert "other" not in run.files and run.exit_code != 0


@pytest.mark.parametrize("name", ["etc", "usr", "../x", "a/b", "", "tmp", "."])
def test_a_folder_of_the_system_is_refused(name):
    with pytest.raises(ValidationError):
        SandboxConfig(folders=(name,))
