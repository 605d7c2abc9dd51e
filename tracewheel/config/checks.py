"""What watches a run: the guard in the loop, the doctor, and the audit of graders."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from tracewheel.config.base import Count, NotNegative, Positive, Strict

CheckName = Literal[
    "held_out_use",
    "held_batches",
    "unread_logs",
    "observation_loss",
    "sampler_mismatch",
    "fidelity",
    "stale_adapter",
    "guard",
    "weak_start",
    "reward_hacking",
    "judge_drift",
    "flawed_success",
    "sandbox_findings",
    "zero_variance",
    "entropy_collapse",
    "kl_explosion",
    "length_explosion",
    "truncation",
    "invented_tools",
    "unrecorded_calls",
    "repetition",
]


class GuardConfig(Strict):
    """What the loop does when success, malformed calls, entropy, KL or gradient norm leave their band.

    It goes back to the best candidate with 0.3 times the learning rate; when no attempt is left it stops, and the best
    candidate goes on to evaluation and gate. `tracewheel.sampling.guard` has the bands.

    Attributes:
        enabled: Whether there is a guard.
        attempts: How often it goes back before it stops.
    """

    enabled: bool = True
    attempts: Annotated[int, Field(ge=0)] = 2


class Limits(NamedTuple):
    """From where a figure is a warning, and from where it is severe."""

    warn: float
    severe: float


# Shares of episodes, with these exceptions: `invented_tools` is a share of calls, `flawed_success` of successes,
# `zero_variance` of unsolved groups without a signal, `pass_at_k` of the first groups with a success, `unread_logs` of records.
# `entropy` is relative to the start, `kl` and `sampler_mismatch` are nats a token, `length` is a factor, and `fall` is how far
# validation success, or a grader, falls while the reward rises.
LIMITS: dict[str, Limits] = {
    "truncation": Limits(0.1, 0.3),
    "invented_tools": Limits(0.02, 0.1),
    "unrecorded_calls": Limits(0.1, 0.3),
    "repetition": Limits(0.1, 0.3),
    "flawed_success": Limits(0.25, 0.5),
    "zero_variance": Limits(0.5, 0.8),
    "pass_at_k": Limits(0.2, 0.05),
    "entropy": Limits(0.2, 0.05),
    "kl": Limits(0.3, 1.0),
    "sampler_mismatch": Limits(0.02, 0.1),
    "unread_logs": Limits(0.02, 0.2),
    "length": Limits(1.5, 2.5),
    "fall": Limits(0.03, 0.1),
}
FLOORS = {"pass_at_k", "entropy"}  # figures that should stay high
LimitName = Literal[
    "truncation",
    "invented_tools",
    "unrecorded_calls",
    "repetition",
    "flawed_success",
    "zero_variance",
    "pass_at_k",
    "entropy",
    "kl",
    "sampler_mismatch",
    "unread_logs",
    "length",
    "fall",
]


class DoctorConfig(Strict):
    """The doctor's checks. They do not change what a run computes.

    Attributes:
        stop_on: Checks that stop a run on a severe finding. Its state is kept: the same command resumes it once the check is
            removed from the list.
        limits: By figure, from where it is a warning and from where it is severe, as in `{truncation: [0.1, 0.3]}`; figures
            without a line keep their limits (`tracewheel/config/checks.py`).
    """

    stop_on: tuple[CheckName, ...] = ()
    limits: dict[LimitName, tuple[NotNegative, NotNegative]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _in_order(self) -> DoctorConfig:
        for name, limits in self.limits.items():
            if list(limits) != sorted(limits, reverse=name in FLOORS):
                side = "below" if name in FLOORS else "above"
                raise ValueError(f"limits.{name}: first the warning, then the severe limit, which is {side} it")
        return self

    def limit(self, name: LimitName) -> Limits:
        """The thresholds of a figure: the profile's, else the usual ones."""
        return Limits(*self.limits[name]) if name in self.limits else LIMITS[name]


class AuditConfig(Strict):
    """The audit of graders (`tracewheel audit`); `docs/audit.md` says what it tries.

    Attributes:
        tasks: How many are audited, spread over families.
        seconds: No further task is begun after so many, for verifiers that run a sandbox; what is left out is counted. A run
            whose gate asks for an audit is then not the same on a slower machine. null is no limit.
        judged_tasks: How many of the tasks judges are asked about; 0 for none. A task takes 18 requests of each vote, 31 for
            `relative_judge`.
    """

    tasks: Count = 60
    seconds: Positive | None = None
    judged_tasks: Annotated[int, Field(ge=0)] = 20
