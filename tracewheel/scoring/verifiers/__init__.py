"""Verifiers by name: built in, or `module:Class` for your own."""

from __future__ import annotations

from tracewheel.core.kind_table import OWN_CLASS, KindTable
from tracewheel.core.kinds import build, check_reach, parse_kind
from tracewheel.core.own_code import guard
from tracewheel.scoring.verifiers.base import (
    AnyVerifier,
    EpisodeVerifier,
    GradedVerifier,
    GroupVerifier,
    Verifier,
    checked,
    state_progress,
    verdict_of,
)
from tracewheel.scoring.verifiers.episode import Episode, EpisodeCall, Verdict, episode_from, episode_of
from tracewheel.scoring.verifiers.returns import CHECKS

VERIFIERS = KindTable(
    "tracewheel.verifiers",
    {
        "answer_match": "tracewheel.scoring.verifiers.exact_match:AnswerMatchVerifier",
        "exact_match": "tracewheel.scoring.verifiers.exact_match:ExactMatchVerifier",
        "format": "tracewheel.scoring.verifiers.format:FormatVerifier",
        "order_desk": "tracewheel.scoring.verifiers.order_desk:OrderDeskVerifier",
        "recorded": "tracewheel.scoring.verifiers.recorded:RecordedVerifier",
        "refund_desk": "tracewheel.scoring.verifiers.refund_desk:RefundDeskVerifier",
        "regex": "tracewheel.scoring.verifiers.format:RegexVerifier",
        "state_diff": "tracewheel.scoring.verifiers.state_diff:StateDiffVerifier",
        "tool_use": "tracewheel.scoring.verifiers.tool_use:ToolUseVerifier",
        "verdict": "tracewheel.scoring.verifiers.verdict:VerdictVerifier",
        "workspace": "tracewheel.scoring.verifiers.workspace:WorkspaceVerifier",
    },
)


def make_verifier(kind: str) -> AnyVerifier:
    """Make a verifier: a built-in name, or `module:Class` for your own, with arguments as in `core.kinds`.

    `kind` may come from data: of kinds that are not built in, or that reach beyond their arguments, those that the user named
    are made (`core.kind_table`).

    Raises:
        ConfigError: there is no such verifier, it does not take the arguments, or only data names it.
    """
    check_reach(kind, VERIFIERS, "verifier")
    wanted = parse_kind(kind)
    verifier: AnyVerifier = build(wanted, VERIFIERS, "verifier")
    if OWN_CLASS.fullmatch(wanted.kind):
        guard(verifier, wanted.kind, "verifier", CHECKS)
    return verifier
