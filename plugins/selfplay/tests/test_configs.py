"""The shipped profile parses, and asks of the challenger what a proposal needs."""

from pathlib import Path

from tracewheel import load_config
from tracewheel_selfplay.self_play import PROPOSAL_TOKENS, TURN_TOKENS


def test_the_challengers_profile():
    config = load_config(Path(__file__).parents[1] / "configs" / "challenger.yaml")
    assert config.rollout.max_tokens >= PROPOSAL_TOKENS and config.rollout.max_turn_tokens >= TURN_TOKENS
    assert (config.warm_start.weights, config.learner.weights) == ("full", "full")
