"""How hard a task is: Beta posteriors of its pass rate, and tiers.

The posterior of a task solved s times and failed f times is Beta(1 + s, 1 + f). Counts of earlier runs decay with each run,
because an older policy produced them. The sampler of the training tasks keeps its counts in the same form.

It is measured by the successes and failures of each task, decayed from run to run. A run reads all logs, including those that
earlier runs have read. A trace therefore counts once for a task: in the first curation that knows its outcome. Later curations
find it in the earlier counts, decayed. Where its outcome has changed since, the task's counts are taken anew: of all traces
that are there now, without decay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import special

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, read_table, write_json
from tracewheel.curation.curated_folder import HARDER, OUTCOMES_FILE, TRAIN

if TYPE_CHECKING:
    import pandas


NEGLIGIBLE = 0.01
COUNTS_FILE, COUNTED_FILE = "evidence.json", "counted.parquet"
COUNTED_COLUMNS = ("trace_id", "task_id")


class PassCounts(dict[str, tuple[float, float]]):
    """Decayed successes and failures by task id."""

    def observe(self, task_id: str, successes: float, failures: float, retain: float = 1.0) -> None:
        """Add outcomes of a task and keep the share `retain` of its earlier counts. Leave unscored episodes out.

        Raises:
            ValueError: `successes` or `failures` is not a count.
        """
        if not are_counts(successes, failures):
            raise ValueError(f"{task_id}: {successes} successes and {failures} failures are not counts")
        old_successes, old_failures = self.get(task_id, (0.0, 0.0))
        self[task_id] = (retain * old_successes + successes, retain * old_failures + failures)

    def decayed(self, share: float) -> Self:
        """The counts shrunk to a share, without tasks whose sum falls below `NEGLIGIBLE`."""
        kept = {task_id: (share * successes, share * failures) for task_id, (successes, failures) in self.items()}
        return type(self)({task_id: pair for task_id, pair in kept.items() if sum(pair) >= NEGLIGIBLE})

    def posterior(self, task_id: str) -> tuple[float, float]:
        """(alpha, beta) of the task's Beta posterior; (1, 1) for a task not yet tried."""
        successes, failures = self.get(task_id, (0.0, 0.0))
        return 1.0 + successes, 1.0 + failures

    def to_json(self) -> dict[str, list[float]]:
        """`{task id: [successes, failures]}`, in the order of the ids."""
        return {task_id: list(pair) for task_id, pair in sorted(self.items())}

    @classmethod
    def from_json(cls, value: Any, where: str = "evidence") -> Self:
        """Read what `to_json` returned.

        Raises:
            DataError: `value` has another form; the message begins with `where`.
        """
        if not isinstance(value, Mapping):
            raise DataError(f"{where}: a mapping of task ids to [successes, failures] is expected, not {type(value).__name__}")
        counts = cls()
        for task_id, pair in value.items():
            if not isinstance(pair, list) or len(pair) != 2 or not are_counts(*pair):
                raise DataError(f"{where}: the evidence of {task_id} is {pair!r}, not [successes, failures]")
            counts[task_id] = (float(pair[0]), float(pair[1]))
        return counts


@dataclass(frozen=True)
class KeptPassCounts:
    """What one curation keeps for the next.

    Attributes:
        counts: Decayed successes and failures by task id.
        counted: The outcomes in `counts`, of all runs: each pair of `trace_id` and `task_id` once. A trace that now belongs to
            another task, for instance because its prompt is redacted differently, counts for that task too.
        scored: `success` by `trace_id` and `task_id`, as that curation knew it; None where it has not written it down.
    """

    counts: PassCounts
    counted: pandas.DataFrame
    scored: pandas.Series[float] | None = None

    @classmethod
    def of(cls, counts: PassCounts, *counted: pandas.DataFrame) -> Self:
        """Counts with the pairs of all given frames, sorted."""
        import pandas

        pairs = pandas.concat([pandas.DataFrame(columns=list(COUNTED_COLUMNS), dtype=str), *counted])
        pairs = pairs[list(COUNTED_COLUMNS)].drop_duplicates().sort_values(list(COUNTED_COLUMNS), ignore_index=True)
        return cls(counts, pairs)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what a curation wrote to its folder. Without counted.parquet no trace has been counted.

        Raises:
            DataError: a file cannot be read or has another form; the message names it.
        """
        path, counted = folder / COUNTS_FILE, folder / COUNTED_FILE
        counts = PassCounts.from_json(read_json(path), str(path))
        if not counted.is_file():
            return cls.of(counts)
        table = read_table(counted)
        missing = [name for name in COUNTED_COLUMNS if name not in table]
        if missing:
            raise DataError(f"{counted}: no column '{missing[0]}'; name the file that `tracewheel curate` wrote")
        kept, known = cls.of(counts, table), folder / OUTCOMES_FILE
        if not known.is_file():
            return kept
        scored = read_table(known, [*COUNTED_COLUMNS, "success"])
        return replace(kept, scored=scored.drop_duplicates(list(COUNTED_COLUMNS)).set_index(list(COUNTED_COLUMNS))["success"])

    def write(self, folder: Path) -> None:
        """Write both files into a folder."""
        import pyarrow
        import pyarrow.parquet

        write_json(folder / COUNTS_FILE, self.counts.to_json())
        schema = pyarrow.schema([(name, pyarrow.string()) for name in COUNTED_COLUMNS])
        table = pyarrow.Table.from_pandas(self.counted, schema=schema, preserve_index=False)
        pyarrow.parquet.write_table(table, folder / COUNTED_FILE)

    def has_counted(self, episodes: pandas.DataFrame) -> pandas.Series[bool]:
        """Whether the outcome of each episode (columns `id`, the trace's, and `task_id`) is in the counts."""
        import pandas

        pairs = episodes[["id", "task_id"]].astype(str).set_axis(list(COUNTED_COLUMNS), axis=1)
        found = pairs.merge(self.counted, how="left", on=list(COUNTED_COLUMNS), indicator=True)["_merge"] == "both"
        return pandas.Series(found.to_numpy(), index=episodes.index)

    def without(self, tasks: Collection[str]) -> Self:
        """The counts without some tasks', whose traces count again then."""
        counts = PassCounts({task_id: pair for task_id, pair in self.counts.items() if task_id not in tasks})
        return self.of(counts, self.counted[~self.counted["task_id"].isin(tasks)])

    def reopened(self, episodes: pandas.DataFrame) -> set[str]:
        """The tasks in whose counts an episode (with `id`, `task_id` and `success`) has another outcome than it has now."""
        if self.scored is None:
            return set()
        counted = episodes[self.has_counted(episodes)]
        now = counted.set_index(["id", "task_id"])["success"].rename_axis(list(COUNTED_COLUMNS))
        before = self.scored.reindex(now.index)
        changed = before.notna() & ((before >= 1.0) != (now >= 1.0))
        return {str(task_id) for _, task_id in now.index[changed.to_numpy()]}


def are_counts(*values: Any) -> bool:
    """Whether all values are finite numbers of at least 0."""
    return all(isinstance(v, int | float | np.number) and not isinstance(v, bool) and 0 <= v < math.inf for v in values)


CONFIDENCE = 0.9
DECAY = 0.5  # the share of the evidence of earlier runs that is kept
TIERS = (0.8, 0.6, 0.4, 0.2)  # the pass rates that separate tiers: tasks above the first are tier 1


def pass_rates(episodes: pandas.DataFrame, earlier: KeptPassCounts | None = None) -> tuple[pandas.DataFrame, KeptPassCounts]:
    """The pass rate of each task.

    Args:
        episodes: Has `id` (the trace's), `task_id` and `success`, NaN for an unscored episode, which is not counted.
        earlier: The counts of the last curation. They are decayed, and episodes counted there do not count again.

    Returns:
        A row a task, and the counts to keep for the next curation. The columns: `task_id`; `attempts` and `successes` in
        these episodes; `pass_rate`, the share of successes in the counts, NaN without any; `posterior`, the mean of the
        Beta posterior; `low` and `high`, the ends of its interval (`pass_rate_ends`); and `pass_tier`, from 1 for the easiest.
    """
    import pandas

    earlier = earlier or KeptPassCounts.of(PassCounts())
    counts = earlier.counts.decayed(DECAY)
    scored = episodes[episodes["success"].notna()]
    tried = _attempts(scored)
    reopened = earlier.reopened(episodes)
    for task_id in reopened:
        counts.pop(task_id, None)
    fresh = scored[~earlier.has_counted(scored) | scored["task_id"].isin(reopened)]
    for task_id, (attempts, successes) in _attempts(fresh).items():
        counts.observe(task_id, successes, attempts - successes)
    rows = []
    for task_id in sorted(set(episodes["task_id"])):
        attempts, successes = tried.get(task_id, (0, 0))
        held = counts.get(task_id)
        alpha, beta = counts.posterior(task_id)
        mean = alpha / (alpha + beta)
        low, high = pass_rate_ends(*(held or (0.0, 0.0)))
        rows.append(
            {
                "task_id": task_id,
                "attempts": attempts,
                "successes": successes,
                "pass_rate": held[0] / sum(held) if held else float("nan"),
                "posterior": mean,
                "low": low,
                "high": high,
                "pass_tier": pass_tier(mean),
            }
        )
    columns = ["task_id", "attempts", "successes", "pass_rate", "posterior", "low", "high", "pass_tier"]
    still = earlier.counted[~earlier.counted["task_id"].isin(reopened)]
    kept = KeptPassCounts.of(counts, still, fresh.rename(columns={"id": "trace_id"}))
    return pandas.DataFrame(rows, columns=columns), kept


def _attempts(scored: pandas.DataFrame) -> dict[str, tuple[int, int]]:
    """Attempts and successes by task id."""
    solved = (scored["success"] >= 1.0).groupby(scored["task_id"]).agg(["size", "sum"])
    return {
        str(task_id): (int(attempts), int(successes))
        for task_id, attempts, successes in zip(solved.index, solved["size"], solved["sum"], strict=True)
    }


def pass_tier(pass_rate: float) -> int:
    """The tier of a pass rate: 1 above the first bound, and one more for each bound it does not exceed."""
    return 1 + sum(pass_rate <= bound for bound in TIERS)


def held_out_tier(training_tiers: Iterable[int], tiers: Iterable[int] = ()) -> int:
    """The tier of the harder held-out tasks: the next above the hardest training tier.

    Args:
        training_tiers: Tiers of the training tasks.
        tiers: All tiers; an environment may skip numbers.

    Raises:
        DataError: there are no training tasks.
    """
    trained = [int(tier) for tier in training_tiers]
    if not trained:
        raise DataError("no training tasks: there is no hardest tier to go one above")
    hardest = max(trained)
    return min((int(tier) for tier in tiers if tier > hardest), default=hardest + 1)


def check_held_out_tier(tasks: pandas.DataFrame) -> None:
    """Check that the harder held-out tasks are one tier above the hardest training task.

    Args:
        tasks: All tasks, with `tier` and `split` ("" for unused tasks).

    Raises:
        DataError: they are not; the message names the right `curation.harder_tier`.
    """
    harder = sorted({int(tier) for tier in tasks.loc[tasks["split"] == HARDER, "tier"]})
    if not harder:
        return
    wanted = held_out_tier(tasks.loc[tasks["split"] == TRAIN, "tier"], tasks["tier"])
    if harder != [wanted]:
        raise DataError(
            f"the harder held-out tasks are of tier {', '.join(map(str, harder))}, and one above the hardest trained on would"
            f" be {wanted}: set curation.harder_tier to {wanted}"
        )


def beta_below(alpha: float, beta: float, x: float) -> float:
    """P(p < x) for p ~ Beta(alpha, beta): the regularised incomplete beta function, 0 below and 1 above the unit interval."""
    return float(special.betainc(alpha, beta, min(max(x, 0.0), 1.0)))


def pass_rate_ends(successes: float, failures: float) -> tuple[float, float]:
    """The ends of the `CONFIDENCE` interval of a pass rate, by Jeffreys' prior Beta(1/2, 1/2).

    The lower end is 0 where nothing succeeded, and the upper 1 where nothing failed (Brown, Cai and DasGupta 2001): many tasks
    are always or never solved, and the central interval of a posterior leaves these rates out.
    """
    tail, alpha, beta = (1 - CONFIDENCE) / 2, successes + 0.5, failures + 0.5
    low = float(special.betaincinv(alpha, beta, tail)) if successes else 0.0
    return low, float(special.betaincinv(alpha, beta, 1 - tail)) if failures else 1.0
