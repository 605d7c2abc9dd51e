"""Programs over the tiny base."""

import sys
from pathlib import Path

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.engines.base import Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import load_base
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

EXAMPLE = Path(__file__).parents[4] / "examples" / "openai_agent.py"


@pytest.fixture(scope="session")
def example():
    return ["python", str(EXAMPLE)]


@pytest.fixture(scope="session")
def model(config, base):
    return load_base(config.policy, base)


@pytest.fixture
def engine(model, base, renderer):
    return lambda **options: TransformersEngine(
        lambda _: model, PolicyRef(base), renderer.end_of_turn_ids, Sampling(**options), slots=8
    )


@pytest.fixture
def played(engine, renderer):
    """Runs tasks, by our own loop or by a program; `harness` are its settings, `command` one of Python's own."""

    def run(tasks, harness=None, samples=1, seed=3, **caps):
        limits = {"max_tokens": 400, "max_turn_tokens": 48, **caps}
        config = RolloutConfig(**limits, harness=harness and {"seconds": 60, "sandbox": "none", **harness})
        return run_episodes(engine(), renderer, config, RolloutPlan(tasks, samples=samples, seed=seed))

    return run


@pytest.fixture
def script(tmp_path):
    """A program from its text: the command that runs it."""

    def written(text, name="agent.py"):
        (tmp_path / name).write_text(text)
        return [sys.executable, str(tmp_path / name)]

    return written
