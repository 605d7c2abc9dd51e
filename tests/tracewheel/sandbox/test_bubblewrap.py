"""Boxes on a real bubblewrap."""

import shutil

import pytest

from tracewheel.sandbox import Limits, make_sandbox

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


def test_files_go_in_and_come_out():
    run = make_sandbox().run(["sh", "-c", "cat > copy; cat d/a; ln -s /etc/passwd l"], {"d/a": b"there"}, b"in", keep=True)
    assert (run.exit_code, run.stdout, run.findings) == (0, b"there", ())
    assert (run.files["copy"].content, run.files["l"].link, run.files["l"].content) == (b"in", "/etc/passwd", b"")


def test_a_run_that_takes_too_long_is_killed():
    run = make_sandbox().run(["sleep", "20"], limits=Limits(seconds=0.3))
    assert (run.exit_code, run.findings) == (None, ("timeout",)) and run.seconds < 15


def test_a_path_that_leads_out_is_refused():
    with pytest.raises(ValueError, match="leads out"):
        make_sandbox().run(["true"], {"../a": b""})
