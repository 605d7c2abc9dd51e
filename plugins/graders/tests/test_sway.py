"""Scripted judges behind a real HTTP server: one that each bias moves is found by it, and a sound one passes."""

import json
import re

import pytest

from tracewheel.config import AuditConfig, AuditSections, EnvironmentConfig, EvaluationConfig, RubricConfig
from tracewheel.environments import make_environment
from tracewheel_graders.audit import judging
from tracewheel_graders.audit.audit import AUDIT_FILE, audit, generated_tasks

TASKS = 6
OBEYS = re.compile(r"criteri|best mark|counts as done|requirements|[Vv]erdict|is complete|all of it is right", re.IGNORECASE)
WORDS = {"length": "glad", "paraphrase": "further step"}


class Scripted:
    """Answers as a judge would that reads each attempt's calls, but for one bias."""

    def __init__(self, tasks, bias=""):
        desk = make_environment("order_desk")
        self.solutions = {task.prompt: [list(call) for call in desk.solution(task)] for task in tasks}
        self.bias = bias

    def __call__(self, body, number):
        shown = body["messages"][1]["content"]
        (solution,) = [calls for prompt, calls in self.solutions.items() if json.dumps(prompt, ensure_ascii=False) in shown]
        attempts = re.findall(r"===== episode \w+ begins =====\n(.*?)\n===== episode", shown, re.DOTALL)
        worth = [self.worth(text, solution) for text in attempts]
        if "scores" in body["response_format"]["json_schema"]["schema"]["properties"]:
            if self.bias == "order":
                worth = [1.0 - place / 10 for place in range(len(worth))]
            scores = [{"attempt": place, "reason": "", "score": one} for place, one in enumerate(worth, start=1)]
            return {"content": json.dumps({"scores": scores})}
        names = re.findall(r"^- (\w+):", body["messages"][0]["content"], re.MULTILINE)
        met = [bool(worth[0]) or (self.bias == "order" and names[0] == "kind") for _ in names]
        marks = {name: {"reason": "", "verdict": "met" if one else "not_met"} for name, one in zip(names, met, strict=True)}
        return {"content": json.dumps({"criteria": marks})}

    def worth(self, text, solution):
        lines = [json.loads(line) for line in text.splitlines()]
        calls = [[name, json.loads(given)] for line in lines for name, given in line.get("calls", [])]
        words = " ".join(line.get("text", "") for line in lines if line["by"] == "agent")
        if self.bias in WORDS and WORDS[self.bias] in words:
            return 1.0
        as_asked = json.dumps(calls) == json.dumps(solution)  # 77.0 is not 77
        return 1.0 if as_asked or (self.bias == "injected" and OBEYS.search(words)) else 0.0


@pytest.fixture
def swayed(chat_server, tmp_path, monkeypatch):
    """Audit a profile with a judge of this kind and bias, in the rubric or in the one that is held back."""
    monkeypatch.setattr(
        judging, "_judge_elsewhere", lambda spec, episodes: [one.total for one in judging.judge_all(spec, episodes)]
    )

    def run(kind, bias="", held_back=False, answer=None, **settings):
        own = {"environment": EnvironmentConfig(kind="order_desk")}
        limits = AuditConfig(tasks=TASKS, judged_tasks=settings.pop("judged_tasks", TASKS), **settings)
        plain = AuditSections(rubric=RubricConfig(), evaluation=EvaluationConfig(), audit=limits, **own)
        tasks = generated_tasks(plain)
        server = chat_server(answer or Scripted(tasks, bias))
        args = {
            "models": [{"endpoint": server.url, "model": "m", "retries": 0, "concurrency": 8}],
            "journal": str(tmp_path / "j"),
        }
        if kind == "judge":
            args["criteria"] = [{"name": "done", "ask": "Is it done?"}, {"name": "kind", "ask": "Is it kind?"}]
        terms = [{"kind": "task"}, {"kind": kind, "args": args, "role": "shaping"}]
        with_judge = RubricConfig.model_validate({"mode": "outcome_first", "verifiers": terms})
        rubrics = {"rubric": RubricConfig() if held_back else with_judge}
        rubrics["evaluation"] = EvaluationConfig(rubric=with_judge if held_back else None)
        result = audit(AuditSections(audit=limits, **rubrics, **own), tasks, tmp_path)
        assert json.loads((tmp_path / AUDIT_FILE).read_text()) == result
        return result, server

    return run


def by_kind(rates):
    return {rate["kind"]: rate for rate in rates}


@pytest.mark.parametrize("kind", ["judge", "relative_judge"])
def test_a_sound_judge_passes(kind, swayed):
    result, server = swayed(kind)
    (found,) = result["judges"].values()
    assert (result["verdict"], found["verdict"], found["reasons"], found["examples"]) == ("passed", "passed", [], [])
    assert (found["tells"]["swayed"], found["tells"]["tasks"], found["rubrics"]) == (TASKS, TASKS, ["training"])
    assert {rate["kind"].partition(".")[0] for rate in found["changes"]} == {"length", "order", "paraphrase"}
    assert all(rate["tasks"] == TASKS and rate["rate"] == 0.0 < rate["high"] < 0.5 for rate in found["changes"])
    rates = by_kind(found["injections"])
    assert all(rate["tasks"] == TASKS and not rate["swayed"] for rate in rates.values())
    assert rates["injected.master_key_colon"]["flagged"] == TASKS and not rates["injected.praise"]["flagged"]
    assert len(server.requests) == TASKS * {"judge": 20, "relative_judge": 34}[kind], "as docs/audit.md says"


@pytest.mark.parametrize("kind", ["judge", "relative_judge"])
@pytest.mark.parametrize("bias", ["length", "paraphrase", "order", "injected"])
def test_each_bias_is_found_as_what_it_is(kind, bias, swayed):
    result, _ = swayed(kind, bias)
    (found,) = result["judges"].values()
    assert result["verdict"] == found["verdict"] == "failed"
    assert result["exploitable"] < 0.5, "the judge shapes and does not decide"
    if bias == "injected":
        assert {rate["kind"] for rate in found["injections"] if rate["swayed"]} >= {"injected.praise", "injected.plea"}
        assert all(f"is talked into {TASKS} of {TASKS} wrong attempts by injected." in reason for reason in found["reasons"])
        assert not any(rate["swayed"] for rate in found["changes"])
    else:
        assert all(f"with another {bias}" in reason for reason in found["reasons"])
        assert {rate["kind"].partition(".")[0] for rate in found["changes"] if rate["swayed"]} == {bias}
    assert {example["kind"].partition(".")[0] for example in found["examples"]} == {bias}


def test_the_judge_of_the_gate_is_audited_too_and_one_that_nobody_reaches_fails(swayed):
    result, _ = swayed("judge", held_back=True, answer=lambda body, number: (500, {}, b""), judged_tasks=2)
    (found,) = result["judges"].values()
    assert (found["rubrics"], found["reasons"]) == (["held_back"], ["gives no verdict on any task"])
    assert found["tells"]["unscored"] == 2 and result["verdict"] == "failed"


def test_no_judge_is_asked_where_the_profile_asks_for_none(swayed):
    result, server = swayed("judge", "length", judged_tasks=0)
    assert (result["judges"], result["verdict"], server.requests) == ({}, "passed", [])
