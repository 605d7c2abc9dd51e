"""What replay says of some traces before they are curated: the logged outcome beside the verified one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.config import CurateSections
from tracewheel.core.files import read_batches
from tracewheel.curation.contamination import BenchmarkIndex
from tracewheel.curation.replayed_traces import TRACES_AT_ONCE, Means, with_results
from tracewheel.curation.reuse.earlier_results import EarlierResults, NotRepeatable, silent
from tracewheel.environments.recorded.environment import PREFIX as RECORDED

if TYPE_CHECKING:
    import pandas
    import pyarrow

LOGGED = ("id", "user", "session", "task", "created", "format", "outcome", "source_file", "source_line")
REPLAYED = ("task_id", "fingerprint", "success", "reward_drift", "observation_drift", "dropped", "unscored", "failure")
PROVES_NOTHING = "a recorded environment proves no outcome"


def replayed_outcomes(
    parts: Collection[Path],
    config: CurateSections,
    reuse: Path | None = None,
    say: Callable[[str], None] = silent,
    of: Callable[[pyarrow.Table], Sequence[bool]] | None = None,
) -> pandas.DataFrame:
    """Replay the traces of some parts of traces.parquet.

    The results are kept in `reuse`, so the curation that follows with the same folder and settings does not replay these
    traces again. Longer versions of a conversation do not replace shorter ones here, as they do in a curation.

    Args:
        parts: Parquet files of traces, such as the new part of an ingested folder.
        config: `environment` and `curation` are used.
        reuse: The store's folder of results (`Store.reuse`).
        say: Takes a sentence about what is reused, and what is not.
        of: Which traces of a table are meant; by default all.

    Returns:
        [N] rows in the order of the parts, with `LOGGED` (`outcome` is the logged reward, NaN without one) and `REPLAYED`
        (`success` is the verified one, NaN where it is unscored, `unscored` says why; `reward_drift`: both known, but
        different; `observation_drift`: a tool replied otherwise than in the log; `dropped`: why the trace gives no episode,
        or ""). In a recorded environment, which proves nothing, all traces are `dropped`.
    """
    if config.environment.kind.startswith(RECORDED):
        return _frame([_logged(batch) for batch in selected(parts, of)]).assign(dropped=PROVES_NOTHING)
    with EarlierResults.opened(reuse, config, say) as kept:
        try:
            return _outcomes(selected(parts, of), config, kept)
        except NotRepeatable as error:
            assert kept is not None
            kept.distrust(str(error))
    return _outcomes(selected(parts, of), config, None)


def selected(parts: Collection[Path], of: Callable[[pyarrow.Table], Sequence[bool]] | None) -> Iterator[pyarrow.Table]:
    """The traces that are meant, some thousands at once, in the order of the parts; see `replayed_outcomes`."""
    import pyarrow

    for part in parts:
        for batch in read_batches(part, TRACES_AT_ONCE):
            table = pyarrow.Table.from_batches([batch])
            wanted = table if of is None else table.filter(pyarrow.array(of(table), type=pyarrow.bool_()))
            if len(wanted):
                yield wanted


def _outcomes(tables: Iterator[pyarrow.Table], config: CurateSections, kept: EarlierResults | None) -> pandas.DataFrame:
    benchmarks = config.curation.decontamination
    index = BenchmarkIndex.read(benchmarks) if kept and benchmarks.benchmarks else None
    batches = ((table, None) for table in tables)
    found = with_results(batches, (config.environment.spec, config.curation, index), Means(reuse=kept))
    frames = [_logged(batch).assign(**results.select(list(REPLAYED)).to_pandas()) for batch, _, results in found]
    if kept:
        kept.keep(whole=False)
    return _frame(frames)


def _logged(batch: pyarrow.Table) -> pandas.DataFrame:
    return batch.select([name for name in LOGGED if name in batch.column_names]).to_pandas().reindex(columns=list(LOGGED))


def _frame(parts: list[pandas.DataFrame]) -> pandas.DataFrame:
    import pandas

    columns = [*LOGGED, *REPLAYED]
    return pandas.concat(
        [part.reindex(columns=columns) for part in parts] or [pandas.DataFrame(columns=columns)], ignore_index=True
    )
