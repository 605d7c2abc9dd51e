"""The guard of a loop: what it does about an alarm, what it records, and the same again after a resume."""

import json
import shutil

import pandas as pd
import pytest

from tasks.engine.drivers import DirectDriver
from tasks.engine.run import Run, Silent
from tasks.stages.guard import Guard, go_back_to
from tracewheel.config import RetrainConfig, UpdateSections
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import Entry, Store
from tracewheel.core.types import Score
from tracewheel.learner.learning_rate import learning_rate
from tracewheel.policy.adapters import base_hash, policy_of
from tracewheel.report.doctor import read_guard
from tracewheel.sampling.sampler import TaskSampler, observe_scores
from tracewheel.scoring.score import write_scores

TASKS, SAMPLES = 12, 8
IDS = [f"k{number:02}" for number in range(TASKS)]


class Listener(Silent):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


class Loop:
    """A loop whose stages have run: entries with trajectories, scores and metrics."""

    def __init__(self, root, **changes):
        values = {"name": "t", "environment": {"kind": "workspace"}, "learner": {"learning_rate": 1e-3}, **changes}
        self.listener = Listener()
        config = RetrainConfig.model_validate(values)
        self.run = Run(config, Store(root / "store"), RunRecord(root, "run"), self.listener, driver=DirectDriver())
        self.sampler = TaskSampler(config.sampler, IDS, seed=1)
        self.guard = Guard(self.run, self.curated(), self.sampler)
        self.rates = {0: 0.3}

    def entry(self, name, result=None):
        path = self.run.store.root / name
        path.mkdir(parents=True, exist_ok=True)
        return Entry(name.partition("-")[0], name, path, name, 1.0, result or {})

    def curated(self):
        entry = self.entry("curate-0")
        pd.DataFrame({"id": IDS, "family": ["list"] * TASKS}).to_parquet(entry.path / "tasks.parquet")
        return entry

    def go(self, number, wins, *, tool="read_file", last=False, **metrics):
        """One iteration in which each task succeeds `wins` times, or each its own number of times."""
        rollout, scores = self.entry(f"rollout-{number}"), self.entry(f"score-{number}")
        rows, marks = [], []
        for task in IDS:
            for sample in range(SAMPLES):
                call = {"id": "c", "type": "function", "function": {"name": tool, "arguments": "{}"}}
                messages = [{"role": "user", "content": ""}, {"role": "assistant", "content": None, "tool_calls": [call]}]
                rows.append({"task_id": task, "turns": '[{"calls": 1, "malformed": 0}]', "messages": json.dumps(messages)})
                marks.append(
                    Score(f"{number}-{task}-{sample}", task, task, "scored", 1.0, {"success": float(sample < wins)}, "", "list")
                )
        pd.DataFrame(rows).to_parquet(rollout.path / "trajectories.parquet")
        write_scores(scores.path / "scores.parquet", marks)
        observe_scores(self.sampler, scores.path / "scores.parquet")
        update = self.entry(f"update-{number}", {"entropy": 0.1, "kl": 0.01, "grad_norm": 0.1, **metrics})
        return self.guard.see(number, self.rates, rollouts=[rollout], scores=[scores], update=update, last=last)

    @property
    def rate(self):
        return self.guard.run.config.learner.learning_rate


def test_a_collapse_takes_the_loop_back_with_a_lower_rate_and_forgets_what_it_played(tmp_path):
    loop = Loop(tmp_path)
    assert [loop.go(number, 5) for number in (1, 2, 3)] == [None] * 3
    loop.rates[2] = 0.5
    before = loop.sampler.to_state()
    event = loop.go(4, 0)
    assert (event.action, event.since, event.to, event.learning_rate) == ("go_back", 4, 2, pytest.approx(3e-4))
    assert loop.rate == pytest.approx(3e-4)
    assert learning_rate(UpdateSections.of(loop.guard.run.config), 5) == pytest.approx(3e-4)
    assert loop.run.config.learner.learning_rate == 1e-3, "the run's own settings stay"
    assert loop.sampler.to_state() == before
    assert read_guard(loop.run.record.path) == [event.to_record()]
    (said,) = loop.listener.said
    assert said == "guard, iteration 4: success 0, expected 0.625; back to iteration 2 with learning rate 0.0003"
    assert loop.guard.figures == {"learning_rate": 1e-3, "guard_alarm": 1.0}
    assert loop.go(5, 5) is None, "the lost iteration is no longer compared with"
    assert loop.guard.figures == {"learning_rate": pytest.approx(3e-4), "guard_alarm": 0.0}


def test_it_stops_when_no_attempt_is_left_and_only_notes_an_alarm_of_the_last_iteration(tmp_path):
    loop = Loop(tmp_path, guard={"attempts": 1})
    actions = [event and event.action for event in (loop.go(number, wins) for number, wins in enumerate((5, 5, 0, 5, 0), 1))]
    assert actions == [None, None, "go_back", None, "stop"]
    assert loop.rate == pytest.approx(3e-4)
    assert "stopped, no attempt is left; the best candidate before is iteration 0" in loop.listener.said[-1]
    last = Loop(tmp_path / "last")
    assert [last.go(1, 5), last.go(2, 5), last.go(3, 0, last=True)] == [None] * 3
    assert [event.action for event in last.guard.events] == ["note"]
    assert last.rate == 1e-3


def test_invented_tools_are_malformed_calls(tmp_path):
    loop = Loop(tmp_path)
    assert loop.go(1, 4, tool="read_file") is None
    event = loop.go(2, 4, tool="conjure")
    assert [signal["name"] for signal in event.signals] == ["malformed"]


@pytest.mark.parametrize("changes", [{"guard": {"enabled": False}}, {"guard": {"attempts": 0}}])
def test_a_guard_that_may_not_go_back(tmp_path, changes):
    loop = Loop(tmp_path, **changes)
    events = [loop.go(number, wins) for number, wins in enumerate((5, 5, 0), 1)]
    if changes["guard"].get("enabled", True):
        assert events[-1].action == "stop"
    else:
        assert events == [None] * 3
        assert read_guard(loop.run.record.path) is None


def test_a_resumed_loop_decides_the_same(tmp_path):
    course = (5, 5, 0, 5, 5)
    first = Loop(tmp_path)
    events = [first.go(number, wins) for number, wins in enumerate(course, 1)]
    again = Loop(tmp_path)
    assert [again.go(number, wins) for number, wins in enumerate(course, 1)] == events
    assert again.sampler.to_state() == first.sampler.to_state()


def test_going_back_keeps_the_bytes_and_gives_them_a_version(base, adapter, tmp_path):
    loop = Loop(tmp_path, policy={"base": base})
    state = loop.entry("update-2")
    (state.path / "optimizer.pt").write_bytes(b"optimizer.pt")
    weights = shutil.copytree(adapter("one"), state.path / "adapter") / "adapter_model.safetensors"
    info = {"base_hash": base_hash(base), "version": 2}
    (state.path / "adapter" / "adapter.json").write_text(json.dumps(info, indent=2) + "\n")
    found = go_back_to(loop.run, state=state, iteration=7)
    assert policy_of(found.path, base).version == 7
    assert policy_of(state.path, base).version == 2, "the original is as it was"
    assert (found.path / "optimizer.pt").read_bytes() == b"optimizer.pt"
    assert (found.path / "adapter" / "adapter_model.safetensors").read_bytes() == weights.read_bytes()
    assert go_back_to(loop.run, state=state, iteration=8).digest != found.digest
    assert go_back_to(loop.run, state=state, iteration=7).reused
