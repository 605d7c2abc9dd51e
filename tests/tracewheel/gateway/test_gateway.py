"""Programs behind the gateway: their episodes are the built-in loop's, token by token."""

import functools

from tracewheel.engines.base import Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.gateway.live_episode import Draw
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import RolloutPlan, episode_seed, run_episodes


def test_a_program_with_the_built_in_loop_has_the_same_tokens(
    gateway, model, base, renderer, tasks, limits, plain_agent, together
):
    engine = TransformersEngine(lambda _: model, PolicyRef(base), renderer.end_of_turn_ids, Sampling(), slots=8)
    expected = run_episodes(engine, renderer, limits, RolloutPlan(tasks, samples=2, seed=3))
    episodes = [(task, gateway.open(Draw(episode_seed(3, task, n), 1.0))) for task in tasks for n in range(2)]
    together(*(plain_agent(functools.partial(gateway.answer, episode.key), task) for task, episode in episodes))
    assert sum(len(trajectory.turns) for trajectory in expected) > 40
    for (_, episode), trajectory in zip(episodes, expected, strict=True):
        found = episode.record()
        assert found.token_ids == trajectory.token_ids
