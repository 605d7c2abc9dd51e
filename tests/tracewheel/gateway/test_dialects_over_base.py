"""The tiny base behind the door: an episode has the same tokens as the built-in loop's."""

import functools
import json

import openai
import pytest

from tracewheel.environments import make_environment, opening_messages
from tracewheel.gateway.gateway import StandingDoor
from tracewheel.gateway.live_episode import Draw
from tracewheel.gateway.server import GatewayServer
from tracewheel.rollout.rollout import episode_seed

TURNS = 20
KEY = "a key of thirty-two characters, or so"


class World:
    """An environment that answers calls until it is done."""

    def __init__(self, task):
        self.environment = make_environment(task.environment)
        self.environment.reset(task)
        self.opening, self.tools = opening_messages(self.environment, task), self.environment.tools()

    def carry_out(self, calls):
        """The replies to calls as (id, text), None where one of them ended the episode. Calls are ids, names, arguments."""
        replies = []
        for identity, name, arguments in calls:
            observation = self.environment.step(name, arguments)
            if observation.done:
                return None
            replies.append((identity, observation.text))
        return replies


def by_chat(server, episode, task, stream=False):
    world = World(task)
    messages = list(world.opening)
    with openai.OpenAI(base_url=server.openai_url(str(episode.number)), api_key=episode.key) as client:
        for _ in range(TURNS):
            asked = {"model": "policy", "messages": messages, "tools": world.tools}
            if stream:
                with client.chat.completions.stream(**asked) as chunks:
                    message = chunks.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**asked).choices[0].message
            messages.append(message)
            made = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
            if not (replies := world.carry_out(made)):
                return
            messages += ({"role": "tool", "tool_call_id": one, "content": text} for one, text in replies)


@pytest.fixture
def agents():
    """Who plays the same episode; the wheel of dialects has its own."""
    return [by_chat]


def test_an_episode_is_the_same_in_every_dialect(gateway, tasks, plain_agent, together, agents):
    seeds = [(task, episode_seed(3, task, 0)) for task in tasks[:2]]
    expected = [(gateway.open(Draw(seed, 1.0)), task) for task, seed in seeds]
    together(*(plain_agent(functools.partial(gateway.answer, episode.key), task) for episode, task in expected))
    records = [episode.record() for episode, _ in expected]
    assert sum(len(record.turns) for record in records) > 4
    with GatewayServer(gateway) as server:
        for agent in agents:
            for stream in (False, True):
                for (task, seed), record in zip(seeds, records, strict=True):
                    episode = gateway.open(Draw(seed, 1.0))
                    agent(server, episode, task, stream)
                    found = episode.record()
                    assert found.token_ids == record.token_ids
                    assert (found.logprobs, found.action_mask) == (record.logprobs, record.action_mask)
                    assert (found.messages, found.branches) == (record.messages, [])


@pytest.fixture
def standing(gateway):
    """A server of a door that stays open, for two conversations at once."""
    with GatewayServer(StandingDoor(gateway, KEY, most=2)) as server:
        yield server


def test_a_door_that_stays_open(standing, gateway, tasks):
    world = World(tasks[0])
    asked = {"model": "policy", "messages": world.opening, "tools": world.tools, "max_tokens": 24}
    with openai.OpenAI(base_url=standing.openai_url(), api_key=KEY, max_retries=0) as client:
        first = client.chat.completions.create(**asked, temperature=0, logprobs=True)
        again = client.chat.completions.create(**asked, temperature=0, logprobs=True)
        assert again.choices[0].message.content == first.choices[0].message.content
        assert all(one.logprob <= 0 for one in (first.choices[0].logprobs.content if first.choices[0].logprobs else ()))
        assert first.usage.prompt_tokens == again.usage.prompt_tokens > first.usage.completion_tokens
        history = [*world.opening, {"role": "assistant", "content": "I looked."}, {"role": "user", "content": "And?"}]
        for number in range(3):
            other = [*history, {"role": "user", "content": str(number)}]
            client.chat.completions.create(**{**asked, "messages": [{"role": "user", "content": f"{number}"}, *other[1:]]})
        assert len(gateway._episodes) == 2
        with pytest.raises(openai.BadRequestError) as error:
            client.chat.completions.create(**{**asked, "messages": [{"role": "user", "content": "word " * 500}]})
        assert error.value.code == "context_length_exceeded"
    other = openai.OpenAI(base_url=standing.openai_url("any"), api_key="another key", max_retries=0)
    with other as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_names_of_episodes_are_free_at_a_door_that_stays_open(standing):
    with openai.OpenAI(base_url=standing.openai_url("run-7"), api_key=KEY, max_retries=0) as client:
        answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}], max_tokens=5)
    assert answer.usage.completion_tokens <= 5
