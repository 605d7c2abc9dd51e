"""The audit of the wheel's own graders."""

import shutil
from pathlib import Path

import pytest

from plugins.graders.tests.test_audit import audited, check_strong, same_process, sections  # noqa: F401 (a fixture)
from tracewheel_graders.audit.audit import audit, generated_tasks

# Their gradings take a box or a process each, and what a changed solution ends in is not told.
BOXED = ["code", "math", "patch", "terminal"]


@pytest.mark.parametrize("kind", ["assistant", "retrieval"])
def test_the_graders_pass(kind, tmp_path, same_process):  # noqa: F811
    check_strong(kind, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOXED)
def test_the_graders_that_run_something_pass(kind, tmp_path, same_process):  # noqa: F811
    config = sections(kind, tasks=8)
    result = audit(config, generated_tasks(config), tmp_path)
    assert result["verifiers"] and result["verdict"] == "passed"
    for found in result["verifiers"].values():
        assert (found["verdict"], found["reasons"]) == ("passed", [])
        assert found["false_accept"]["probes"] > 40 and found["false_accept"]["wrong"] == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
def test_an_environment_may_know_attacks_on_its_verifier(tmp_path, same_process, monkeypatch):  # noqa: F811
    """The weak grader believes what the agent's own program prints; only an attack on programs finds that."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    found = audited("code", tmp_path, "weak_grader:ReadsWhatIsPrinted", tasks=2)
    assert found["verdict"] == "failed"
    assert any("attack.claims_that_all_passed" in reason for reason in found["reasons"]), found["reasons"]
