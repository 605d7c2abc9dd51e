"""What a verifier makes of the probes, once and again: in another order, in another process, at another time."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tracewheel import InfrastructureError, Task, make_verifier
from tracewheel_graders.audit.play import judged
from tracewheel_graders.audit.probes import Probe

# Judged again: enough to see what depends on chance, without paying twice for a slow verifier.
REPEATED, LEAST_REPEATED = 64, 8
ELSEWHERE = "tracewheel_graders.audit.elsewhere"
ELSEWHERE_SECONDS = 300.0


@dataclass(frozen=True)
class Judged:
    """A verifier's result for an episode; `total` is None where it gave none, and `error` then says why."""

    total: float | None
    explanation: str = ""
    error: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the episode counts as a success, as in a rubric."""
        return self.total is not None and self.total >= 1.0


@dataclass(frozen=True)
class Repeats:
    """How often a verifier gave an episode another total when it judged it again.

    Attributes:
        episodes: How many it judged again.
        differ: Those with another total, by what was otherwise: `order`, `process`.
        error: Why it could not judge in another process; "" where it could.
    """

    episodes: int
    differ: dict[str, int] = field(default_factory=dict)
    error: str = ""


class Judge:
    """A verifier, made once, that is asked about one episode after the other.

    Raises:
        ConfigError: there is no such verifier.
    """

    def __init__(self, spec: str) -> None:
        self._verifier = make_verifier(spec)
        self.seconds = 0.0
        self.at_gate = False  # whether it decides there

    def __call__(self, task: Task, episode: dict[str, Any]) -> Judged:
        began = time.monotonic()
        try:
            verdict = judged(self._verifier, task, episode)
        except Exception as error:  # a verifier is user code: whatever it raises, the episode is unscored
            return Judged(None, error=f"{type(error).__name__}: {error}")
        finally:
            self.seconds += time.monotonic() - began
        if 0.0 <= verdict.total <= 1.0:
            return Judged(verdict.total, verdict.explanation)
        return Judged(None, error=f"gave {verdict.total}, outside 0 to 1")


def judge_all(spec: str, episodes: Sequence[tuple[Task, dict[str, Any]]]) -> list[Judged]:
    """What a verifier, made for this, says of episodes, one after the other.

    Raises:
        ConfigError: there is no such verifier.
    """
    judge = Judge(spec)
    return [judge(task, episode) for task, episode in episodes]


def repeats_of(spec: str, probes: Sequence[Probe], first: Sequence[Judged], seed: int, most: int = REPEATED) -> Repeats:
    """Judge at most so many probes again in another order, and in another process whose clock shows another time."""
    chosen = random.Random(f"repeats-{seed}").sample(range(len(probes)), min(most, len(probes)))
    episodes = [(probes[place].task, probes[place].episode.record()) for place in chosen]
    before = [first[place].total for place in chosen]
    differ = {"order": _differing(before, [item.total for item in judge_all(spec, episodes)])}
    try:
        elsewhere = _judge_elsewhere(spec, episodes)
    except InfrastructureError as error:
        return Repeats(len(chosen), differ, str(error))
    return Repeats(len(chosen), differ | {"process": _differing(before, elsewhere)})


def _differing(one: Sequence[float | None], other: Sequence[float | None]) -> int:
    return sum(first != second for first, second in zip(one, other, strict=True))


def _judge_elsewhere(spec: str, episodes: Sequence[tuple[Task, dict[str, Any]]]) -> list[float | None]:
    """The totals that the verifier gives in another process.

    Raises:
        InfrastructureError: the process failed.
    """
    asked = {
        "path": sys.path,
        "verifier": spec,
        "episodes": [[task.to_record(), episode] for task, episode in episodes],
    }
    hash_seed = {"PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", ELSEWHERE],
            input=json.dumps(asked).encode(),
            capture_output=True,
            env=os.environ | hash_seed,
            timeout=ELSEWHERE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"no answer within {ELSEWHERE_SECONDS:g} s") from error
    if done.returncode:
        raise InfrastructureError(f"the process ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    totals: list[float | None] = json.loads(done.stdout.splitlines()[-1])
    return totals
