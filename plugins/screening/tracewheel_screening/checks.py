"""Whether a batch of new traces is like the batches that were accepted before.

A rate of the batch (logged rewards that the verifier contradicts, records in quarantine, …) is compared with the rate in the
accepted batches by the posterior predictive distribution: with k of n in the history, and the prior Beta(1/2, 1/2), the rate of
a further night is Beta with this mean and the weight of at most `NIGHTS_ALIKE` records, or less where the nights of the history
differ more from one another (moments of the beta-binomial distribution; Griffiths, Biometrics 1973). The p-value is the
probability of as many or more. The weight stays small however long the history gets: honest nights differ, too.

What grows slowly hides in each single night, and once accepted it is history. So the last `WINDOW` nights with this one are
compared as a whole, too, with the nights before them, which lag behind: their mean has `WINDOW` times the weight of a night. A
person who releases a batch says that its nights are honest: windows and what they are compared with begin after it.

Concentration is compared with the shares that names had, whoever held them: the p-value is the sum over these shares of the
probability that this share takes as many of the batch (Boole's inequality), in the history as a whole or in its most
concentrated night, whichever is larger. Of the users whom no batch had before, the most active one is compared with the most
active new one of each night: that somebody has always had half of the traffic says nothing of a stranger.

The level of each test is `FALSE_ALARMS` / (365 nights x the number of tests): Bonferroni's correction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from tracewheel_screening.batch_profile import KINDS, NAME_LENGTH, BatchProfile, short_hash
from tracewheel_screening.settings import ScreeningSettings

NIGHTS = 365
FALSE_ALARMS = 1.0  # honest batches a year that all tests together may hold
# Records that a night says about the next: the most that is assumed. Names differ more from night to night than rates.
NIGHTS_ALIKE, NAMES_ALIKE = 100.0, 30.0
LEAST_ALIKE = 4.0
NIGHTS_FOR_MOMENTS = 5
WINDOW = 14  # two weeks: as many weekends on either side
# A night with fewer named traces does not say how concentrated nights are, and one name cannot be much of it.
LEAST_NAMED, LEAST_OF_ONE = 20, 5
# Batches that concentration is compared with: a year of them would take longer than the replay of a night.
RECENT = 60
WORDS = {"user": "user", "session": "session", "task": "task", "template": "prompt template", "conversation": "conversation"}
Severity = Literal["held", "said", "healthy", "not judged"]


@dataclass(frozen=True)
class Suspicion:
    """The result of one check.

    Attributes:
        check: Its name.
        severity: `held`: reason to hold the batch. `said`: worth a look. `not judged`: there is too little to compare.
        sentence: In words, with the figures.
        p: The p-value; None where the check has none.
        level: The level that it was compared with.
        examples: Places in the logs: `file`, `line`, `says`.
    """

    check: str
    severity: Severity
    sentence: str
    p: float | None = None
    level: float | None = None
    examples: list[dict[str, Any]] = field(default_factory=list)

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


class Rate(NamedTuple):
    """What a check of a rate counts: `count` of `total`, in words."""

    check: str
    count: Callable[[BatchProfile], int]
    total: Callable[[BatchProfile], int]
    words: str
    hold: bool = True


RATES = (
    Rate("rewards", lambda it: it.disagreeing, lambda it: it.rewarded, "logged rewards differ from the verified outcome"),
    Rate(
        "replies", lambda it: it.other_replies, lambda it: it.replayed, "episodes have tools that reply otherwise when replayed"
    ),
    Rate("quarantine", lambda it: it.quarantined, lambda it: it.read, "records are in quarantine"),
    Rate("judge", lambda it: it.judge, lambda it: it.kept, "traces hold instructions to the trainer or judge"),
    Rate("agent", lambda it: it.agent, lambda it: it.kept, "traces hold instructions against the agent's own", hold=False),
    Rate("duplicates", lambda it: it.duplicates, lambda it: it.read, "records are duplicates", hold=False),
    Rate("future", lambda it: it.future, lambda it: it.kept, "traces are from the future"),
)
CHECKS = (*(rate.check for rate in RATES), "new_users", *KINDS)
TESTS = 2 * len(RATES) + 2 + len(KINDS)
# Up to this share of the accepted traces, an instruction to the judge is so rare that any text of this kind that is new holds a
# batch; above it, such words belong to the trade, and their rate is tested.
RARE = 1 / 200
# One clock may be wrong.
FUTURE_SHARE = 0.05


def screen(
    batch: BatchProfile, accepted: Sequence[BatchProfile], config: ScreeningSettings, since_release: int | None = None
) -> list[Suspicion]:
    """All checks of a batch.

    Args:
        batch: The new batch.
        accepted: The batches before it that were accepted or released, the oldest first.
        config: The budget of false alarms, and checks that are off.
        since_release: How many of these came after the last one that a person released; None for all.

    Returns:
        One result for each check that is on, in the order of `CHECKS`.
    """
    level = FALSE_ALARMS / (NIGHTS * TESTS)
    recent = accepted if since_release is None else accepted[len(accepted) - since_release :]
    results = [_rate(rate, batch, accepted, recent, level) for rate in RATES]
    results.append(_new_users(batch, accepted, level))
    results += [_concentration(kind, batch, accepted, level) for kind in KINDS]
    return [result for result in results if result.check not in config.off]


def reasons(results: Sequence[Suspicion]) -> list[Suspicion]:
    """The results that hold a batch."""
    return [result for result in results if result.severity == "held"]


def _rate(
    rate: Rate, batch: BatchProfile, accepted: Sequence[BatchProfile], recent: Sequence[BatchProfile], level: float
) -> Suspicion:
    count, total = rate.count(batch), rate.total(batch)
    examples = batch.examples.get(rate.check, []) if count else []
    figures = f"{count} of {total} {rate.words} ({_percent(count, total)})"
    if rate.check == "future":
        late: Severity = "held" if count > FUTURE_SHARE * total else "said" if count else "healthy"
        return Suspicion(rate.check, late, figures, None, None, examples)
    known, of = _sum(counts := [(rate.count(night), rate.total(night)) for night in accepted])
    if rate.check == "judge" and count and known <= RARE * of:
        seen = {text for night in accepted for text in night.judge_texts}
        new = sum(times for text, times in batch.judge_texts.items() if text not in seen)
        before = f"; {new} of them with words that no accepted batch has ({known} of {of} traces there)" if of else ""
        return Suspicion(rate.check, "held" if new else "said", figures + before, None, None, examples)
    if not total or not of:
        return Suspicion(rate.check, "said" if count else "not judged", figures, None, None, examples)
    p = predictive_tail(count, total, *beta_of(counts, NIGHTS_ALIKE))
    said = f"{figures}, {known} of {of} before ({_percent(known, of)}): p = {p:.2g}"
    nights = [*((rate.count(night), rate.total(night)) for night in recent), (count, total)]
    reference, window = nights[:-WINDOW], nights[-WINDOW:]
    (known, of), (count, total) = _sum(reference), _sum(window)
    if len(reference) >= NIGHTS_FOR_MOMENTS and of:
        slow = predictive_tail(count, total, *beta_of(reference, NIGHTS_ALIKE, WINDOW))
        if slow < p:
            rates = f"{_percent(count, total)} in the last {WINDOW} nights, {_percent(known, of)} before"
            p, said = slow, f"{figures}, {rates}: p = {slow:.2g}"
    severity: Severity = "healthy" if p > level else "held" if rate.hold else "said"
    return Suspicion(rate.check, severity, said, p, level, examples)


def _new_users(batch: BatchProfile, accepted: Sequence[BatchProfile], level: float) -> Suspicion:
    """Users that no accepted batch had, and the most active of them. The first batch says who is known."""
    known: set[str] = set()
    new_of, share_of = [], []
    for night in [*accepted, batch]:
        if night.users:
            new_of.append((len(set(night.users) - known), len(night.users)))
            share_of.append((_busiest_stranger(night, known), night.named.get("user", 0)))
        known |= set(night.users)
    if not batch.users or len(new_of) < NIGHTS_FOR_MOMENTS + 1:
        return Suspicion("new_users", "not judged", f"{len(batch.users)} users" + (", all new" if len(new_of) == 1 else ""))
    (new, total), (most, of) = new_of[-1], share_of[-1]
    p_new, p_most = (
        predictive_tail(*counts[-1], *beta_of(counts[1:-1], NAMES_ALIKE)) if counts[-1][1] else 1.0
        for counts in (new_of, share_of)
    )
    before, known_users = _sum(new_of[1:-1])
    said = f"{new} of {total} users are new ({_percent(new, total)}), {before} of {known_users} in the nights before"
    said += f": p = {p_new:.2g}; one of them has {most} of {of} traces ({_percent(most, of)}): p = {p_most:.2g}" if most else ""
    p = min(p_new, p_most)
    return Suspicion("new_users", "healthy" if p > level else "held", said, p, level)


def _busiest_stranger(night: BatchProfile, known: set[str]) -> int:
    """The traces of the most active user who is not known. A name that was cut is taken for known."""
    names = night.names.get("user", {}).items()
    return next((count for name, count in names if len(name) < NAME_LENGTH and short_hash(name) not in known), 0)


def _concentration(kind: str, batch: BatchProfile, accepted: Sequence[BatchProfile], level: float) -> Suspicion:
    total = batch.named.get(kind, 0)
    name, count = next(iter(batch.names.get(kind, {}).items()), ("", 0))
    figures = f"{WORDS[kind]} {name!r} has {count} of {total} traces ({_percent(count, total)})"
    nights = [night for night in accepted[-RECENT:] if night.named.get(kind, 0) >= LEAST_NAMED]
    if not nights or count < LEAST_OF_ONE:
        severity: Severity = "not judged" if not nights else "healthy"
        return Suspicion(kind, severity, figures)
    densest = max(nights, key=lambda night: _largest(night, kind) / night.named[kind])
    histories = [_shares(nights, kind), _shares([densest], kind)]
    p = max(_largest_tail(count, total, shares) for shares in histories)
    most = _percent(_largest(densest, kind), densest.named[kind])
    said = f"{figures}, at most {most} in a batch before: p = {p:.2g}"
    return Suspicion(kind, "healthy" if p > level else "held", said, p, level)


def _largest(night: BatchProfile, kind: str) -> int:
    return next(iter(night.names.get(kind, {}).values()), 0)


def _shares(nights: Sequence[BatchProfile], kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The shares of names over these nights, the largest first."""
    counts: dict[str, int] = {}
    for night in nights:
        for name, count in night.names.get(kind, {}).items():
            counts[name] = counts.get(name, 0) + count
    total = sum(night.named[kind] for night in nights)
    return np.sort(np.array(list(counts.values()), dtype=np.float64))[::-1] / total


def _largest_tail(count: int, total: int, shares: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """A bound of the probability that one of these shares takes `count` of `total` or more."""
    sizes, times = np.unique(shares, return_counts=True)
    p = sum(
        times[place] * predictive_tail(count, total, NAMES_ALIKE * share + 0.5 / len(shares), NAMES_ALIKE * (1 - share) + 0.5)
        for place, share in enumerate(sizes)
    )
    return float(min(1.0, p))


def beta_of(counts: Sequence[tuple[int, int]], most: float, nights: int = 1) -> tuple[float, float]:
    """The Beta distribution of the next night's rate, from (count, total) of the nights before.

    Args:
        counts: The nights.
        most: The largest weight of a night.
        nights: Of so many nights together.
    """
    known, of = _sum(counts)
    mean = (known + 0.5) / (of + 1)
    weight = min(of + 1.0, nights * min(most, _alike(counts, mean)))
    return mean * weight, (1 - mean) * weight


def _sum(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(k for k, _ in counts), sum(n for _, n in counts)


def _alike(counts: Sequence[tuple[int, int]], mean: float) -> float:
    """The weight by moments: how many records of a night its rate is worth as evidence of the next; infinite for few nights."""
    nights = [(k, n) for k, n in counts if n > 1]
    if len(nights) < NIGHTS_FOR_MOMENTS:
        return math.inf
    of = sum(n for _, n in nights)
    spread = sum(n * (k / n - mean) ** 2 for k, n in nights)
    chance = mean * (1 - mean)
    # E[spread] = chance x ((nights - 1) (1 - correlation) + correlation (of - sum n^2 / of)), about.
    free, most = len(nights) - 1, of - sum(n * n for _, n in nights) / of
    correlation = (spread / chance - free) / max(most - free, 1.0)
    return math.inf if correlation <= 0 else max(LEAST_ALIKE, 1 / correlation - 1)


def predictive_tail(count: int, total: int, a: float, b: float) -> float:
    """The probability of `count` or more of `total`, whose rate is Beta(a, b): the beta-binomial distribution."""
    if count <= 0:
        return 1.0
    from scipy.special import betaln, gammaln

    k = np.arange(count, total + 1, dtype=np.float64)
    ways = gammaln(total + 1) - gammaln(k + 1) - gammaln(total - k + 1)
    return float(min(1.0, np.exp(ways + betaln(k + a, total - k + b) - betaln(a, b)).sum()))


def _percent(count: int, total: int) -> str:
    return f"{count / total:.0%}" if total else "none"
