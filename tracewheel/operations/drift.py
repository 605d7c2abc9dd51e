"""Whether the deployed agent's success has fallen, or its mix of tasks has changed, since the last complete run.

Both tests are exact given the margins of their tables, however few outcomes there are, and compare only what is alike:
scored outcomes of the same task, or of tasks of the same family.

Success, one-sided. A task that was tried before and after is a stratum of its own. Of the other tasks of a family the
first scored attempt counts, because attempts at one task are alike, and the family is a stratum. Given the margins, the
later successes of a stratum are hypergeometric when nothing has changed (Fisher 1935), and their sum over strata is the
exact form of Mantel and Haenszel's test (1959; Gart 1970; Mehta, Patel and Gray 1985). All outcomes together and each family
are tested, and Holm's step-down test (1979) corrects for their number. A rise is no reason to train.

Mix. A task counts once a day, so that retries are no change of the mix. Pearson's chi-square of families before and after
is compared with random tables of the same margins (Patefield 1981 draws them; here, with two rows, the multivariate
hypergeometric distribution does), until `EXCEEDANCES` of them are as extreme (Besag and Clifford 1991).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from tracewheel.core.files import read_table
from tracewheel.core.inference import holm
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import EPISODES_FILE, OUTCOME_COLUMNS, OUTCOMES_FILE, TASKS_FILE
from tracewheel.traces.ingested_folder import TRACES_FOLDER

if TYPE_CHECKING:
    import pandas

ALL = "all families"
# Random tables: until so many are as extreme, and at most so many for one that would be by chance at the level.
EXCEEDANCES, DRAWS_PER_ONE, MOST_DRAWS, CHUNK = 100, 10, 400_000, 10_000


class Stratum(NamedTuple):
    """Successes and attempts, after and before."""

    successes: int
    attempts: int
    earlier_successes: int
    earlier_attempts: int


@dataclass(frozen=True)
class Fall:
    """The success of a family, or of all: rates of the outcomes compared, and the one-sided p-value of a fall."""

    family: str
    before: float
    after: float
    outcomes: int
    p_value: float


@dataclass(frozen=True)
class Drift:
    """What was tested, at which level.

    Attributes:
        level: Error probability of all tests together; half for success, half for the mix.
        falls: All families together first, then each family with comparable outcomes.
        fallen: The families in which success has fallen.
        mix_p_value: Of an unchanged mix of families.
        mix_before, mix_after: Tasks by family.
    """

    level: float
    falls: tuple[Fall, ...] = ()
    fallen: tuple[str, ...] = ()
    mix_p_value: float = 1.0
    mix_before: tuple[tuple[str, int], ...] = ()
    mix_after: tuple[tuple[str, int], ...] = ()

    @property
    def mix_changed(self) -> bool:
        """Whether the mix of families has changed."""
        return self.mix_p_value <= self.level / 2

    @property
    def found(self) -> bool:
        """Whether anything has drifted."""
        return bool(self.fallen) or self.mix_changed

    @property
    def success_p_value(self) -> float:
        """The smallest p-value of a fall, corrected for the number of families."""
        return min(1.0, min((fall.p_value for fall in self.falls), default=1.0) * len(self.falls))

    def says(self) -> str:
        """In a few words, with numbers."""
        if not self.found:
            return f"no drift (success p = {self.success_p_value:.2g}, task mix p = {self.mix_p_value:.2g})"
        words = [
            f"success of {fall.family} fell from {fall.before:.0%} to {fall.after:.0%} in {fall.outcomes} outcomes"
            f" (p = {fall.p_value:.2g})"
            for fall in self.falls
            if fall.family in self.fallen
        ]
        if self.mix_changed:
            name, before, after = self._moved_most()
            words.append(f"the task mix changed (p = {self.mix_p_value:.2g}): {name} from {before:.0%} to {after:.0%}")
        return "drift: " + "; ".join(words)

    def to_record(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self) | {"found": self.found, "says": self.says()}

    def _moved_most(self) -> tuple[str, float, float]:
        before, after = dict(self.mix_before), dict(self.mix_after)
        shares = {
            name: (before.get(name, 0) / sum(before.values()), after.get(name, 0) / sum(after.values()))
            for name in before | after
        }
        name = max(shares, key=lambda name: abs(shares[name][1] - shares[name][0]))
        return name, *shares[name]


def find_drift(before: pandas.DataFrame, after: pandas.DataFrame, level: float) -> Drift:
    """Compare later logged attempts with earlier ones.

    Args:
        before: A row for each attempt, with `OUTCOME_COLUMNS`; `success` is NaN where it is unscored or failed otherwise.
        after: The same of later attempts, without the earlier ones.
        level: Probability of finding a drift where there is none.
    """
    if not len(before) or not len(after):
        return Drift(level)
    return judge_drift(_strata(before, after), _mix(before), _mix(after), level)


def judge_drift(
    strata: Sequence[tuple[str, Stratum]], mix_before: dict[str, int], mix_after: dict[str, int], level: float
) -> Drift:
    """Test what `find_drift` has counted.

    Args:
        strata: Family and counts of each stratum that has outcomes on both sides.
        mix_before: Tasks by family.
        mix_after: The same of the later tasks.
        level: Probability of finding a drift where there is none.
    """
    families = {name: [stratum for of, stratum in strata if of == name] for name in sorted({of for of, _ in strata})}
    falls = [_fall(ALL, [stratum for _, stratum in strata])] if strata else []
    if len(families) > 1:
        falls += [_fall(name, own) for name, own in families.items()]
    rejected = holm([fall.p_value for fall in falls], level / 2)
    return Drift(
        level,
        tuple(falls),
        tuple(fall.family for fall, fell in zip(falls, rejected, strict=True) if fell),
        mix_p_value(mix_before, mix_after, level / 2),
        tuple(mix_before.items()),
        tuple(mix_after.items()),
    )


def fall_p_value(strata: Iterable[Stratum]) -> float:
    """One-sided p-value of a fall of success: the probability of no more later successes, given all margins.

    With one stratum it is Fisher's exact test.
    """
    observed = least = 0
    parts: list[npt.NDArray[Any]] = []
    for stratum in strata:
        first, chances = _hypergeometric(stratum)
        parts.append(chances)
        observed, least = observed + stratum.successes, least + first
    while len(parts) > 1:  # in pairs, so that the arrays are of like length
        pairs = [np.convolve(one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, *parts[len(pairs) * 2 :]]
    return float(min(1.0, parts[0][: observed - least + 1].sum())) if parts else 1.0


def mix_p_value(before: dict[str, int], after: dict[str, int], level: float = 0.05, seed: int = 0) -> float:
    """P-value of an unchanged mix: random tables with the same margins that are at least as extreme by Pearson's chi-square.

    Args:
        before: Tasks by family.
        after: The same of the later tasks.
        level: The level that the p-value is compared with; decides how many tables may have to be drawn.
        seed: Of the tables.
    """
    names = sorted(before.keys() | after.keys())
    table = np.array([[counts.get(name, 0) for name in names] for counts in (after, before)], dtype=np.int64)
    drawn, margins = int(table[0].sum()), table.sum(axis=0)
    if len(names) < 2 or not drawn or drawn == margins.sum():
        return 1.0
    expected = margins * (drawn / margins.sum())

    def distances(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = ((rows - expected) ** 2 / expected).sum(axis=-1)
        return found

    observed = float(distances(table[0]))
    stream = np.random.default_rng(seed)
    most = min(MOST_DRAWS, math.ceil(DRAWS_PER_ONE / max(level, 1e-9)))
    extreme = made = 0
    while made < most:
        size = min(CHUNK if made else CHUNK // 10, most - made)
        hits = np.cumsum(distances(stream.multivariate_hypergeometric(margins, drawn, size=size)) >= observed - 1e-9)
        if extreme + hits[-1] >= EXCEEDANCES:
            return EXCEEDANCES / (made + int(np.searchsorted(hits, EXCEEDANCES - extreme)) + 1)
        extreme, made = extreme + int(hits[-1]), made + size
    return (extreme + 1) / (made + 1)


def _fall(family: str, strata: Sequence[Stratum]) -> Fall:
    sums = np.array(strata).sum(axis=0)
    return Fall(family, float(sums[2] / sums[3]), float(sums[0] / sums[1]), int(sums[1]), fall_p_value(strata))


def _strata(before: pandas.DataFrame, after: pandas.DataFrame) -> list[tuple[str, Stratum]]:
    """Family and counts of each stratum that has outcomes on both sides."""
    import pandas

    sides = []
    for table in (after, before):
        scored = table[table["success"].notna()]
        sides.append(scored.assign(solved=(scored["success"] >= 1.0).astype(int)))
    families = sides[1].drop_duplicates("task_id").set_index("task_id")["family"]
    common = set(sides[0]["task_id"]) & set(families.index)
    found = []
    for side in sides:
        shared = side["task_id"].isin(common)
        first = side[~shared].drop_duplicates("task_id")
        units = pandas.concat(
            [side[shared].assign(unit=side["task_id"], family=side["task_id"].map(families)), first.assign(unit="")]
        )
        found.append(units.groupby(["family", "unit"])["solved"].agg(["sum", "count"]))
    both = found[0].add_suffix("_after").join(found[1].add_suffix("_before"), how="inner")
    names = both.index.get_level_values("family").astype(str)
    return [(name, Stratum(*map(int, counts))) for name, counts in zip(names, both.to_numpy(), strict=True)]


def _mix(attempts: pandas.DataFrame) -> dict[str, int]:
    """Tasks by family, each counted once a day."""
    days = attempts["created"].fillna("").astype(str).str.slice(0, 10)
    once = attempts.assign(day=days).drop_duplicates(["task_id", "day"])
    return {str(name): int(count) for name, count in once["family"].value_counts().sort_index().items()}


def _hypergeometric(stratum: Stratum) -> tuple[int, npt.NDArray[np.float64]]:
    """The smallest possible number of later successes, and the probability of it and of each larger one."""
    attempts, others = stratum.attempts, stratum.earlier_attempts
    successes = stratum.successes + stratum.earlier_successes
    least, most = max(0, successes - others), min(attempts, successes)
    counts = np.arange(least, most + 1)
    logs = _log_choose(attempts, counts) + _log_choose(others, successes - counts) - _log_choose(attempts + others, successes)
    return least, np.exp(logs)


def _log_choose(n: int, k: Any) -> Any:
    return special.gammaln(n + 1) - special.gammaln(np.add(k, 1)) - special.gammaln(np.subtract(n + 1, k))


def curated_attempts(curated: Path) -> pandas.DataFrame:
    """The verified attempts of all usable traces of a curation: `OUTCOME_COLUMNS`.

    A curation of an earlier version has only those of the tasks in its sets.
    """
    if (curated / OUTCOMES_FILE).is_file():
        return read_table(curated / OUTCOMES_FILE, OUTCOME_COLUMNS)
    families = read_table(curated / TASKS_FILE, ["id", "family"]).set_index("id")["family"]
    episodes = read_table(curated / EPISODES_FILE, ["trace_id", "task_id", "success"])
    return episodes.assign(family=episodes["task_id"].map(families), created="")


def logged_attempts(ingested: Path) -> pandas.DataFrame:
    """Attempts with their logged rewards, as ingest wrote them, for a look that is cheaper than curation: `OUTCOME_COLUMNS`.

    A task is the log's name of it, or the first user message. Its family is the set of tools that the agent was offered,
    where that was logged: what it called depends on the agent, not on the task.
    """
    rows = read_table(ingested / TRACES_FOLDER, ["id", "task", "messages", "tools", "tools_inferred", "outcome", "created"])
    opened = [content_hash(_opening(json.loads(text))) for text in rows["messages"]]
    offered = {text: _tool_set(json.loads(text)) for text in rows["tools"].unique()}
    tasks = rows["task"].where(rows["task"].notna(), opened)
    families = rows["tools"].map(offered).where(~rows["tools_inferred"].astype(bool), "tools not logged")
    named = rows.assign(trace_id=rows["id"], task_id=tasks, family=families, success=rows["outcome"])
    return named[list(OUTCOME_COLUMNS)]


def _opening(messages: list[dict[str, Any]]) -> Any:
    return next((message.get("content") for message in messages if message.get("role") == "user"), "")


def _tool_set(tools: list[dict[str, Any]]) -> str:
    names = sorted(str(tool.get("function", tool).get("name")) for tool in tools)
    return f"{len(names)} tools, {', '.join(names[:2])}..." if len(names) > 2 else ", ".join(names) or "no tools"
