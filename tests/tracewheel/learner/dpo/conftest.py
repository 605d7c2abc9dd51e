"""DPO updates on hot episodes of the tiny base, with some settings changed."""

import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.files import read_table
from tracewheel.learner.dpo.learner import learn_dpo
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import RolloutPlan, rollout


@pytest.fixture(scope="session")
def dpo_config(config):
    common = {name: getattr(config.learner, name) for name in ("learning_rate", "gradient_checkpointing", "replay_path")}
    learner = {"kind": "dpo", "minibatches": 2, "micro_batch_tokens": 2048, "replay_rows": 2, **common}
    return RetrainConfig.model_validate(config.model_dump() | {"learner": learner})


@pytest.fixture(scope="session")
def rollouts(config, base, adapter, tasks, tmp_path_factory):
    """Four episodes of each of three tasks, sampled hot so that they differ; each group has success and failure."""
    hotter = config.model_copy(update={"rollout": config.rollout.model_copy(update={"temperature": 2.0, "max_tokens": 200})})
    out = tmp_path_factory.mktemp("rollout")
    rollout(hotter, PolicyRef(base, str(adapter)), RolloutPlan(tasks[::3], samples=4, seed=6), out)
    table = read_table(out / "trajectories.parquet")
    return table.assign(total=[float(index % 4 < 2) for index in range(len(table))])


@pytest.fixture(scope="session")
def learn(dpo_config, rollouts, adapter, tmp_path_factory):
    """Run the update into a fresh folder with some things changed; the folder and the figures."""

    def learn_with(learner=None, *, rollouts=rollouts, state=adapter.parent, iteration=1, **changes):
        changed = dpo_config.model_copy(
            update={"learner": dpo_config.learner.model_copy(update=learner or {}), **changes},
        )
        out = tmp_path_factory.mktemp("dpo")
        return out, learn_dpo(changed, rollouts, UpdateFiles([], [], state, adapter, out), iteration)

    return learn_with


@pytest.fixture(scope="session")
def usual(learn):
    """The update with nothing changed."""
    return learn()
