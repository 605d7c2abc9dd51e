"""Answers in the form of a schema: they are valid, and a learner finds again what they were drawn from."""

import asyncio
import json

import jsonschema
import numpy as np
import openai
import pandas as pd
import pytest

from tracewheel.chat.formats.base import THINK_CLOSE, THINK_OPEN
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.errors import DataError
from tracewheel.core.types import canonical_json
from tracewheel.gateway.answer_form import begun
from tracewheel.gateway.exchange import AnswerForm, ChatRequest, Refusal
from tracewheel.gateway.live_episode import Draw
from tracewheel.gateway.server import GatewayServer
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.turn_masks import with_masks
from tracewheel.policy.loading import load_base

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "colour": {"enum": ["red", "blue"]},
        "words": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2},
    },
    "required": ["count", "colour", "words"],
    "additionalProperties": False,
}
USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {"what": {}}}}}
ROOM = {"max_turn_tokens": 128, "max_tokens": 1000}


def form(schema=SCHEMA):
    return AnswerForm(json.dumps(schema), "response_format.json_schema.schema")


@pytest.fixture
def server(gateway, limits):
    gateway._config = limits.model_copy(update=ROOM)
    with GatewayServer(gateway) as server:
        yield server


def by_chat(server, episode):
    with openai.OpenAI(base_url=server.openai_url(str(episode.number)), api_key=episode.key) as client:
        given = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
        asked = {"model": "policy", "messages": USER, "response_format": given}
        yield client.chat.completions.create(**asked).choices[0].message.content
        yield "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**asked, stream=True))


@pytest.fixture
def dialect():
    """Who asks; the wheel of dialects has its own."""
    return by_chat


def test_every_answer_is_valid(server, gateway, dialect):
    episode = gateway.open(Draw(7, 1.0))
    for text in dialect(server, episode):
        jsonschema.validate(json.loads(text), SCHEMA)
    record = episode.record()
    assert record.turns[0]["grammar"] in record.grammars
    assert not any(name.startswith("dropped") for name in record.requests)


def played(gateway, limits, turns=3):
    """Trajectory rows of an episode whose history parts: some turns are held to a grammar, one is not."""
    gateway._config = limits.model_copy(update=ROOM)
    episode = gateway.open(Draw(11, 0.7))

    def ask(messages, given):
        return asyncio.run(gateway.answer(episode.key, ChatRequest(messages, form=given))).message

    first = ask(USER, form())
    ask([*USER, first, {"role": "user", "content": "again"}], form())
    ask([*USER, first, {"role": "user", "content": "and freely"}], None)
    ask([{"role": "user", "content": "another"}], form({"type": "object", "maxProperties": 0}))
    told = episode.record()
    row = {"id": "played", "token_ids": told.token_ids, "action_mask": told.action_mask, "logprobs": told.logprobs}
    columns = ("turns", "forks", "grammars")
    return pd.DataFrame([row | {name: canonical_json(getattr(told, name)) for name in columns} | {"temperature": 0.7}])


@pytest.mark.parametrize("layout", ["padded", "packed", "shared_prefix"])
def test_a_learner_finds_the_distribution_again(gateway, limits, config, base, layout):
    rows, model = played(gateway, limits), load_base(config.policy, base)  # not the engine's: its attention is another
    twice = pd.concat([rows, rows], ignore_index=True)
    stored = np.array(rows["logprobs"][0])
    (batch,) = micro_batches(with_masks(twice, base), [0.0, 0.0], 10_000, layout=layout)
    assert json.loads(rows["forks"][0])
    for scored in action_logprobs(model, batch, layout=layout)[0].detach().numpy():
        np.testing.assert_allclose(scored[: len(stored)], stored, atol=5e-5)
    (free,) = micro_batches(rows, [0.0], 10_000, layout=layout)
    assert np.abs(action_logprobs(model, free, layout=layout)[0].detach().numpy()[0] - stored).max() > 1.0


def test_a_turn_of_another_grammar_is_an_error(gateway, limits, base):
    rows = played(gateway, limits)
    turns = json.loads(rows["turns"][0])
    turns[0]["grammar"] = turns[3]["grammar"]
    with pytest.raises(DataError, match="trajectory played: the turn at token"):
        with_masks(rows.assign(turns=[canonical_json(turns)]), base)


REFUSED = [
    ({"properties": {"a": {"not": {}}}}, "properties.a.not"),
    ({"properties": {"a": {"anyOf": [{"$ref": "https://example.com/a"}]}}}, "properties.a.anyOf.0.$ref"),
    ({"properties": {"a": {"type": "string", "pattern": "(?=a)b"}}}, "properties.a.pattern"),
    ({"$ref": "#"}, None),
    ({"enum": [str(number) for number in range(50_000)]}, None),
]


@pytest.mark.parametrize(("schema", "place"), REFUSED)
def test_a_schema_that_nobody_can_hold_to_is_refused_by_its_field(gateway, schema, place):
    with pytest.raises(Refusal) as refused:
        asyncio.run(gateway.answer(gateway.open(Draw()).key, ChatRequest(USER, form=form(schema))))
    wanted = ".".join(filter(None, ["response_format.json_schema.schema", place]))
    assert (refused.value.status, refused.value.param) == (400, wanted)


def test_a_mask_that_takes_too_much_work_ends_the_turn(gateway):
    heavy = {"type": "string", "pattern": "(.*a.{200})|(.*[b-z].{300})"}
    episode = gateway.open(Draw(5, 1.0))
    reply = asyncio.run(gateway.answer(episode.key, ChatRequest(USER, form=form(heavy))))
    assert reply.finish_reason == "length"
    assert asyncio.run(gateway.answer(episode.key, ChatRequest(USER, form=form()))).message["content"].startswith("{")


def test_an_engine_without_grammars_and_a_prefill_are_refused(talk_with, renderer, gateway):
    with pytest.raises(Refusal, match=r"rollout\.engine"):
        talk_with(renderer, "{}").ask(USER, form=form())
    with pytest.raises(Refusal, match="cannot begin with words of yours"):
        asyncio.run(gateway.answer(gateway.open(Draw()).key, ChatRequest(USER, prefill="{", form=form())))


def accepted(renderer, text, **more):
    """Whether a turn may say a text, and nothing after it."""
    state = begun(renderer, ChatRequest(USER, form=form(), **more))
    ids = renderer.tokenizer.encode(text, add_special_tokens=False)
    return all(
        state.bits[token // 32] >> token % 32 & 1 and state.take(token) is None for token in [*ids, renderer.end_of_turn_id]
    )


ANSWER = '{"count": 3, "colour": "red", "words": []}'
CALL = '<tool_call>\n{"name": "find", "arguments": {"what": 1}}\n</tool_call>'


def test_what_a_turn_may_say(renderer):
    assert accepted(renderer, ANSWER)
    assert not any(accepted(renderer, text) for text in ("hi", f"{ANSWER} so", '{"count": 3}', CALL))
    assert accepted(renderer, CALL, tools=[TOOL]) and accepted(renderer, ANSWER, tools=[TOOL])
    assert not accepted(renderer, f"so {CALL}", tools=[TOOL])
    assert begun(renderer, ChatRequest(USER, [TOOL], must_call=True, form=form())) is None


@pytest.mark.slow  # the library reads a vocabulary of 150,000 for ten seconds
def test_a_turn_may_think_first(renderer, real_tokenizer):
    thoughtful = ChatRenderer(real_tokenizer("qwen3"))
    thought = f"{THINK_OPEN}\nred {{\n{THINK_CLOSE}\n\n"
    assert accepted(thoughtful, thought + ANSWER) and accepted(thoughtful, ANSWER)
    assert not accepted(thoughtful, thought) and not accepted(renderer, thought + ANSWER)
    silent = ChatRenderer(real_tokenizer("qwen3"), "hermes", {"enable_thinking": False})
    assert accepted(silent, ANSWER) and not accepted(silent, thought + ANSWER)
