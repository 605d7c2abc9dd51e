"""`tracewheel sandbox`."""

import json
import shutil

import pytest

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")


def test_it_says_what_isolation_there_is(run):
    code, out, _ = run("sandbox", "--json")
    found = json.loads(out)
    assert code == 0 and found["holds"] and found["version"].startswith("bubblewrap") and len(found["promises"]) == 13
    code, out, _ = run("sandbox")
    assert code == 0 and "no network" in out and "bubblewrap" in out


def test_a_promise_that_does_not_hold_is_exit_code_one(run, monkeypatch):
    from tracewheel_worlds.sandbox.self_test import Promise

    monkeypatch.setattr("tracewheel_worlds.sandbox.self_test.self_test", lambda sandbox: [Promise("no network", False, "eth0")])
    code, _, err = run("sandbox")
    assert code == 1 and "not kept on this machine: no network" in err


def test_without_bubblewrap_it_says_how_to_get_it(run, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = run("sandbox")
    assert code == 2 and "apt-get install bubblewrap" in err
