"""The refund desk's logs and base text: reproducible, about two thirds good, every word one token."""

import json
import random
from collections import defaultdict

import pytest

from data.refund_desk_logs import FAULTS, HABITS, faulty_calls, log_lines
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.environments.base import play_calls
from tracewheel.environments.refund_desk.environment import RefundDeskEnvironment, order_of, solution
from tracewheel.environments.refund_desk.tasks import FAMILIES, TIERS, make_task
from tracewheel.scoring.verifiers.refund_desk import RefundDeskVerifier
from tracewheel_projects.demo.base_policy import train_base_policy
from tracewheel_projects.demo.base_tokenizer import START_OF_TURN, build_tokenizer
from tracewheel_projects.demo.config import BasePolicyConfig
from tracewheel_projects.demo.worlds import WORLDS

WORLD = WORLDS["refund_desk"]


@pytest.fixture(scope="module")
def lines():
    return list(log_lines())


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(WORLD.pieces())


def score(task, calls):
    environment = RefundDeskEnvironment()
    play_calls(environment, task, calls)
    return RefundDeskVerifier().verify(task, environment.snapshot())[0]


def whole(ids, tokenizer):
    """Whether each token is one of the world's pieces or a control token."""
    return {tokenizer.decode([token]) for token in ids} <= WORLD.pieces() | set(tokenizer.all_special_tokens) | {START_OF_TURN}


def test_the_same_seed_gives_the_same_logs_and_they_are_partly_good(lines):
    assert list(log_lines(0)) == lines and next(log_lines(1)) != lines[0]
    rewards = defaultdict(list)
    for record in map(json.loads, lines):
        if "reward" in record:
            task = RefundDeskEnvironment().task_from_log(record["messages"][1]["content"], record["environment"])
            rewards[task.family].append(record["reward"])
    assert rewards.keys() == set(FAMILIES)
    assert all(0.45 < sum(values) / len(values) < 0.8 for values in rewards.values())


def test_the_hurried_agent_is_right_by_luck():
    """Outcomes alone do not tell its habit from the policy, which is why imitation of good outcomes keeps it."""
    rng = random.Random(3)
    scores = [score(task, faulty_calls(task, "hurry")) for task in (make_task("refund", 2, rng) for _ in range(100))]
    assert 0.35 < sum(scores) / len(scores) < 0.65
    assert set(HABITS.values()) < set(FAULTS)


def test_payments_to_the_card_are_wrong_for_gift_cards_alone():
    rng = random.Random(4)
    for task in (make_task("gift", 1, rng) for _ in range(40)):
        assert score(task, faulty_calls(task, "pay_to_card")) == float(task.goal["outcome"] != "refunded")
        assert order_of(task)["paid"] == "gift"


def test_no_episode_needs_single_bytes(tokenizer):
    """All that is said, by tools, customers and agents, is in whole pieces; the tokenizer falls back to none."""
    renderer, rng = ChatRenderer(tokenizer), random.Random(5)
    for number in range(80):
        task = make_task(FAMILIES[number % 4], TIERS[number % 3], rng)
        for calls in (solution(task), faulty_calls(task, HABITS[task.family])):
            ids, mask = renderer.conversation_ids(play_calls(RefundDeskEnvironment(), task, calls), WORLD.tools)
            assert whole(ids, tokenizer)
            assert len(ids) < 100 and sum(mask) >= 5


@pytest.mark.parametrize("skill", list(WORLD.skills))
def test_skills_are_conversations_of_whole_pieces(skill, tokenizer):
    rng = random.Random(6)
    for _ in range(10):
        ids, mask = ChatRenderer(tokenizer).conversation_ids(WORLD.skills[skill](rng), WORLD.tools)
        assert sum(mask) and whole(ids, tokenizer)


def test_a_base_is_trained_for_this_world(tmp_path):
    phase = {"skills": {"repeat": 1, "by_rules": 1}, "conversations": 30, "steps": 20}
    config = BasePolicyConfig.model_validate(
        {
            "world": "refund_desk", "threads": 1, "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 1, "feed_forward": 48,
            "batch_tokens": 1024, "replay_rows": 8, "complete_families": ["refund"], "phases": [phase],
        }
    )  # fmt: skip
    figures = train_base_policy(config, tmp_path)
    assert figures["final_loss"] > 0
    assert BasePolicyConfig.model_validate(json.loads((tmp_path / "base.json").read_text())["config"]) == config
