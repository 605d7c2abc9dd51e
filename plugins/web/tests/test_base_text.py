"""What a tiny base reads of the web, and the habits of the agent whose logs it learns from."""

import importlib.util
import json
import random

import pytest

from tracewheel_web.miniwob.agents import AGENTS
from tracewheel_web.miniwob.base_text import SKILLS, WORLD, complete
from tracewheel_web.miniwob.environment import SYSTEM_PROMPT
from tracewheel_web.miniwob.logs import HABITS, HELD_OUT_PAGES, Faced, solution
from tracewheel_web.miniwob.paper import PAGES, Paper, played
from tracewheel_web.page import View
from tracewheel_web.scripted import Seen

pytestmark = pytest.mark.skipif(importlib.util.find_spec("miniwob") is None, reason="`make setup-web` installs the pages")


def made(name, seed):
    return PAGES[name](random.Random(f"{name}-{seed}"), Paper(SYSTEM_PROMPT))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_on_paper_asks_for_what_the_real_pages_agent_does(name):
    for seed in range(30):
        asked, page, calls = made(name, seed)
        assert solution(AGENTS[name][1], Seen(asked, View(tuple(page.items)))) == calls, (asked, page.items)


@pytest.mark.parametrize("name", PAGES)
def test_a_habit_is_wrong_in_most_cases_and_right_in_some_or_kept_by_its_rate(name):
    fault, rate = HABITS[name]
    wrong = 0
    for seed in range(60):
        asked, page, calls = made(name, seed)
        wrong += fault(Faced(asked, tuple(page.items), calls)) != calls
    assert 0.1 < rate * wrong / 60 < 0.85


def test_no_text_is_of_the_pages_held_out():
    assert not {*HELD_OUT_PAGES} & PAGES.keys() and {*HELD_OUT_PAGES} <= AGENTS.keys() and PAGES.keys() == HABITS.keys()


def test_an_episode_repeats_no_line_and_says_what_each_call_changed():
    asked, page, calls = made("login-user", 0)
    messages = played(page, asked, calls)
    assert [message["role"] for message in messages] == ["system", "user", *["assistant", "tool"] * 2, "assistant"]
    user = json.loads(messages[2]["tool_calls"][0]["function"]["arguments"])["text"]
    assert messages[3]["content"] == f'1 textbox = "{user}"\n(the rest as before)'
    assert messages[5]["content"].startswith('2 textbox = "•')


def test_episodes_are_short_in_the_bases_own_tokens():
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel_projects import build_tokenizer

    renderer, rng = ChatRenderer(build_tokenizer(WORLD.pieces())), random.Random(0)
    texts = [*(make(rng) for make in SKILLS.values()), *(complete(rng, (name,)) for name in PAGES)]
    lengths = [len(renderer.conversation_ids(text, WORLD.tools)[0]) for text in texts]
    assert max(lengths) < 260 and sum(lengths) / len(lengths) < 110
