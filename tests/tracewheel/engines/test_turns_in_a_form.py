"""Turns that a grammar holds, in every engine: equal tokens, and the log-probabilities among what it allows."""

import json

import jsonschema
import pytest
import torch

from tracewheel.chat.grammar import GrammarState
from tracewheel.engines.base import Request, Sampling
from tracewheel.gateway.answer_form import begun
from tracewheel.gateway.exchange import AnswerForm, ChatRequest
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.allowed_tokens import with_masks

SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 99}, "colour": {"enum": ["red", "blue"]}},
    "required": ["count", "colour"],
    "additionalProperties": False,
}
COUNT, BUDGET, TEMPERATURE = 8, 60, 0.8


@pytest.fixture(
    scope="module", params=["transformers", *(pytest.param(n, marks=pytest.mark.vllm) for n in ("vllm", "vllm_server"))]
)
def kind(request, kind_of):
    return kind_of(request.param)


@pytest.fixture
def form(renderer):
    """Makes the beginning of a turn in the form."""
    request = ChatRequest([{"role": "user", "content": "hi"}], form=AnswerForm(json.dumps(SCHEMA), "response_format"))
    return lambda: begun(renderer, request)


@pytest.fixture
def started(versions, renderer, form):
    """Starts the turns of an engine's sessions; every other is held to the form."""

    def start(kind):
        engine = kind.engine(versions.policy(1), Sampling(TEMPERATURE), stop=renderer.end_of_turn_ids)
        for n, ids in kind.openings(COUNT).items():
            engine.submit(Request(n, list(ids), BUDGET, seed=n, grammar=None if n % 2 else form()))
        return engine

    return start


def fresh(versions, renderer, grammar, opening, said):
    """The trainer's log-probabilities of a held turn, from its own logits and the masks of the grammar run again."""
    ids = [*opening, *said]
    versions.logprobs(1, ids)
    with torch.no_grad():
        logits = versions.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, len(opening) - 1 : -1]
    bits = torch.stack([torch.from_numpy(mask.copy()) for mask in renderer.grammars.masks(grammar, said)])
    masked = with_masks(logits.float(), range(len(said)), bits)
    return torch.log_softmax(masked / TEMPERATURE, -1).gather(1, torch.tensor(said)[:, None])[:, 0].tolist()


def test_a_held_turn_is_valid_and_its_logprobs_are_those_among_the_allowed(kind, started, versions, renderer, form):
    turns, openings = kind.finish(started(kind), COUNT), kind.openings(COUNT)
    assert kind.engine(versions.policy(1)).CONSTRAINS
    for n, turn in turns.items():
        if n % 2:  # beside held ones, the others are free
            assert versions.worst_difference(openings[n], turn, TEMPERATURE) < 1e-4
            continue
        assert turn.ended_by == "stop"
        jsonschema.validate(json.loads(renderer.decode(turn.token_ids[:-1])), SCHEMA)
        assert turn.logprobs == pytest.approx(fresh(versions, renderer, form().grammar, openings[n], turn.token_ids), abs=1e-4)
        assert versions.worst_difference(openings[n], turn, TEMPERATURE) > 1.0, "among all tokens it has others"


def test_held_turns_are_those_of_the_transformers_engine(kind, kind_of, started):
    first, other = (each.finish(started(each), COUNT) for each in (kind_of("transformers"), kind))
    assert sum(first[n].token_ids == other[n].token_ids for n in first) >= COUNT - 1  # rounding may tip a token


def test_a_held_turn_that_is_interrupted_goes_on_in_its_form(kind, started, versions):
    if kind.name == "vllm_server":
        pytest.skip("a server ends such short turns before they can be interrupted")
    whole, engine = kind.finish(started(kind), COUNT), started(kind)
    turns = {each.session: each for _ in range(5) for each in engine.step()}
    policy = versions.policy(1)
    engine.update_weights(PolicyRef(policy.base, policy.adapter, 8))
    turns |= kind.finish(engine, COUNT - len(turns))
    assert any(set(turn.versions) == {1, 8} for n, turn in turns.items() if n % 2 == 0)
    assert sum(turns[n].token_ids == whole[n].token_ids for n in whole) >= COUNT - 1


def test_a_turn_whose_grammar_says_no_more_ends_there(kind, started, monkeypatch):
    """Its tokens count, and none is added that nobody drew."""
    if kind.name == "vllm_server":
        pytest.skip("the limits are another process's")
    whole, take = kind.finish(started(kind), COUNT), GrammarState.take

    def takes_four(state, token):
        take(state, token)
        state.taken = getattr(state, "taken", 0) + 1
        state.failed = state.failed or ("too much work" if state.taken >= 4 else "")

    monkeypatch.setattr(GrammarState, "take", takes_four)
    for n, turn in kind.finish(started(kind), COUNT).items():
        cut = n % 2 == 0
        assert turn.token_ids == whole[n].token_ids[: 4 if cut else None]
        assert len(turn.logprobs) == len(turn.versions) == len(turn.token_ids) and max(turn.logprobs) <= 0
        assert not cut or turn.ended_by == "length"
