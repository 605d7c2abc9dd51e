"""Whether the deployed agent's success has fallen, or its mix of tasks has changed, since the last complete run.

What is alike is compared: attempts of one stratum, before and since. For the mix a stratum is a weekday, so that a weekend is
no change. For success it is a task that was tried on both sides; of the other tasks of a family the first scored attempt
counts, and the family on a weekday is the stratum. The statistic is Mantel and Haenszel's (1959): with n1 later and n0 earlier
attempts in a stratum, the sum of n1 n0 / (n1 + n0) times the difference of the two rates.

A user's attempts are alike: each prefers some families, and some ask harder things. Its variance is therefore that of attempts
which correlate within a user: by one correlation within a week, for what comes in bursts, and by another between weeks, for
what stays and is on both sides. Both are estimated from all attempts, the many earlier ones included (moments of standardised
residuals). Independent attempts of the same variance are fewer: the effective numbers of both sides (Korn and Graubard 1998).
The p-value is that of the signed root of their likelihood ratio, which follows skewness far in the tail, as rare families need
it. Where the log names no user, the session stands for one, or else the task.

All families together and each family are tested for a fall, one-sided, and each family for its share; Holm's step-down test
(1979) corrects for their number. A rise of success is no reason to train.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import special

from tracewheel.core.files import read_table
from tracewheel.core.inference import holm
from tracewheel.curation.curated_folder import EPISODES_FILE, OUTCOMES_FILE, TASKS_FILE

if TYPE_CHECKING:
    import pandas

Vector = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.intp]
ALL = "all families"
# What is compared with the past: the newest week, or more days where it brought fewer attempts.
WEEK, LEAST = 7, 200


@dataclass(frozen=True)
class Change:
    """The rate of a family before and since, and the p-value of no change.

    Attributes:
        family: Its name.
        before: Its rate on the earlier side, weighed as the strata of the later one.
        after: Its rate on the later side.
        attempts: Later ones that could be compared.
        p_value: One-sided for a fall of success, two-sided for a share of the mix.
        found: Whether it is too small to be chance.
    """

    family: str
    before: float
    after: float
    attempts: int
    p_value: float
    found: bool = False

    def says(self, what: str) -> str:
        """In words, with numbers."""
        rates = f"from {self.before:.0%} to {self.after:.0%}"
        return f"{what} {self.family} {rates} in {self.attempts} attempts (p = {self.p_value:.2g})"


@dataclass(frozen=True)
class Drift:
    """What was tested, at which level.

    Attributes:
        level: Error probability of all tests together; half for success, half for the mix.
        falls: Success: all families together first, then each family with comparable outcomes.
        shares: Each family's share of the tasks.
    """

    level: float
    falls: tuple[Change, ...] = ()
    shares: tuple[Change, ...] = ()

    @property
    def found(self) -> bool:
        """Whether anything has drifted."""
        return any(test.found for test in self.falls + self.shares)

    def says(self) -> str:
        """In a few words, with numbers."""
        if not self.found:
            fall, share = (
                min(1.0, len(tests) * min((test.p_value for test in tests), default=1.0)) for tests in (self.falls, self.shares)
            )
            return f"no drift (success p = {fall:.2g}, task mix p = {share:.2g})"
        words = [fall.says("success of") for fall in self.falls if fall.found]
        moved = [share for share in self.shares if share.found]
        if moved:
            most = max(moved, key=lambda share: abs(share.after - share.before))
            words.append("the task mix changed: " + most.says("the share of"))
        return "drift: " + "; ".join(words)


def find_drift(before: pandas.DataFrame, after: pandas.DataFrame, level: float) -> Drift:
    """Compare later logged attempts with earlier ones.

    Args:
        before: A row for each attempt, with `OUTCOME_COLUMNS`; `success` is NaN where it is unscored or failed otherwise.
        after: The same of later attempts, without the earlier ones. The newest are compared.
        level: Probability of finding a drift where there is none.
    """
    import pandas

    if not len(before) or not len(after):
        return Drift(level)
    rows = pandas.concat([before.assign(late=0.0), after.assign(late=1.0)], ignore_index=True)
    written = pandas.to_datetime(rows["created"].fillna("").astype(str).str.slice(0, 10), errors="coerce", format="%Y-%m-%d")
    day = (written - pandas.Timestamp(0)).dt.days
    # The last of the weeks that an owner's attempts are alike in ends on the newest day; undated attempts are one week.
    weeks, weekdays = ((day.max() - day) // WEEK).fillna(-1).astype(int), (day % WEEK).fillna(-1).astype(int)
    owner = pandas.factorize(owners_of(rows))[0]
    rows = rows.assign(family=rows["family"].astype(str), owner=owner, week=owner * (weeks.max() + 2) + weeks, stratum=weekdays)
    rows = rows[newest(day.where(rows["late"] == 1.0))]
    sides = _Sides.of(rows)
    shares = [_change(name, sides, rows["family"] == name, two_sided=True) for name in sorted(rows["family"].unique())]
    scored = _comparable(rows[rows["success"].notna()])
    families = scored.groupby("family") if scored["family"].nunique() > 1 else ()
    falls = [_change(name, _Sides.of(own), own["success"] >= 1.0) for name, own in ((ALL, scored), *families)]
    return Drift(level, _judged(falls, level / 2), _judged(shares, level / 2))


def newest(days: pandas.Series[Any]) -> pandas.Series[bool]:
    """Which attempts are of the last seven days, or of more days where those have fewer than `LEAST`; all that have none."""
    dated = days.dropna().sort_values()
    first = min(dated.iloc[-1] - WEEK + 1, dated.iloc[-LEAST]) if len(dated) > LEAST else -math.inf
    return days.isna() | (days >= first)


def owners_of(attempts: pandas.DataFrame) -> pandas.Series[str]:
    """Whose each attempt is: the user's, else the session's, else the task's own. The kind of the name comes before it."""
    owners = "task " + attempts["task_id"].astype(str)
    for kind in ("session", "user"):
        if kind in attempts:
            owners = owners.mask(attempts[kind].notna(), kind + " " + attempts[kind].astype(str))
    return owners


def _comparable(scored: pandas.DataFrame) -> pandas.DataFrame:
    """Scored attempts with their stratum: the task where both sides tried it, else the family on a weekday."""
    import pandas

    shared = scored.groupby("task_id")["late"].transform("nunique") == 2
    units = scored[shared | ~scored.duplicated(["late", "task_id"])]
    task, family = (pandas.factorize(units[name])[0] for name in ("task_id", "family"))
    days = len(units) + family * (WEEK + 1) + units["stratum"] + 1
    return units.assign(stratum=days.where(~shared[units.index], task))


@dataclass(frozen=True)
class _Sides:
    """N attempts: whether each is a later one, and the numbers of its stratum, its owner, and its owner's week."""

    late: Vector
    stratum: Numbers
    owner: Numbers
    week: Numbers

    @classmethod
    def of(cls, rows: pandas.DataFrame) -> _Sides:
        import pandas

        return cls(rows["late"].to_numpy(), *(pandas.factorize(rows[name])[0] for name in ("stratum", "owner", "week")))

    def squares(self, values: Vector) -> tuple[float, float, float]:
        """The sum of squares of values [N], of products of an owner's in one week, and of an owner's in different weeks."""
        own = float(np.square(values).sum())
        week, owner = (float(np.square(np.bincount(numbers, values)).sum()) for numbers in (self.week, self.owner))
        return own, week - own, owner - week


def _change(family: str, sides: _Sides, hits: pandas.Series[bool], *, two_sided: bool = False) -> Change:
    """Compare the rate of hits on both sides, stratum by stratum."""
    late, stratum, hit = sides.late, sides.stratum, hits.to_numpy(dtype=float)
    n, n1, hits_of, hits1 = (np.bincount(stratum, values) for values in (np.ones(len(late)), late, hit, late * hit))
    both = (n1 > 0) & (n1 < n)
    attempts = n1[both].sum()
    if not attempts:
        return Change(family, math.nan, math.nan, 0, 1.0)
    after = float(hits1[both].sum() / attempts)
    before = float((n1 * (hits_of - hits1))[both] @ (1 / (n - n1)[both]) / attempts)
    # Summed over a stratum, weight x hit is n1 n0 / n times the difference of its rates; 0 where only one side has it.
    weight = late - (n1 / n)[stratum]
    spread = np.sqrt(hits_of * (n - hits_of) / (n * np.maximum(n - 1, 1)))[stratum]
    residual = np.divide(hit - (hits_of / n)[stratum], spread, out=np.zeros(len(hit)), where=spread > 0)
    # Owners count alike: with weights of 1 / attempts the most active ones alone would not say how alike attempts are.
    evenly = 1 / np.sqrt(np.bincount(sides.owner))[sides.owner]
    pairs, alike = sides.squares(evenly), sides.squares(evenly * residual)
    independent, *related = sides.squares(weight * spread)
    if not independent:
        return Change(family, before, after, int(attempts), 1.0)
    added = sum(max(0.0, a / p) * r for a, p, r in zip(alike[1:], pairs[1:], related, strict=True) if p > 0)
    size = float((n1 * (n - n1) / n).sum())
    moved = min(1.0, max(0.0, before + float(weight @ hit) / size))
    # The share of the attempts of each side that, were they independent, would give the difference the same variance.
    ends = np.array([moved, before]), np.array([attempts, (n - n1)[both].sum()])
    pooled = float(ends[0] @ ends[1] / ends[1].sum())
    share = size**2 * pooled * (1 - pooled) / (independent + max(0.0, added)) * (1 / ends[1]).sum()
    z = math.sqrt(2.0 * share * float(ends[1] @ _divergence(ends[0], pooled)))
    tail = float(special.ndtr(-z))
    p_value = 2 * tail if two_sided else tail if moved < before else 1.0 - tail
    return Change(family, before, after, int(attempts), p_value)


def _divergence(rates: Vector, pooled: float) -> Vector:
    """Kullback and Leibler's, of attempts with these rates from attempts with the pooled one."""
    hits, misses = special.xlogy(rates, rates / pooled), special.xlogy(1 - rates, (1 - rates) / (1 - pooled))
    return np.maximum(0.0, hits + misses)


def _judged(tests: Sequence[Change], level: float) -> tuple[Change, ...]:
    """The tests with `found` set by Holm's correction for their number."""
    tests = [test for test in tests if test.attempts]
    rejected = holm([test.p_value for test in tests], level)
    return tuple(replace(test, found=found) for test, found in zip(tests, rejected, strict=True))


def curated_attempts(curated: Path) -> pandas.DataFrame:
    """The verified attempts of all usable traces of a curation: `OUTCOME_COLUMNS`, as far as its version wrote them.

    A curation of an earlier version has only those of the tasks in its sets.
    """
    if (curated / OUTCOMES_FILE).is_file():
        return read_table(curated / OUTCOMES_FILE)
    families = read_table(curated / TASKS_FILE, ["id", "family"]).set_index("id")["family"]
    episodes = read_table(curated / EPISODES_FILE, ["trace_id", "task_id", "success"])
    return episodes.assign(family=episodes["task_id"].map(families), created="")
