"""Drawing tokens from a session's own random numbers."""

import pytest

from tracewheel.chat.grammar import Grammar
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.draws import CUT, Draws
from tracewheel.engines.vllm_base import Session

HELD = Draws(7, grammar="start: /a+/", grammar_stops=(3, 5), said=(1, 2))


def test_skip_continues_the_sequence():
    whole = Draws(seed=7).uniforms(700)
    assert whole[:300] + Draws(seed=7, skip=300).uniforms(400) == whole
    assert Draws(seed=8).uniforms(3) != whole[:3]


def test_random_numbers_are_those_of_the_transformers_engine():
    import numpy as np

    from tracewheel.engines.ragged_session import RaggedSession

    session = RaggedSession(0, 0, np.random.default_rng(11), 1.0)
    assert [session.next_uniform() for _ in range(600)] == Draws(seed=11).uniforms(600)


@pytest.mark.parametrize("draws", [Draws(), Draws(2**59 + 1, 40, 1.2, 0.9, True), Draws(forced=(3, 1, 2)), HELD])
def test_draws_survive_the_round_trip_to_vllm(draws):
    assert Draws.of({**draws.extra_args(), "something": "else"}) == draws


def test_a_request_without_draws_has_none_and_invalid_ones_are_refused():
    assert Draws.of(None) is None
    assert Draws.of({"something": "else"}) is None
    for wrong in ({"draw_seed": "1"}, {**Draws().extra_args(), "draw_luck": 1}, {**Draws().extra_args(), "draw_skip": "many"}):
        with pytest.raises(ValueError):
            Draws.of(wrong)


def test_a_stop_that_nobody_drew_is_no_token_of_the_turn(renderer):
    """The turn must end with some token in vLLM where its grammar says no more; the turn then ends by its length."""
    grammar = renderer.grammars.start(Grammar("start: /a+/", (renderer.end_of_turn_id,)))
    session = Session.open(Request(0, [8, 9], 40, seed=7), Sampling())
    session.begin_turn(Request(0, [8, 9], 40, grammar=grammar))
    session.extend([1, 2], [-0.5, -1.5], 4)
    draws = session.rest_of_turn(Sampling(), frozenset({renderer.end_of_turn_id})).draws
    assert (draws.skip, draws.said, draws.grammar) == (2, (1, 2), "start: /a+/")
    session.extend([4, renderer.end_of_turn_id], [-0.25, CUT], 5)
    assert session.tokens_left == 0 and session.drawn == 3 and session.ids == [8, 9, 1, 2, 4]
    turn = session.generation(frozenset({renderer.end_of_turn_id}))
    assert (turn.token_ids, turn.logprobs, turn.versions, turn.ended_by) == (
        [1, 2, 4],
        [-0.5, -1.5, -0.25],
        [4, 4, 5],
        "length",
    )
    session.begin_turn(Request(0, [6], 40))
    assert session.tokens_left == 40 and not session.rest_of_turn(Sampling(), frozenset()).draws.grammar
