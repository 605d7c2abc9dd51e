"""The audit finds planted weak graders, each by its weakness, and passes the built-in ones."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tracewheel.config import AuditConfig, AuditSections, EnvironmentConfig, EvaluationConfig, RubricConfig
from tracewheel.core.errors import DataError
from tracewheel.environments import ENVIRONMENTS
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel_graders.audit import judging
from tracewheel_graders.audit.audit import AUDIT_FILE, audit, generated_tasks, tasks_to_audit
from tracewheel_graders.audit.figures import upper_end

# Grader: the environment it grades, and a sentence that the audit must say of it.
WEAK = {
    "Substring": ("workspace", "accepts .* near_miss.lists_all"),
    "CaseBlind": ("workspace", "accepts .* attack.other_case"),
    "AcceptsEmpty": ("workspace", "accepts .* attack.empty"),
    "AnyOfList": ("workspace", "accepts .* near_miss.lists_all"),
    "Prefix": ("workspace", "accepts .* attack.prefix"),
    "IgnoresExtraChanges": ("workspace", "accepts .* near_miss.extra_change"),
    "ConfusesTypes": ("order_desk", "accepts .* state.as_text"),
    "RoundsCoarsely": ("order_desk", "accepts .* near_miss.too_little"),
    "OnlyLastCall": ("order_desk", "accepts .* near_miss.told_only"),
    "TrustsClaims": ("workspace", "accepts .* claim.claims_success"),
    "MindsOrder": ("workspace", "refuses .* equal_end"),
    "CountsCalls": ("workspace", "accepts .* change.other_value"),
    "Throws": ("workspace", "another total in another order"),
    "WatchesClock": ("workspace", "another total in another process"),
}
OWN = ["examples.marketing_environment:Marketing"]
CORE = [kind for kind in ENVIRONMENTS if ENVIRONMENTS.place(kind).startswith("tracewheel.")]
STRONG = [kind for kind in CORE if hasattr(ENVIRONMENTS[kind], "outcome")] + OWN


def sections(kind, **settings):
    own = {"environment": EnvironmentConfig(kind=kind), "audit": AuditConfig(**settings)}
    return AuditSections(rubric=RubricConfig(), evaluation=EvaluationConfig(), **own)


def audited(kind, out, verifier=None, **settings):
    config = sections(kind, **settings)
    result = audit(config, generated_tasks(config), out, verifier=verifier)
    (found,) = result["verifiers"].values()
    assert result["verdict"] == found["verdict"]
    return found


@pytest.fixture(autouse=True)
def graders_of_this_folder(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)


def test_no_task_is_begun_after_the_time_allowed(tmp_path, same_process):
    said, config = [], sections("order_desk", tasks=5, seconds=1e-6)
    result = audit(config, generated_tasks(config), tmp_path, say=said.append)
    assert (result["tasks"], result["left_out"], result["verdict"]) == (1, 4, "passed")
    assert result["verifiers"]["order_desk"]["repeats"]["episodes"] == judging.LEAST_REPEATED
    assert any("4 tasks are left out" in line for line in said)


@pytest.fixture
def same_process(monkeypatch):
    """Nothing is judged in another process, which takes seconds to start."""
    monkeypatch.setattr(
        judging, "_judge_elsewhere", lambda spec, episodes: [item.total for item in judging.judge_all(spec, episodes)]
    )


@pytest.mark.parametrize("grader", WEAK)
def test_each_weak_grader_is_found_by_its_weakness(grader, tmp_path, request):
    kind, says = WEAK[grader]
    if grader != "WatchesClock":
        request.getfixturevalue("same_process")
    found = audited(kind, tmp_path, f"weak_graders:{grader}", tasks=12)
    assert found["verdict"] == "failed"
    assert any(re.search(says, reason) for reason in found["reasons"]), found["reasons"]
    wrong = [example for example in found["examples"] if example["what"] == "wrong"]
    assert wrong or "another total" in says


@pytest.mark.parametrize(("weak", "exploitable"), [("held_back", True), ("training", False)])
def test_the_gate_counts_what_its_own_rubric_accepts(weak, exploitable, tmp_path, same_process):
    """The verifiers of both rubrics are audited; what might be won is that of the rubric which decides at the gate."""
    grader = RubricConfig.model_validate({"verifiers": [{"kind": "weak_graders:OnlyLastCall"}]})
    rubrics = {"rubric": RubricConfig(), "evaluation": EvaluationConfig(rubric=grader)}
    if weak == "training":
        rubrics = {"rubric": grader, "evaluation": EvaluationConfig(rubric=RubricConfig())}
    config = sections("order_desk", tasks=6).model_copy(update=rubrics)
    result = audit(config, generated_tasks(config), tmp_path)
    assert set(result["verifiers"]) == {"order_desk", "weak_graders:OnlyLastCall"} and result["verdict"] == "failed"
    assert (result["exploitable"] == 1.0) is exploitable and result["judges"] == {}


@pytest.mark.parametrize("kind", STRONG)
def test_the_built_in_graders_pass(kind, tmp_path, same_process):
    check_strong(kind, tmp_path)


def check_strong(kind, tmp_path):
    found = audited(kind, tmp_path, tasks=16)
    assert (found["verdict"], found["reasons"]) == ("passed", [])
    assert found["false_accept"]["probes"] > 500 and found["false_reject"]["probes"] > 100
    assert found["doubtful"] == 0 and found["exploitable"]["tasks"] == 0
    (written,) = json.loads((tmp_path / AUDIT_FILE).read_text())["verifiers"].values()
    assert written["probes"] == found["probes"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRONG)
def test_the_built_in_graders_pass_on_two_hundred_tasks_and_in_another_process(kind, tmp_path):
    found = audited(kind, tmp_path, tasks=200)
    assert (found["verdict"], found["reasons"], found["repeats"]["error"]) == ("passed", [], "")
    assert found["exploitable"]["upper"] < 0.02


def test_wrong_is_counted_only_where_the_environment_tells(tmp_path, same_process, monkeypatch):
    told = audited("workspace", tmp_path, "weak_graders:CaseBlind", tasks=8)
    monkeypatch.delattr(WorkspaceEnvironment, "outcome")
    untold = audited("workspace", tmp_path, "weak_graders:CaseBlind", tasks=8)
    assert told["doubtful"] == 0 and told["false_accept"]["wrong"] > 0
    assert untold["doubtful"] >= told["false_accept"]["wrong"] and untold["false_accept"]["wrong"] == 0
    assert {example["what"] for example in untold["examples"]} >= {"doubtful"}


def test_a_verifier_that_always_raises_scores_nothing_and_fails(tmp_path, same_process):
    found = audited("order_desk", tmp_path, "verdict", tasks=4)
    assert found["unscored"] == found["probes"] and found["false_accept"]["probes"] == 0
    assert found["reasons"] == ["scores none of the known solutions: it raises on each"]
    assert found["examples"][0]["error"].startswith("KeyError")


def test_an_environment_without_tasks_or_solutions_is_refused(tmp_path):
    config = sections("order_desk", tasks=2)
    with pytest.raises(DataError, match="makes no tasks"):
        generated_tasks(sections("examples.form_environment:Form"))
    tasks = [replace(task, environment="examples.form_environment:Form") for task in generated_tasks(config)]
    with pytest.raises(DataError, match="no solution is known of any of the 2 tasks"):
        audit(config, tasks, tmp_path)


def test_tasks_are_chosen_in_turn_of_each_family():
    config = sections("workspace", tasks=8)
    many = generated_tasks(sections("workspace", tasks=60))
    chosen = tasks_to_audit(config, many[::-1])
    assert [task.id for task in chosen] == [task.id for task in tasks_to_audit(config, many)]
    assert Counter(task.family for task in chosen) == dict.fromkeys(("pattern", "prefix", "list", "content"), 2)


def test_the_upper_end_is_clopper_and_pearsons():
    # Their interval, as published tables give it: 0 of 10, 1 of 10 and 3 of 20, two-sided with 95%.
    assert upper_end(0, 10, 0.95) == pytest.approx(0.3085, abs=1e-4)
    assert upper_end(1, 10, 0.95) == pytest.approx(0.4450, abs=1e-4)
    assert upper_end(3, 20, 0.95) == pytest.approx(0.3789, abs=1e-4)
    assert (upper_end(0, 0, 0.95), upper_end(5, 5, 0.95)) == (1.0, 1.0)


def test_what_no_work_earns_fails_the_audit(tmp_path):
    """A term that pays for brevity pays whoever does nothing."""
    rubric = RubricConfig.model_validate({"verifiers": [{"kind": "task"}, {"kind": "budget", "args": {"turns": 9}}]})
    config = sections("order_desk", tasks=4).model_copy(update={"rubric": rubric})
    result = audit(config, generated_tasks(config), tmp_path)
    assert result["idle"]["share"] > 0.3 and result["verdict"] == "failed" and result["idle"]["reasons"]
    assert all(found["verdict"] == "passed" for found in result["verifiers"].values())
