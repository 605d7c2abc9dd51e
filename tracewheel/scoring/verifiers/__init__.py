"""Verifiers by name: built in, or `module:Class` for your own."""

from __future__ import annotations

from tracewheel.core.kinds import build, parse_kind
from tracewheel.scoring.verifiers.base import (
    AnyVerifier,
    EpisodeVerifier,
    GradedVerifier,
    Verifier,
    state_progress,
    verdict_of,
)
from tracewheel.scoring.verifiers.episode import Episode, EpisodeCall, Verdict, episode_from, episode_of
from tracewheel.scoring.verifiers.order_desk import OrderDeskVerifier
from tracewheel.scoring.verifiers.recorded import RecordedVerifier
from tracewheel.scoring.verifiers.refund_desk import RefundDeskVerifier
from tracewheel.scoring.verifiers.verdict import VerdictVerifier
from tracewheel.scoring.verifiers.workspace import WorkspaceVerifier

VERIFIERS: dict[str, type] = {
    verifier.kind: verifier
    for verifier in (OrderDeskVerifier, RecordedVerifier, RefundDeskVerifier, VerdictVerifier, WorkspaceVerifier)
}

__all__ = [
    "VERIFIERS",
    "AnyVerifier",
    "Episode",
    "EpisodeCall",
    "EpisodeVerifier",
    "GradedVerifier",
    "Verdict",
    "Verifier",
    "episode_from",
    "episode_of",
    "make_verifier",
    "state_progress",
    "verdict_of",
]


def make_verifier(kind: str) -> AnyVerifier:
    """Make a verifier: a built-in name, or `module:Class` for your own, with arguments as in `core.kinds`.

    Raises:
        ConfigError: there is no such verifier, or it does not take the arguments.
    """
    verifier: AnyVerifier = build(parse_kind(kind), VERIFIERS, "verifier")
    return verifier
