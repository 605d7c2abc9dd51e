"""Programs behind the gateway: their episodes are the built-in loop's, token by token."""

import asyncio
import contextlib
import functools

import pytest

from tracewheel.engines.base import Sampling
from tracewheel.engines.transformers import ROWS_PER_SLOT, TransformersEngine
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.exchange import ChatRequest, Refusal
from tracewheel.gateway.gateway import Gateway
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


def test_weights_change_under_a_running_program(thread, versions, renderer, tasks, limits, plain_agent, together):
    """Each token knows its version, and the trainer's weights of that version say what the sampler said."""
    running = thread(policy=versions.policy(1))
    gateway = Gateway(running, renderer, limits)
    episode = gateway.open(Draw(5, 1.0))
    asked = 0

    async def ask(request):
        nonlocal asked
        asked += 1
        if asked == 2:
            await asyncio.wrap_future(running.call(lambda engine: engine.update_weights(versions.policy(2))))
        return await gateway.answer(episode.key, request)

    together(plain_agent(ask, tasks[0]))
    found = episode.record()
    assert [turn["policy_version"] for turn in found.turns] == [1, *[2] * (len(found.turns) - 1)] and len(found.turns) > 2
    for turn in found.turns:
        rescored = versions.logprobs(turn["policy_version"], found.token_ids[: turn["end"]])
        assert rescored[turn["start"] - 1 :] == pytest.approx(found.logprobs[turn["start"] : turn["end"]], abs=1e-4)


def test_an_engine_with_few_sessions_serves_many_programs(thread, renderer, tasks, limits, plain_agent, together):
    gateway = Gateway(thread(slots=2), renderer, limits)
    episodes = [(task, gateway.open(Draw(n, 1.0))) for task in tasks for n in range(3)]
    together(*(plain_agent(functools.partial(gateway.answer, episode.key), task) for task, episode in episodes))
    assert len(episodes) > 2 * ROWS_PER_SLOT
    assert all(episode.record().turns and not episode.record().forks for _, episode in episodes)


def test_a_session_that_rests_makes_room(thread, renderer, limits):
    """Else the engine is idle while a turn waits for a row, and nobody is answered any more."""
    gateway = Gateway(thread(slots=1), renderer, limits)
    request = ChatRequest([{"role": "user", "content": "hi"}], max_tokens=2)

    episodes = [gateway.open(Draw(number)) for number in range(ROWS_PER_SLOT + 1)]

    async def ask():
        return [await asyncio.wait_for(gateway.answer(episode.key, request), 20) for episode in episodes]

    replies, records = asyncio.run(ask()), [episode.record() for episode in episodes]
    for reply, record in zip(replies, records, strict=True):
        said = [token for token, acted in zip(record.token_ids, record.action_mask, strict=True) if acted]
        assert said == [token.id for token in reply.tokens] and 1 <= len(said) <= 2
        assert reply.message["role"] == "assistant"
    assert len({record.token_ids[-1] for record in records}) > 1, "each was drawn by its own seed"


def test_an_engine_that_fails_tells_every_program(renderer, limits, tasks, plain_agent, together):
    class Broken:
        policy_version, idle = 0, False

        def submit(self, request):
            pass

        def step(self):
            raise RuntimeError("out of memory")

    broken = EngineThread(Broken())
    gateway = Gateway(broken, renderer, limits)
    episode = gateway.open(Draw())
    for _ in range(2):
        with pytest.raises(Refusal, match="out of memory") as refused:
            together(plain_agent(functools.partial(gateway.answer, episode.key), tasks[0]))
        assert refused.value.kind == "server_error"
    broken.close()


def test_a_client_that_leaves_loses_its_turn_and_no_other(thread, renderer, limits, tasks, plain_agent, together):
    running = thread()
    gateway = Gateway(running, renderer, limits)
    episode, left = gateway.open(Draw(1, 1.0)), 0

    async def impatient(request):
        """Leaves once the engine has begun the turn, and asks again."""
        nonlocal left
        first = asyncio.create_task(gateway.answer(episode.key, request))
        while not first.done():
            if not await asyncio.wrap_future(running.call(lambda engine: engine.idle)):
                left += first.cancel()
                break
        with contextlib.suppress(asyncio.CancelledError):
            return await first
        return await gateway.answer(episode.key, request)

    together(plain_agent(impatient, tasks[0]))
    found = episode.record()
    assert left > 2 and found.requests["lost_tokens"] > left and len(found.turns) > 2
    assert not found.branches and not found.forks
    assert sum(found.action_mask) == sum(turn["end"] - turn["start"] for turn in found.turns)


def test_an_episode_that_ends_while_a_request_is_read_leaves_no_session(thread, renderer, limits):
    running = thread()
    episode = Gateway(running, renderer, limits).open(Draw())

    async def ask():
        with episode._lock:  # as long as another request is read
            asked = asyncio.create_task(episode.answer(ChatRequest([{"role": "user", "content": "hi"}])))
            await asyncio.sleep(0.05)
            episode.end("it is over")
        with pytest.raises(Refusal, match="it is over"):
            await asked
        return await asyncio.wrap_future(running.call(lambda engine: (engine.idle, len(engine._sessions))))

    assert asyncio.run(ask()) == (True, 0) and not running._sessions
