"""Unattended retraining: when a scheduled run starts, and which batches of traces are held."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tracewheel.config.base import Count, NotNegative, Positive, Share, Strict
from tracewheel.config.notify import NotifyConfig


class ScheduleConfig(Strict):
    """When a run that a schedule or a trigger starts has enough to learn from, and is worth its cost.

    `tracewheel retrain` by hand does not ask. A scheduled run compares with what the last complete run learnt from. It
    starts when one of these holds, and then only if it is worth it:

    - `min_new_tasks` training tasks are new, or have new verified outcomes that moved their posterior. Ten are a seventh of
      a default training set of 72.
    - Success has fallen or the mix of tasks has changed, by tests that find a drift where there is none in at most a share
      0.1 of all years. A false alarm costs a run, so the share is wider than the gate's.
    - The champion is older than `max_champion_days`, and anything at all is new. null is no limit.

    It is worth it unless the upper end of the 80% interval of its expected gain is below `min_expected_gain` (0.01 is a
    point). By default none is: what a point is worth only the user knows. `cost_per_hour` and `cost_per_million_tokens`
    price a run in `currency`: the machine while it computes, and tokens of an endpoint that charges for them.

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
    min_expected_gain: Share = 0.0
    cost_per_hour: NotNegative | None = None
    cost_per_million_tokens: NotNegative | None = None
    currency: str = "EUR"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    timezone: str | None = None
    keep_runs: Count | None = 30
    wait_seconds: NotNegative = 43200.0
    notify: tuple[NotifyConfig, ...] = ()
    max_run_seconds: Positive | None = None


ScreeningCheck = Literal[
    "rewards",
    "replies",
    "quarantine",
    "judge",
    "agent",
    "duplicates",
    "future",
    "new_users",
    "user",
    "session",
    "task",
    "template",
    "conversation",
]


class ScreeningConfig(Strict):
    """Which batch of new traces is held back from training until a person releases it (`tracewheel/operations/screening.py`).

    `hold: false` only says what was found. `off` are checks that
    are left out.
    """

    hold: bool = True
    off: tuple[ScreeningCheck, ...] = ()
