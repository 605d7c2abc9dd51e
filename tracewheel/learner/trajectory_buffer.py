"""The trajectory buffer: scored trajectories of earlier iterations, to be mixed into an update."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tracewheel.config import BufferConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table

if TYPE_CHECKING:
    import pandas as pd

ITERATION, VERSION = "buffered_iteration", "buffered_version"
REQUIRED = ("id", "total", "policy_version", "logprobs", ITERATION)
LEAST_SHARE = 0.1  # of the best row's weight: failures are drawn rarely, but not never

CAPACITY = 1024  # trajectories
HALF_LIFE = 2.0  # policy versions


class TrajectoryBuffer:
    """The last `capacity` scored trajectories, oldest out first.

    Rows keep all their columns: behaviour log-probabilities, policy versions, and those that the learner added, such as
    the advantages within their own group. `OffPolicyConfig` says how the learner corrects for their age.

    The age of a row's advantages is the number of versions between the policy whose update they were computed for and the
    one that is updated now, not of iterations: after a return to an earlier policy its rows are new again.

    - `fifo` draws the newest rows; among rows of one age, at random.
    - `priority` draws without replacement. A row's weight is its reward, scaled to 0..1 over the buffer (at least
      `LEAST_SHARE`), halved every `half_life` versions of age.

    A draw depends only on the rows, the iteration and the random state, so a loaded buffer draws as the saved one.
    """

    def __init__(self, config: BufferConfig, *, capacity: int = CAPACITY, half_life: float = HALF_LIFE) -> None:
        self._config, self._capacity, self._half_life = config, capacity, half_life
        self._table: pd.DataFrame | None = None

    def add(self, rows: pd.DataFrame, iteration: int, *, version: int | None = None) -> None:
        """Add an iteration's rows; those without a finite `total` are left out.

        Args:
            rows: Trajectory rows joined with their scores: at least `id`, `total`, `policy_version`, `logprobs`.
            iteration: Number of the update they were rolled out for. A row replaces an older one with its id.
            version: Of the policy that this update starts from, as the run counts; default: the last one's.

        Raises:
            DataError: a column is missing.
        """
        import pandas as pd

        fresh = _plain(rows.assign(**{ITERATION: iteration, VERSION: iteration - 1 if version is None else version}))
        _check(fresh, "rows for the trajectory buffer")
        fresh = fresh[[math.isfinite(total) for total in fresh["total"].astype("float64")]]
        if fresh.empty:
            return
        table = fresh if self._table is None else pd.concat([self._table, fresh], ignore_index=True)
        table = table.drop_duplicates("id", keep="last")
        # Stable: of equal rows the earlier one is dropped.
        oldest_first = [ITERATION, "total"] if self._config.kind == "priority" else [ITERATION]
        self._table = table.sort_values(oldest_first, kind="stable").tail(self._capacity).reset_index(drop=True)

    def draw(self, n: int, iteration: int, rng: random.Random, *, version: int | None = None) -> pd.DataFrame:
        """At most `n` different rows of earlier iterations, in the order in which they were added.

        The column `buffered_iteration` is the iteration that added a row, `buffered_version` the version that it updated.
        An empty buffer gives an empty frame.

        Args:
            n: How many at most.
            iteration: Number of the update.
            rng: Its state.
            version: Of the policy that is updated, as the run counts; default: the last update's.
        """
        import pandas as pd

        if self._table is None:
            return pd.DataFrame()
        earlier = self._table[self._table[ITERATION] < iteration]
        draws = [-math.log1p(-rng.random()) for _ in range(len(earlier))]
        current = iteration - 1 if version is None else version
        ages = [abs(current - int(added)) for added in earlier[VERSION]]
        if self._config.kind == "priority":
            # The n smallest of E / weight, E standard exponential: a weighted draw without replacement
            # (Efraimidis and Spirakis 2006). In logarithms, because an old row's weight may round to 0.
            weights = self._log_weights(earlier["total"].astype("float64").tolist(), ages)
            keys: list[Any] = [math.log(max(draw, 1e-300)) - weight for draw, weight in zip(draws, weights, strict=True)]
        else:
            keys = list(zip(ages, draws, strict=True))
        chosen = sorted(range(len(keys)), key=lambda index: (keys[index], index))[:n]
        return earlier.iloc[sorted(chosen)].reset_index(drop=True)

    def save(self, path: Path) -> None:
        """Write the rows as Parquet; equal buffers give equal bytes."""
        import pandas as pd

        table = pd.DataFrame(columns=list(REQUIRED)) if self._table is None else self._table
        table.to_parquet(path, index=False)

    @classmethod
    def load(cls, config: BufferConfig, path: Path, **sizes: Any) -> Self:
        """Read what `save` wrote. A smaller capacity takes effect at the next `add`.

        Raises:
            DataError: the file is missing, or does not hold a buffer.
        """
        table = _plain(read_table(path))
        _check(table, str(path))
        if VERSION not in table:  # written before rows had it
            table = table.assign(**{VERSION: table[ITERATION] - 1})
        buffer = cls(config, **sizes)
        if len(table):
            buffer._table = table
        return buffer

    def _log_weights(self, rewards: list[float], ages: list[int]) -> list[float]:
        low, high = min(rewards, default=0.0), max(rewards, default=0.0)
        shares = [(reward - low) / (high - low) if high > low else 1.0 for reward in rewards]
        decay = math.log(2.0) / self._half_life
        return [math.log(max(share, LEAST_SHARE)) - decay * age for share, age in zip(shares, ages, strict=True)]


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Lists in place of Parquet's arrays, so that loaded rows equal added ones."""
    arrays = [name for name in table.columns if table[name].map(lambda value: hasattr(value, "tolist")).any()]
    nested = [name for name in arrays if table[name].dtype == object]
    plain = {name: table[name].map(lambda value: value.tolist() if hasattr(value, "tolist") else value) for name in nested}
    return table.assign(**plain)


def _check(table: pd.DataFrame, what: str) -> None:
    missing = [name for name in REQUIRED if name not in table.columns]
    if missing:
        raise DataError(f"{what}: no column {', '.join(missing)}; delete the file to start with an empty buffer")
