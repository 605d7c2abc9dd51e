"""The assistant's logs and base text: reproducible, about half good, whole tokens, and curated without loss."""

import json
import random
from collections import defaultdict

import pytest

from tracewheel.chat.renderer import ChatRenderer
from tracewheel.environments.base import play_calls
from tracewheel_projects.demo.base_tokenizer import START_OF_TURN, build_tokenizer
from tracewheel_projects.demo.worlds import WORLDS
from tracewheel_worlds.assistant.agent import solution
from tracewheel_worlds.assistant.environment import AssistantEnvironment
from tracewheel_worlds.assistant.goals import FAMILIES, TIERS, is_free
from tracewheel_worlds.assistant.logs import FAULTS, HABITS, faulty_calls, log_lines
from tracewheel_worlds.assistant.tasks import make_task
from tracewheel_worlds.assistant.verifier import AssistantVerifier

WORLD = WORLDS["assistant"]


@pytest.fixture(scope="module")
def lines():
    return list(log_lines())


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(WORLD.pieces())


def score(task, calls):
    apps = AssistantEnvironment()
    play_calls(apps, task, calls)
    return AssistantVerifier().verify(task, apps.snapshot())[0]


def whole(ids, tokenizer):
    """Whether each token is one of the world's pieces or a control token."""
    return {tokenizer.decode([token]) for token in ids} <= WORLD.pieces() | set(tokenizer.all_special_tokens) | {START_OF_TURN}


def test_the_same_seed_gives_the_same_logs_and_they_are_partly_good(lines):
    assert list(log_lines(0)) == lines and next(log_lines(1)) != lines[0]
    rewards = defaultdict(list)
    for record in map(json.loads, lines):
        if "reward" in record:
            rewards[record["environment"]["goal"]["family"]].append(record["reward"])
    assert rewards.keys() == set(FAMILIES)
    assert all(0.35 < sum(values) / len(values) < 0.75 for values in rewards.values())


def test_tasks_that_do_not_recur_share_no_person_with_those_that_do(lines):
    """Curation trains on the tasks that recur, and holds the others out."""
    people = {True: set(), False: set()}
    for record in map(json.loads, lines):
        recurs = int(record["user"].removeprefix("user-")) < 100
        people[recurs] |= {contact["name"] for contact in record["environment"]["initial_state"]["contacts"]}
    assert people[True] and people[False] and not people[True] & people[False]


def test_a_hurried_agent_is_right_where_the_calendar_is_free():
    rng = random.Random(3)
    for task in (make_task("book", 3, rng) for _ in range(40)):
        free = is_free(task.initial_state, task.goal["day"], task.goal["time"])
        assert score(task, faulty_calls(task, "hurry")) == float(free)


@pytest.mark.parametrize("fault", sorted({fault for habits in HABITS.values() for fault in habits} - {"hurry"}))
def test_each_habit_fails_somewhere(fault):
    rng = random.Random(4)
    family = next(family for family, habits in HABITS.items() if fault in habits)
    assert fault in FAULTS
    assert 0.0 in {score(task, faulty_calls(task, fault)) for task in (make_task(family, 3, rng) for _ in range(10))}


def test_no_episode_needs_single_bytes(tokenizer):
    renderer, rng = ChatRenderer(tokenizer), random.Random(5)
    for number in range(64):
        task = make_task(FAMILIES[number % 4], TIERS[number // 4 % 4], rng)
        for calls in (solution(task), *(faulty_calls(task, fault) for fault in HABITS[task.family])):
            ids, mask = renderer.conversation_ids(play_calls(AssistantEnvironment(), task, calls), WORLD.tools)
            assert whole(ids, tokenizer)
            assert len(ids) < 120 and sum(mask) >= 5


@pytest.mark.parametrize("skill", list(WORLD.skills))
def test_skills_are_conversations_of_whole_pieces(skill, tokenizer):
    rng = random.Random(6)
    for _ in range(20):
        ids, mask = ChatRenderer(tokenizer).conversation_ids(WORLD.skills[skill](rng), WORLD.tools)
        assert sum(mask) and whole(ids, tokenizer)


def test_joined_worlds_tell_each_conversation_of_its_own_tools():
    joined, rng = WORLDS["mixed"], random.Random(7)
    tokenizer = build_tokenizer(joined.pieces())
    skills = {name: 1 for name in joined.skills if name.endswith(".repeat")} | {"assistant.look": 3}
    told = {}
    for _ in range(40):
        conversation, tools = joined.conversation(rng, skills, 0.3, ("assistant.book",))
        told.setdefault(conversation[0]["content"], set()).add(json.dumps(tools))
        ids, _ = ChatRenderer(tokenizer).conversation_ids(conversation, tools)
        assert len(ids) < 120
    assert len(told) == len(joined.worlds) and all(len(tools) == 1 for tools in told.values())
