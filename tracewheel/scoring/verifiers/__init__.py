"""Verifiers by name: built in, or `module:Class` for your own."""

from __future__ import annotations

from tracewheel.core.kinds import build, check_reach, parse_kind
from tracewheel.scoring.verifiers.answer_match import AnswerMatchVerifier
from tracewheel.scoring.verifiers.assistant import AssistantVerifier
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
from tracewheel.scoring.verifiers.budget import BudgetVerifier
from tracewheel.scoring.verifiers.check_script import CheckScriptVerifier
from tracewheel.scoring.verifiers.episode import Episode, EpisodeCall, Verdict, episode_from, episode_of
from tracewheel.scoring.verifiers.exact_match import ExactMatchVerifier
from tracewheel.scoring.verifiers.final_files import FinalFilesVerifier
from tracewheel.scoring.verifiers.format import FormatVerifier
from tracewheel.scoring.verifiers.harbor import HarborVerifier
from tracewheel.scoring.verifiers.json_equal import JsonEqualVerifier
from tracewheel.scoring.verifiers.judges.judge import JudgeVerifier
from tracewheel.scoring.verifiers.judges.relative import RelativeJudgeVerifier
from tracewheel.scoring.verifiers.length import LengthVerifier
from tracewheel.scoring.verifiers.math import MathVerifier
from tracewheel.scoring.verifiers.order_desk import OrderDeskVerifier
from tracewheel.scoring.verifiers.patch_tests import PatchTestsVerifier
from tracewheel.scoring.verifiers.process_checks import ProcessChecksVerifier
from tracewheel.scoring.verifiers.recorded import RecordedVerifier
from tracewheel.scoring.verifiers.refund_desk import RefundDeskVerifier
from tracewheel.scoring.verifiers.regex import RegexVerifier
from tracewheel.scoring.verifiers.reward_model import RewardModelVerifier
from tracewheel.scoring.verifiers.sql_result import SqlResultVerifier
from tracewheel.scoring.verifiers.state_diff import StateDiffVerifier
from tracewheel.scoring.verifiers.tool_use import ToolUseVerifier
from tracewheel.scoring.verifiers.unit_tests import UnitTestsVerifier
from tracewheel.scoring.verifiers.verdict import VerdictVerifier
from tracewheel.scoring.verifiers.workspace import WorkspaceVerifier

VERIFIERS: dict[str, type] = {
    verifier.kind: verifier
    for verifier in (
        AnswerMatchVerifier,
        AssistantVerifier,
        BudgetVerifier,
        CheckScriptVerifier,
        ExactMatchVerifier,
        FinalFilesVerifier,
        FormatVerifier,
        JsonEqualVerifier,
        JudgeVerifier,
        LengthVerifier,
        MathVerifier,
        HarborVerifier,
        OrderDeskVerifier,
        PatchTestsVerifier,
        ProcessChecksVerifier,
        RecordedVerifier,
        RefundDeskVerifier,
        RegexVerifier,
        SqlResultVerifier,
        StateDiffVerifier,
        ToolUseVerifier,
        UnitTestsVerifier,
        RelativeJudgeVerifier,
        RewardModelVerifier,
        VerdictVerifier,
        WorkspaceVerifier,
    )
}

__all__ = [
    "VERIFIERS",
    "AnyVerifier",
    "Episode",
    "EpisodeCall",
    "EpisodeVerifier",
    "GradedVerifier",
    "GroupVerifier",
    "Verdict",
    "Verifier",
    "checked",
    "episode_from",
    "episode_of",
    "make_verifier",
    "state_progress",
    "verdict_of",
]


def make_verifier(kind: str) -> AnyVerifier:
    """Make a verifier: a built-in name, or `module:Class` for your own, with arguments as in `core.kinds`.

    `kind` may come from data: of kinds that are not built in, or that reach beyond their arguments, those that the user named
    are made (`core.given_kinds`).

    Raises:
        ConfigError: there is no such verifier, it does not take the arguments, or only data names it.
    """
    check_reach(kind, VERIFIERS, "verifier")
    verifier: AnyVerifier = build(parse_kind(kind), VERIFIERS, "verifier")
    return verifier
