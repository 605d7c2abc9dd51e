"""Rollouts under a template that rewrites earlier turns: rows in the engine, in the record and in the learner."""

import copy
from dataclasses import replace

import pandas as pd
import pytest
import torch

from tracewheel.chat.renderer import ChatRenderer
from tracewheel.config import RolloutConfig
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.forks import ancestry, longest_row, rows
from tracewheel.core.types import Trajectory
from tracewheel.engines.base import Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import load_base
from tracewheel.rollout.rollout import RolloutPlan, run_episodes


@pytest.fixture(scope="module")
def rewriting(renderer):
    """The tiny policy's format, whose template numbers the assistant turns that others follow."""
    tokenizer = copy.deepcopy(renderer.tokenizer)
    said = "{{- message.content or '' -}}"
    assert said in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(
        said, "{%- if not loop.last -%}{{- 'step ' ~ loop.index -}}{%- endif -%}" + said
    )
    return ChatRenderer(tokenizer)


@pytest.fixture(scope="module")
def played(config, base, rewriting, tasks):
    engine = TransformersEngine(
        lambda _: load_base(config.policy, base), PolicyRef(base), rewriting.end_of_turn_id, Sampling(), slots=8
    )
    return run_episodes(engine, rewriting, RolloutConfig(), RolloutPlan(tasks[:6], samples=4, seed=3))


def test_each_row_is_what_the_policy_read(played, rewriting):
    several = [trajectory for trajectory in played if len(trajectory.turns) > 1]
    assert len(several) > 5
    for trajectory in several:
        length = len(trajectory.token_ids)
        assert len(trajectory.forks) == len(trajectory.turns) - 1 == len(rows(trajectory.forks, length)) - 1
        assert longest_row(trajectory.forks, length) < length
        for number, turn in enumerate(trajectory.turns):
            row = [i for piece in ancestry(trajectory.forks, length, turn["end"] - 1) for i in range(*piece)]
            text = rewriting.decode([trajectory.token_ids[i] for i in row])
            assert text.count("assistant\nstep ") == number
            context = row[: row.index(turn["start"])]
            assert not any(trajectory.action_mask[i] for i in context[len(context) - 5 :])
        sampled = [i for turn in trajectory.turns for i in range(turn["start"], turn["end"])]
        assert sampled == [i for i, acted in enumerate(trajectory.action_mask) if acted]


@pytest.mark.parametrize("layout", ["padded", "packed", "shared_prefix"])
def test_the_learners_logprobs_are_those_of_the_sampler(config, base, played, tmp_path, layout):
    write_records(tmp_path / "trajectories.parquet", played)
    assert read_records(tmp_path / "trajectories.parquet", Trajectory) == played
    table = read_table(tmp_path / "trajectories.parquet")
    model, gaps, tokens = load_base(config.policy, base), [], 0
    for batch in micro_batches(table, [0.0] * len(table), 2000, layout=layout):
        with torch.no_grad():
            found = action_logprobs(model, batch, layout=layout)[0]
        gaps.append((found - batch.behaviour_logprobs)[batch.action_mask == 1].abs().max().item())
        tokens += int(batch.action_mask.sum())
    assert tokens == sum(sum(trajectory.action_mask) for trajectory in played)
    assert max(gaps) < 1e-4


def test_without_the_forks_they_are_not(config, base, played):
    """The flat order alone is a conversation that no policy read."""
    table = pd.DataFrame([replace(trajectory, forks=[]).to_record() for trajectory in played])
    model = load_base(config.policy, base)
    [batch] = micro_batches(table, [0.0] * len(table), 10**6, layout="packed")
    with torch.no_grad():
        found = action_logprobs(model, batch, layout="packed")[0]
    assert (found - batch.behaviour_logprobs)[batch.action_mask == 1].abs().max() > 0.1


def test_the_cap_is_of_the_longest_row(config, base, rewriting, tasks, played):
    longest = max(longest_row(trajectory.forks, len(trajectory.token_ids)) for trajectory in played)
    assert max(len(trajectory.token_ids) for trajectory in played) > longest
    engine = TransformersEngine(
        lambda _: load_base(config.policy, base), PolicyRef(base), rewriting.end_of_turn_id, Sampling(), slots=8
    )
    again = run_episodes(engine, rewriting, RolloutConfig(max_tokens=longest + 1), RolloutPlan(tasks[:6], samples=4, seed=3))
    assert [trajectory.id for trajectory in again] == [trajectory.id for trajectory in played]
