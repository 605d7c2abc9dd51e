"""Judges episodes in a process of its own, whose clock is half a week ahead: `python -m` this module, JSON in and out."""

from __future__ import annotations

import datetime
import json
import sys
import time

AHEAD = datetime.timedelta(days=3, hours=11, minutes=17, seconds=5, milliseconds=501)


def shift_clock() -> None:
    """Set the clocks of this process's Python ahead, for modules that are imported later."""
    real, seconds, nanoseconds = datetime.datetime, time.time, time.time_ns

    class Later(real):  # type: ignore[misc, valid-type]  # the class, under the name that others import
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return real.now(tz) + AHEAD

        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return real.now(datetime.UTC).replace(tzinfo=None) + AHEAD

    datetime.datetime = Later  # type: ignore[misc]
    time.time = lambda: seconds() + AHEAD.total_seconds()
    time.time_ns = lambda: nanoseconds() + int(AHEAD.total_seconds() * 1e9)


def main() -> None:
    """Read the request, judge, print the totals as one line."""
    asked = json.loads(sys.stdin.buffer.read())
    sys.path[:] = asked["path"]
    answer, sys.stdout = sys.stdout, sys.stderr  # what a verifier prints is no answer
    shift_clock()
    from tracewheel import Task
    from tracewheel_graders.audit.judging import judge_all

    episodes = [(Task.from_record(task), episode) for task, episode in asked["episodes"]]
    totals = [item.total for item in reversed(judge_all(asked["verifier"], episodes[::-1]))]
    print(json.dumps(totals), file=answer)


if __name__ == "__main__":
    main()
