"""The audit of graders: how much it tries, and what it lets pass."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tracewheel.config.base import Count, Positive, Share, Strict


class AuditConfig(Strict):
    """`tracewheel audit`; `docs/audit.md` says what it tries.

    `tasks` are audited, spread over families; `changes` is how many changed solutions of a kind are tried for each. A verifier
    fails where it accepts more than `max_false_accept` of the wrong episodes of a kind, refuses more than `max_false_reject`
    of the right ones, or does not repeat itself. No further task is begun after `seconds`, for verifiers that run a sandbox;
    what was left out is counted. A run whose gate asks for an audit is then not the same on a slower machine. `confidence` is
    that of the intervals; `examples` of each kind are kept.

    Judges are asked about `judged_tasks` of the tasks, 0 for not at all; that takes 18 requests a task of each vote, 31 for
    `relative_judge`. A judge fails where one change flips more than `max_flips` of its verdicts, or a text for the judge wins
    more than `max_false_accept` of the wrong attempts.
    """

    tasks: Count = 60
    changes: Count = 4
    seconds: Positive | None = None
    seed: int = 0
    max_false_accept: Share = 0.01
    max_false_reject: Share = 0.01
    judged_tasks: Annotated[int, Field(ge=0)] = 20
    max_flips: Share = 0.1
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95
    examples: Count = 3
