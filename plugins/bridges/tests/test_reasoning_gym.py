"""The datasets of reasoning-gym, in a Python with it (`make setup-standards`); what needs no process runs without."""

import importlib.util
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import kind_text
from tracewheel.core.types import canonical_json
from tracewheel.environments import (
    NearMisser,
    Restorable,
    TaskMaker,
    VariantMaker,
    close_environment,
    make_environment,
    share_resources,
)
from tracewheel.environments.base import BridgeFailure, play_calls
from tracewheel.environments.running import close_resources
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_bridges.process import RUNNER
from tracewheel_bridges.reasoning_gym import LONGEST_ANSWER

STANDARDS = Path(os.environ.get("TRACEWHEEL_STANDARDS", Path(__file__).parents[3] / ".venv-standards"))
PYTHON = STANDARDS / "reasoning_gym" / "bin" / "python"
SETS = ["chain_sum", "countdown", "family_relationships", "knights_knaves", "list_functions", "n_queens", "simple_integration"]
installed = pytest.mark.skipif(not PYTHON.exists(), reason="needs reasoning-gym: make setup-standards")
PROBLEM = {"dataset": "chain_sum", "tier": 1, "seed": 0}


def spec(*datasets, **args):
    return give(kind_text("reasoning_gym", {"python": str(PYTHON), "datasets": list(datasets) or SETS, **args}))


def opened(kind):
    environment = make_environment(kind)
    share_resources(environment, kind)
    return environment


@pytest.fixture
def world():
    """Makes environments that share a process; it ends with the test."""
    made = []

    def make(*datasets, **args):
        made.append(opened(spec(*datasets, **args)))
        return made[-1]

    yield make
    for one in made:
        close_environment(one)
    close_resources()


def reward(environment, task, calls):
    play_calls(environment, task, calls)
    return verdict(environment, task)


def verdict(environment, task):
    return make_verifier(task.verifier).verify(task, environment.snapshot())[0]


def answer(environment, task, text):
    return reward(environment, task, [("answer", {"value": text})])


def start_of(dataset, tier, seed, environment):
    """A task of a known seed."""
    start = {"dataset": dataset, "tier": tier, "seed": seed}
    prompt = environment._ask("make", start=start, longest=LONGEST_ANSWER)
    return environment.task_from_log(prompt, {"initial_state": start})


@pytest.mark.parametrize("start", [None, {}, PROBLEM | {"seed": "0"}, PROBLEM | {"tier": True}, PROBLEM | {"answer": "4"}])
def test_a_log_without_a_problem_is_refused(start):
    with pytest.raises(DataError, match=r"initial_state"):
        make_environment(spec()).task_from_log("1 + 1 =", {"initial_state": start})


def test_one_answer_is_taken_from_a_call_or_a_mark_and_no_other():
    environment = make_environment(spec())
    task = environment.task_from_log("1 + 1 =", {"initial_state": PROBLEM})
    said = {
        "So it is <answer> 2 </answer>.": "2",
        "<think>Perhaps <answer>3</answer></think><answer>2</answer>": "2",
        "<think><answer>2</answer>": None,
        "<answer>2</answer> or <answer>3</answer>": None,
        "<answer> </answer>": None,
        f"<answer>{'2' * (LONGEST_ANSWER + 1)}</answer>": None,
        "2": None,
    }
    for text, answer in said.items():
        environment.reset(task)
        assert environment.reply(text).done
        assert environment._answer == answer, text
    environment.reset(task)
    for args in ({}, {"value": 2}, {"value": " "}, {"value": "2", "why": "x"}, {"value": "2" * (LONGEST_ANSWER + 1)}):
        assert environment.step("answer", args).error
    assert environment.step("calculator", {}).error
    assert environment.snapshot() == {"answer": None, "verdict": {"reward": 0.0, "parts": {"score": 0.0}}}


def test_a_formula_is_no_code():
    name = "bridge_of_reasoning_gym"
    found = importlib.util.spec_from_file_location(name, RUNNER.parent / "reasoning_gym.py")
    bridge = importlib.util.module_from_spec(found)
    found.loader.exec_module(bridge)
    for text in ("x**3/3 + C", "(5 - 3)*exp(2*x) + sin(X)", "-2.5*x"):
        assert bridge.is_formula(text, numbers_only=False), text
    for text in ("(24 - 3)*2 / 7",):
        assert bridge.is_formula(text, numbers_only=True), text
    for text in (
        "__import__('os')",
        "x.diff",
        "x .diff",
        "Integral(x, x)",
        "lambda x",
        "[x]",
        "x\u00b2",
        "getattr(x, x)",
        "_",
        "",
    ):
        assert not bridge.is_formula(text, numbers_only=False), text
    for text in ("0x10", "1e3", "2**3", "7//2", "x", "1_0", "5!"):
        assert not bridge.is_formula(text, numbers_only=True), text


def test_a_python_that_is_not_there_is_no_score(world):
    environment = world(python="/no/such/python")
    with pytest.raises(BridgeFailure, match="cannot be started"):
        environment.make_tasks(1, 0)
    environment.reset(environment.task_from_log("1 + 1 =", {"initial_state": PROBLEM}))
    environment.step("answer", {"value": "2"})
    with pytest.raises(BridgeFailure, match="cannot be started"):
        environment.snapshot()


@installed
@pytest.mark.slow
def test_its_own_answers_score_one_and_nothing_and_near_misses_zero(world):
    environment = world()
    tasks = environment.make_tasks(200, 20)
    assert len({task.fingerprint for task in tasks}) == 200
    assert {task.family for task in tasks} == set(SETS) and {task.tier for task in tasks} == {1, 2, 3}
    assert [task.id for task in tasks] == [task.id for task in make_environment(spec()).make_tasks(200, 20)]
    wrong = []
    for task in tasks:
        ways = {"known": environment.solution(task), "nothing": [], **environment.near_misses(task)}
        wrong += [(task.id, way) for way, calls in ways.items() if reward(environment, task, calls) != float(way == "known")]
        assert len(ways) >= 5
        logged = {"kind": environment.kind, "initial_state": task.initial_state, "goal": task.goal}
        assert environment.task_from_log(task.prompt, logged).fingerprint == task.fingerprint
    assert wrong == []


@installed
@pytest.mark.slow
def test_an_episode_goes_on_from_a_snapshot(world):
    first, second = world(), world()
    assert all(isinstance(first, one) for one in (TaskMaker, Restorable, NearMisser, VariantMaker))
    for task in first.make_tasks(16, 20):
        (call,) = first.solution(task)
        first.reset(task)
        second.restore(task, first.snapshot())
        assert canonical_json(second.snapshot()) == canonical_json(first.snapshot())
        assert second.step(*call).done and verdict(second, task) == 1.0
        first.restore(task, second.snapshot())
        assert canonical_json(first.snapshot()) == canonical_json(second.snapshot())
    variants = first.variants(task, 5, 0)
    assert len(variants) == 5 and all(one.tier <= task.tier and one.family == task.family for one in variants)


@installed
@pytest.mark.slow
def test_sixty_four_at_once_in_any_order_are_as_one_at_a_time(world):
    maker = world()
    tasks = maker.make_tasks(16, 20)
    plays = [
        (task, calls) for task in tasks for calls in [maker.solution(task), [], *list(maker.near_misses(task).values())[:2]]
    ]
    alone = [reward(world(), task, calls) for task, calls in plays]
    order = list(range(len(plays)))
    random.Random(20).shuffle(order)
    with ThreadPoolExecutor(64) as pool:
        together = dict(zip(order, pool.map(lambda place: reward(world(), *plays[place]), order), strict=True))
    assert [together[place] for place in range(len(plays))] == alone
    assert set(alone) == {0.0, 1.0}


@installed
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("boxnet", "no answer of its own"),
        ("composite", "at least one dataset"),
        ("game_of_life_halting", "' ' scores 1"),
        ("puzzle24", "of_another_task scores 1"),
        ("gsm_symbolic", "hedged scores 1"),
        ("number_sorting", "no_number scores 1"),
        ("propositional_logic", "hedged scores 1"),
        ("no_such", "no such dataset"),
    ],
)
def test_a_dataset_that_cannot_be_trusted_is_refused_by_name(world, dataset, said):
    with pytest.raises(ConfigError, match=f"dataset '{dataset}' is refused.*{said}"):
        world("chain_sum", dataset).make_tasks(2, 0)


@installed
@pytest.mark.slow
def test_a_lenient_scorer_is_used_where_it_is_asked_for(world):
    environment = world("gsm_symbolic", lenient=True)
    (task,) = environment.make_tasks(1, 0)
    assert reward(environment, task, environment.solution(task)) == 1.0
    assert task.tier == 1


@installed
@pytest.mark.slow
def test_an_answer_is_no_code_and_hangs_nobody(world, tmp_path):
    environment = world("n_queens", "simple_integration", "countdown")
    trace = tmp_path / "written"
    code = f"__import__('pathlib').Path({str(trace)!r}).write_text('x')"
    for dataset in ("n_queens", "simple_integration", "countdown"):
        task = start_of(dataset, 1, 0, environment)
        assert answer(environment, task, code) == 0.0
        assert answer(environment, task, f"[{code}]") == 0.0
        assert not trace.exists(), dataset
        assert reward(environment, task, environment.solution(task)) == 1.0
    task = start_of("simple_integration", 1, 0, environment)
    began = time.monotonic()
    assert answer(environment, task, "9**9**9**9**9") == 0.0
    assert time.monotonic() - began < 30
    assert answer(environment, task, "(" * 9000 + "x" + ")" * 9000) == 0.0
    assert reward(environment, task, environment.solution(task)) == 1.0  # the process goes on


@installed
@pytest.mark.slow
def test_a_task_of_another_version_has_no_score(world):
    environment = world("chain_sum")
    task = environment.task_from_log("State the final answer: 1 + 1", {"initial_state": PROBLEM})
    with pytest.raises(BridgeFailure, match="chain_sum asks something else"):
        answer(environment, task, "2")
