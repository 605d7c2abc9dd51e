"""What watches a run (guard, doctor, audit), and unattended retraining: when a run starts, what it holds back, who is told."""

from __future__ import annotations

import os
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from tracewheel.config.base import Count, NotNegative, Positive, Share, Strict
from tracewheel.core.errors import ConfigError

Happening = Literal["failed", "crashed", "stopped", "refused", "held", "awaiting", "promoted", "skipped"]
HELD_EVENT = "tracewheel.batch.held"
WHAT_NEEDS_A_PERSON: tuple[Happening, ...] = ("failed", "crashed", "held", "awaiting")


def _address(url: SecretStr) -> SecretStr:
    parts = urlsplit(url.get_secret_value())
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("give an address as in https://host/path")
    return url


class NotifyConfig(Strict):
    """A webhook that Prefect calls: `url`, or the environment variable `url_env` that holds it. An address is kept secret.

    `on` names the ends of a run that are told; the default is what needs a person. `overdue_days` tells when no run was
    complete for so many days.
    """

    url: Annotated[SecretStr, AfterValidator(_address)] | None = None
    url_env: str | None = None
    on: tuple[Happening, ...] = WHAT_NEEDS_A_PERSON
    overdue_days: Annotated[Positive, Field(le=366)] | None = None

    @model_validator(mode="after")
    def _check(self) -> NotifyConfig:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("give either url or url_env, the environment variable that holds it")
        if not self.on and self.overdue_days is None:
            raise ValueError("tells nothing: name ends in on, or set overdue_days")
        return self

    def address(self) -> str:
        """The address; a secret.

        Raises:
            ConfigError: the environment variable is not set, or holds no address.
        """
        if self.url is not None:
            return self.url.get_secret_value()
        assert self.url_env is not None
        try:
            return _address(SecretStr(os.environ[self.url_env])).get_secret_value()
        except KeyError as error:
            raise ConfigError(f"schedule.notify.url_env: the environment variable {self.url_env} is not set") from error
        except ValueError as error:
            raise ConfigError(f"schedule.notify.url_env: {self.url_env} holds no address: {error}") from error


CheckName = Literal[
    "held_out_use",
    "held_batches",
    "unread_logs",
    "observation_loss",
    "sampler_mismatch",
    "broken_programs",
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
            without a line keep their limits (`tracewheel/config/operations.py`).
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
    """The audit of graders (`tracewheel audit`); `plugins/graders/docs/audit.md` says what it tries.

    Attributes:
        tasks: How many are audited, spread over families.
        seconds: No further task is begun after so many, for verifiers that run a sandbox; what is left out is counted. A run
            whose gate asks for an audit is then not the same on a slower machine. null is no limit.
        judged_tasks: How many of the tasks judges are asked about; 0 for none. A task takes 18 requests of each vote, 31 for
            `relative_judge`.
        max_idle_reward: The share of the full reward that an episode without any work may earn under the rubric that is
            trained on. 0.3 leaves room for the form of an answer, which is worth something; above it a policy learns to
            leave things as they are.
    """

    tasks: Count = 60
    seconds: Positive | None = None
    judged_tasks: Annotated[int, Field(ge=0)] = 20
    max_idle_reward: Share = 0.3


class ScheduleConfig(Strict):
    """When a run that a schedule or a trigger starts has enough to learn from.

    `tracewheel retrain` by hand does not ask. A scheduled run compares with what the last complete run learnt from. It
    starts when one of these holds:

    - `min_new_tasks` training tasks are new, or have new verified outcomes that moved their posterior. Ten are a seventh of
      a default training set of 72.
    - Success has fallen or the mix of tasks has changed, by tests that find a drift where there is none in at most a share
      0.1 of all years. A false alarm costs a run, so the share is wider than the gate's.
    - The champion is older than `max_champion_days`, and anything at all is new. null is no limit.

    `cost_per_hour` and `cost_per_million_tokens` price a run in `currency`: the machine while it computes, and tokens of an
    endpoint that charges for them.

    `port` is where the Prefect server of `tracewheel deploy` listens; without it, where it listened last. `timezone` is an
    IANA name, and that of a cron schedule. A scheduled run waits up to `wait_seconds` for another that works on the same
    champion, and is skipped then: half a day, as after a whole one the next night's run is due. `notify` says who is told how
    runs end.

    After a scheduled run the store keeps what the last `keep_runs` complete runs need, the champion's, and what the next run
    begins with; the rest is freed, as `tracewheel runs gc` does. 30 is a month of nights to look back on; null frees nothing.

    A scheduled run that takes longer than `max_run_seconds` stops at the next safe point, as
    TimedOut; the next tick resumes it. null is no limit, because how long a run takes depends on the model.
    """

    min_new_tasks: Annotated[int, Field(ge=0)] = 10
    max_champion_days: Positive | None = 30.0
    cost_per_hour: NotNegative | None = None
    cost_per_million_tokens: NotNegative | None = None
    currency: str = "EUR"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    timezone: str | None = None
    keep_runs: Count | None = 30
    wait_seconds: NotNegative = 43200.0
    notify: tuple[NotifyConfig, ...] = ()
    max_run_seconds: Positive | None = None
