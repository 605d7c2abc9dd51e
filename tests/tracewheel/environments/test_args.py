"""Environments and verifiers with arguments: the tasks name them, and other processes make them alike."""

import pytest
from pydantic import BaseModel

from tracewheel.config import RolloutConfig, RubricConfig
from tracewheel.core.errors import ConfigError
from tracewheel.core.kinds import kind_text
from tracewheel.core.types import Task, Trace
from tracewheel.curation.replay import replay_trace
from tracewheel.environments import make_environment
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric


class Greeter(WorkspaceEnvironment):
    """A workspace whose system prompt is an argument."""

    kind = f"{__name__}:Greeter"

    class Args(BaseModel):
        greeting: str = "Hello."

    def __init__(self, args=None):
        super().__init__()
        self.system_prompt = (args or self.Args()).greeting

    def task_from_log(self, prompt, logged):
        return Task("t", self.kind, "f", 1, prompt, logged["initial_state"], {}, kind_text(Share.kind, {"of": 4}), "t")

    def variants(self, task, n, seed):
        return [Task("v", self.kind, "f", 1, "x", task.initial_state, {}, task.verifier, "v")] * n


class Share:
    kind = f"{__name__}:Share"

    def __init__(self, of: int, plus: float = 0.0):
        self.of, self.plus = of, plus

    def verify(self, task, final_state):
        return 1 / self.of + self.plus, {}


SPEC = kind_text(Greeter.kind, {"greeting": "Good day."})
STATE = {"folders": ["", "/a"], "files": {"/a/x": "1"}}


def test_tasks_of_an_environment_with_arguments_name_them(scripted_engine, renderer):
    environment = make_environment(SPEC)
    task = environment.task_from_log("Go.", {"initial_state": STATE})
    assert task.environment == SPEC and {each.environment for each in environment.variants(task, 2, 0)} == {SPEC}
    assert make_environment(Greeter.kind).task_from_log("Go.", {"initial_state": STATE}).environment == Greeter.kind
    trace = Trace("x", [{"role": "user", "content": "Go."}], [], {"kind": Greeter.kind, "initial_state": STATE},
                  None, None, None, None, None, "f", 1)  # fmt: skip
    assert replay_trace(trace, environment).task.environment == SPEC
    config = RolloutConfig(max_tokens=4000, max_turn_tokens=1000)
    engine = scripted_engine(renderer, [["Bye."]])
    (played,) = run_episodes(engine, renderer, config, RolloutPlan([task], samples=1, seed=0))
    assert played.messages[0]["content"] == "Good day."
    score = Rubric(RubricConfig(), [task]).score(task, played)
    assert score.breakdown == {Share.kind: 0.25, "success": 0.0} and score.total == 0.25
    terms = [{"kind": "task"}, {"kind": Share.kind, "args": {"of": 2}}, {"kind": Share.kind, "args": {"of": 4}}]
    breakdown = Rubric(RubricConfig(verifiers=terms), [task]).score(task, played).breakdown
    assert breakdown == {Share.kind: 0.25, f"{Share.kind}#2": 0.5, "success": 0.0}


def test_what_a_newcomer_is_told():
    with pytest.raises(ConfigError, match=r"Greeter': args.greting: no such argument; it takes greeting"):
        make_environment(kind_text(Greeter.kind, {"greting": "x"}))
    with pytest.raises(
        ConfigError, match="environment 'workspace': args.files: no such argument; it takes lost_moves, noise_seed"
    ):
        make_environment(kind_text("workspace", {"files": 3}))
    with pytest.raises(ConfigError, match="Share': args.of: missing; it takes of, plus"):
        Rubric(RubricConfig(verifiers=[{"kind": Share.kind}]), [])
