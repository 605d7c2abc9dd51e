"""The whole turn of a served policy, with Anthropic's client among those that talk to it."""

import anthropic
import pytest

from tests.flows.conftest import profile  # noqa: F401
from tests.flows.test_served_turn import (  # noqa: F401
    KEY,
    TURNS,
    World,
    by_http,
    by_openai,
    served_profile,
    tasks,
    test_serve_feedback_a_day_later_retrain_promote_and_serve_again,
)


def by_anthropic(server, task):
    """Anthropic's client, as `by_openai`."""
    world, answered = World(task), None
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in (tool["function"] for tool in world.tools)
    ]
    system, messages = world.messages[0]["content"], world.messages[1:]
    with anthropic.Anthropic(base_url=server.url(), api_key=KEY, max_retries=0) as client:
        for _ in range(TURNS):
            try:
                answer = client.messages.create(
                    model="policy", max_tokens=400, system=system, messages=messages, tools=tools, metadata={"user_id": "bob"}
                )
            except anthropic.BadRequestError:
                break
            answered = answer.id
            results = [
                {"type": "tool_result", "tool_use_id": one.id, "content": world.reply(one.name, one.input)}
                for one in answer.content
                if one.type == "tool_use"
            ]
            messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
            if world.done or not results:
                break
    return answered, world.outcome()


@pytest.fixture
def programs():
    return [by_openai, by_anthropic, by_http]
