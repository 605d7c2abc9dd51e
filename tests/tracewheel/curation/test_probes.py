"""Probes: forty degenerate tasks are planted among valid ones, and each is dropped with its reason."""

import itertools
from dataclasses import replace

import pytest

from tracewheel.core.types import Task
from tracewheel.curation.probes import BROKEN, FLAKY, GOLD, NO_OP, probe_report, probe_task, shortest
from tracewheel.curation.replay import no_op_problem
from tracewheel.environments import Observation, make_environment
from tracewheel.environments.running import close_resources
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.scoring.verifiers import VERIFIERS

CLOCK = itertools.count()


class Counter:
    """Counts up to a goal; the task's initial state selects a fault."""

    kind, system_prompt = "counter", "You count."

    def task_from_log(self, prompt, logged):
        raise AssertionError("a probe reads no log")

    def tools(self):
        return []

    def reset(self, task):
        self.state = dict(task.initial_state)
        self.value = self.state.get("start", 0)
        if self.state.get("fault") == "no start":
            raise RuntimeError("the machine is away")
        if self.state.get("fault") == "random start":
            self.value = next(CLOCK)

    def step(self, tool, args):
        self.value += args.get("by", 1)
        if self.state.get("fault") == "lossy":
            self.value -= next(CLOCK) % 2
        text = f"at {next(CLOCK)}" if self.state.get("fault") == "random reply" else f"at {self.value}"
        return Observation(text, done=tool == "stop")

    def snapshot(self):
        return {"value": self.value}


class CounterVerifier:
    """Scores 1 at the goal; the task's goal selects a fault."""

    kind = "counter"

    def verify(self, task, final_state):
        match task.goal.get("fault"):
            case "random":
                return (0.0, {"luck": float(next(CLOCK) % 2)})
            case "now and then":
                if next(CLOCK) % 2:
                    raise RuntimeError("not today")
            case "always raises":
                raise KeyError("value")
        total = float(final_state["value"] >= task.goal["value"])
        return total, {"reached": total}


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    monkeypatch.setitem(VERIFIERS, "counter", CounterVerifier)


def counter_task(number, *, start=0, goal=3, fault=None, verifier_fault=None):
    state = {"start": start, **({"fault": fault} if fault else {})}
    aim = {"value": goal, **({"fault": verifier_fault} if verifier_fault else {})}
    return Task(f"task-{number}", "counter", "count", 1, f"Count {number}.", state, aim, "counter", f"fp-{number}")


STEPS = [("add", {"by": 1})] * 3


def planted():
    """Forty invalid tasks with the verdict of each, and ten valid ones."""
    bad = [
        *[(NO_OP, {"start": 3 + n}) for n in range(10)],
        *[(NO_OP, {"goal": -n}) for n in range(4)],
        *[(GOLD, {"goal": 4 + n}) for n in range(10)],
        *[(FLAKY, {"fault": "random start"}) for _ in range(4)],
        *[(FLAKY, {"fault": "random reply"}) for _ in range(4)],
        *[(FLAKY, {"verifier_fault": "random"}) for _ in range(4)],
        *[(FLAKY, {"verifier_fault": "now and then"}) for _ in range(4)],
    ]
    return bad, [("", {}) for _ in range(10)]


def test_degenerate_tasks_are_dropped_with_their_reason():
    bad, good = planted()
    assert len(bad) == 40
    expected = {}
    tasks = []
    for number, (verdict, settings) in enumerate([*bad, *good]):
        tasks.append(counter_task(number, **settings))
        expected[f"task-{number}"] = verdict
    probes = {task.id: probe_task(task, Counter, STEPS) for task in tasks}
    report = probe_report(probes)
    assert {task_id: found.verdict for task_id, found in probes.items()} == expected
    assert all(bool(found.reason) != found.valid for found in probes.values())
    assert report["probed"] == 50 and report["fit"] == 10
    assert report["dropped"] == {FLAKY: 16, GOLD: 10, NO_OP: 14}


@pytest.mark.parametrize(
    ("settings", "verdict", "says"),
    [
        ({"start": 3}, NO_OP, "doing nothing scores 1"),
        ({"goal": 9}, GOLD, "it scores 0, short of full marks in reached"),
        ({"fault": "random start"}, FLAKY, "they start from different states"),
        ({"fault": "random reply"}, FLAKY, "call 1 is answered differently"),
        ({"fault": "no start"}, BROKEN, "the machine is away"),
        ({"verifier_fault": "random"}, FLAKY, "different parts (luck)"),
        ({"verifier_fault": "now and then"}, FLAKY, "the score is"),
        ({"verifier_fault": "always raises"}, BROKEN, "KeyError"),
    ],
)
def test_the_reason_names_what_was_observed(settings, verdict, says):
    found = probe_task(counter_task(1, **settings), Counter, STEPS)
    assert found.verdict == verdict and says in found.reason


def test_without_a_known_solution_only_doing_nothing_is_tried():
    unsolvable = counter_task(1, goal=10**6)
    assert probe_task(unsolvable, Counter).valid
    assert not probe_task(unsolvable, Counter).solution_tried
    assert probe_task(counter_task(1), Counter, STEPS).solution_tried


def test_a_lossy_environment_is_never_valid():
    lossy = [probe_task(counter_task(n, fault="lossy"), Counter, STEPS).verdict for n in range(4)]
    assert set(lossy) <= {FLAKY, GOLD}


def test_a_solution_stops_where_the_episode_ends():
    assert probe_task(counter_task(1, goal=1), Counter, [("stop", {"by": 1}), ("add", {"by": -1})]).valid


def test_the_workspace_knows_its_own_solutions(tasks):
    report = probe_report({task.id: probe_task(task) for task in tasks})
    assert report == {"probed": len(tasks), "with_solution": len(tasks), "fit": len(tasks), "dropped": {}}
    impossible = replace(tasks[0], goal={**tasks[0].goal, "manifest": "/nowhere/manifest.json"})
    assert probe_task(impossible).verdict == GOLD
    hollow = replace(tasks[0], initial_state={"folders": [""], "files": {tasks[0].goal["manifest"]: "[]"}})
    assert probe_task(hollow).verdict == NO_OP and no_op_problem(hollow, WorkspaceEnvironment()) == NO_OP


def test_the_shortest_verified_trace_is_the_known_solution(tasks):
    long, short = [("list_files", {"path": "/"}), *solution(tasks[0])], solution(tasks[0])
    assert shortest([("b", "task", long), ("c", "task", short), ("a", "other", long)]) == {"task": short, "other": long}


def test_probing_does_not_change_the_environment(tasks):
    environment = make_environment("workspace")
    environment.reset(tasks[0])
    before = environment.snapshot()
    probe_task(tasks[0], lambda: environment)
    environment.reset(tasks[0])
    assert environment.snapshot() == before


def test_a_solution_is_asked_for_with_what_episodes_share():
    """To solve may be to play, in a browser: one for all tasks, and every environment is closed."""
    known = []

    class Played(Counter):
        opened, resources = 0, None

        @classmethod
        def setup(cls, args):
            cls.opened += 1
            return object()

        @classmethod
        def close_resources(cls, resources):
            cls.opened -= 1

        def solution(self, task):
            assert self.resources is not None
            return STEPS

        def close(self):
            known.remove(self)

    def make():
        known.append(Played())
        return known[-1]

    try:
        assert [probe_task(counter_task(number), make).verdict for number in range(3)] == ["", "", ""]
        assert Played.opened == 1 and known == []
    finally:
        close_resources()
    assert Played.opened == 0
