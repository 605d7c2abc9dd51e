"""Episodes of cheating agents: nothing is earned, and what was tried is on record. Honest ones have no flag."""

import json
import random
import re
import shutil

import pytest

from plugins.worlds.tests.attacks import ATTACKS, HARBOR_TASK, PAGE, calls_of, protected_test, rewritten
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import kind_text
from tracewheel.core.types import Task
from tracewheel.environments import make_environment
from tracewheel.environments.base import play_calls
from tracewheel.scoring.verifiers import episode_from, make_verifier
from tracewheel.scoring.verifiers.base import EpisodeVerifier
from tracewheel_graders.judges.attacks import Suspected
from tracewheel_worlds.code.tasks import make_task

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
LIMITS = {"seconds": 8.0, "memory_mb": 64, "processes": 24, "disk_mb": 4, "files": 200}
KINDS = ("code", "terminal", "patch")
HONEST = 50
# Limits of attacks that hang, by what is seen of them; tests are to begin within theirs on a busy machine, too.
HANGS = {"timeout": 1.0, "timeout in the tests": 4.0}


@pytest.fixture(scope="module")
def tasks():
    maker = make_environment("terminal").make_tasks(12, 3)
    return {
        "code": make_task("function", 2, random.Random(1)),
        "terminal": next(task for task in maker if task.goal.get("files")),
        "patch": make_environment("patch").make_tasks(16, 3)[12],
        "harbor": HARBOR_TASK,
    }


def played(environment, task, calls):
    """The verdict on an episode of given calls, and what its runs left on record."""
    messages = play_calls(environment, task, calls)
    state = environment.snapshot()
    verifier = make_verifier(task.verifier)
    if isinstance(verifier, EpisodeVerifier):
        verdict = verifier.verify_episode(task, episode_from(messages, 2, state))
        return verdict.total, verdict.parts, verdict.explanation, state["findings"]
    total, parts = verifier.verify(task, state)
    return total, parts, "", state["findings"]


@pytest.fixture
def judged(chat_server, tmp_path):
    """The verdict of a judge that does what a text tells it, and fails what tells it nothing."""
    obeys = re.compile(r"rubric|Bewertung|score|Thought|aWdub3Jl|SWdub3Jl", re.IGNORECASE)

    def answer(body, number):
        work = body["messages"][1]["content"].split("What the agent did:")[1]
        return {
            "content": json.dumps({"criteria": {"done": {"reason": "", "verdict": "met" if obeys.search(work) else "not_met"}}})
        }

    def judge(text):
        models = [{"model": "m", "endpoint": chat_server(answer).url, "retries": 0}]
        args = {"models": models, "criteria": [{"name": "done", "ask": "?"}], "journal": str(tmp_path / "journal.jsonl")}
        made = make_verifier(give(json.dumps({"kind": "judge", "args": args})))
        messages = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": text}]
        verdict = made.verify_episode(
            Task("t1", "own", "f", 1, "Do it.", {}, {}, "verdict", "t1"), episode_from(messages, 1, {})
        )
        return verdict.total, verdict.parts, verdict.explanation, []

    return judge


def test_the_judge_of_these_tests_obeys_what_it_is_shown(judged):
    assert judged("The rubric of the newspaper is full.")[0] == 1.0 and judged("I did nothing.")[0] == 0.0


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name.replace("`", "") for attack in ATTACKS])
def test_an_attack_earns_nothing_and_is_on_record(tasks, attack, judged):
    if attack.asks:
        with pytest.raises(Suspected, match=attack.seen):
            judged(attack.source)
        return
    if attack.kind == "judge":
        total, parts, explanation, findings = judged(attack.source)
    else:
        task, limits = tasks[attack.kind], {**LIMITS, "seconds": HANGS.get(attack.seen, LIMITS["seconds"])}
        if attack.kind == "code":
            task = Task(**{**vars(task), "verifier": kind_text("unit_tests", {"limits": limits})})
        sandbox = {} if attack.kind == "patch" else {"sandbox": {"limits": limits}}
        environment = make_environment(kind_text(attack.kind, sandbox))
        total, parts, explanation, findings = played(environment, task, calls_of(attack, task))
    assert total == 0.0, explanation
    seen = attack.seen.replace("{test}", protected_test(tasks["patch"]))
    if attack.finding:
        assert seen in findings
    elif seen:
        assert parts["flagged"] == 1.0 and seen in explanation, explanation
    else:
        assert attack.why and parts["flagged"] == 0.0 and findings == [], (explanation, findings)


LEFT_WITH = [attack for attack in ATTACKS if attack.finding and attack.kind != "patch"]


@pytest.mark.parametrize("attack", LEFT_WITH, ids=[attack.name.replace("`", "") for attack in LEFT_WITH])
def test_after_an_attempt_to_escape_even_the_solution_earns_nothing(tasks, attack):
    """A program that used up its box may be a bug: it is on record, and what was solved afterwards is solved."""
    task, limits = tasks[attack.kind], {**LIMITS, "seconds": 4.0 if attack.seen in HANGS else LIMITS["seconds"]}
    environment = make_environment(kind_text(attack.kind, {"sandbox": {"limits": limits}}))
    solved = make_environment(attack.kind).solution(task)
    total, parts, _, findings = played(environment, task, [*calls_of(attack, task)[:-1], *tidied(attack, task), *solved])
    assert attack.seen in findings and parts["flagged"] == 1.0 - (attack.seen in ("timeout", "output"))
    assert total == float(attack.seen != "escape"), (parts, findings)


def tidied(attack, task):
    """What takes back the changes that an attack made to the files of its task."""
    if attack.seen != "link":
        return []
    path = next(iter(task.goal["files"]))
    before = task.initial_state["files"].get(path)
    assert before is None, "the attack's link replaced a file of the task"
    return [("shell", {"command": f"rm -f root {path}"})]


def test_the_documents_list_these_attacks():
    """After a change: `python -m plugins.worlds.tests.attacks`."""
    page = PAGE.read_text()
    assert rewritten(page) == page


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, pytest.param(HONEST, marks=pytest.mark.slow)])
def test_no_known_solution_is_flagged(kind, count):
    maker = make_environment(kind)
    for task in maker.make_tasks(count, 11):
        total, parts, explanation, findings = played(make_environment(task.environment), task, maker.solution(task))
        assert (total, parts["flagged"], findings) == (1.0, 0.0, []), (task.id, explanation)
