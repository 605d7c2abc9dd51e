"""Dialogues at the refund desk in real rollouts: solved with the scripted customer, and ended by a model that fails as one."""

import random
from dataclasses import replace

import pytest

from tracewheel.config import RolloutConfig, RubricConfig
from tracewheel.core.kind_table import give
from tracewheel.core.kinds import kind_text
from tracewheel.environments import TEXT_TURN
from tracewheel.environments.refund_desk.environment import ASK_ORDER, solution
from tracewheel.environments.refund_desk.talk import brief_of
from tracewheel.environments.refund_desk.tasks import make_task
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric

ROOMY = RolloutConfig(max_tokens=8000, max_turn_tokens=1000)


@pytest.fixture
def play(scripted_engine, renderer):
    def run(task, script):
        engine = scripted_engine(renderer, [script])
        (found,) = run_episodes(engine, renderer, ROOMY, RolloutPlan([task], samples=1, seed=0))
        return found, Rubric(RubricConfig(), [task]).score(task, found)

    return run


def a_task(tier=3):
    return make_task("exchange", tier, random.Random(2))


def on_endpoint(task, server):
    """The task with a model as its customer, behind the server."""
    user = {"kind": "endpoint", "args": {"endpoint": server.url, "model": "customer", "retries": 0}}
    give(environment := kind_text("refund_desk", {"user": user}))
    return replace(task, environment=environment)


def test_the_solution_is_a_dialogue_and_only_its_turns_are_the_policys(play, call_text, renderer):
    task = a_task()
    script = [args["text"] if name == TEXT_TURN else call_text(name, **args) for name, args in solution(task)]
    found, score = play(task, script)
    assert found.stop_reason == "finished" and score.total == 1.0
    roles = [message["role"] for message in found.messages]
    assert roles.count("user") == 1 + sum(name == TEXT_TURN for name, _ in solution(task))
    sampled = renderer.decode([token for token, mine in zip(found.token_ids, found.action_mask, strict=True) if mine])
    brief = brief_of(task.initial_state, task.prompt)
    assert all(question in sampled for question in script if not question.startswith("<"))
    assert not any(saying in sampled for fact in brief.facts for saying in fact.sayings if fact.name in ("used", "name"))
    assert brief.instruction not in renderer.decode(found.token_ids)


def test_a_model_plays_the_customer(play, call_text, chat_server):
    task = a_task(tier=2)
    number = task.goal["order"]["id"]
    server = chat_server(lambda body, count: {"content": f"It is {number}."})
    found, _ = play(on_endpoint(task, server), [ASK_ORDER, call_text("close", outcome="refused")])
    assert found.messages[3] == {"role": "user", "content": f"It is {number}."}
    assert found.stop_reason == "finished" and not found.fault


def test_a_customer_that_errs_leaves_the_episode_unscored(play, chat_server):
    server = chat_server(lambda body, count: {"content": "How can I help you today?"})
    found, score = play(on_endpoint(a_task(), server), [ASK_ORDER])
    assert (found.stop_reason, found.fault) == ("user_failed", "user")
    assert "answers as an assistant" in found.detail
    assert score.total is None and score.status != "scored"


def test_an_endpoint_that_is_down_is_the_machinerys_fault(play, chat_server):
    found, score = play(on_endpoint(a_task(), chat_server(lambda body, count: (500, {}, b"oops"))), [ASK_ORDER])
    assert found.stop_reason == "infrastructure_failed" and found.fault != "user"
    assert score.total is None
