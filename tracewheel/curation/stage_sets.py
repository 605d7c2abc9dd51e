"""Training sets made from labelled episodes: demonstrations, Agent-FLAN classes, preference pairs, hindsight.

They hold only episodes of the training split. Each set is a Parquet file of chat messages as JSON text, for Tracewheel's own
stages and for other trainers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tracewheel.chat.faithful import BROKEN_CALL
from tracewheel.config.curation import SetsConfig
from tracewheel.core.types import Task, content_hash
from tracewheel.curation.agent_flan import CLASSES, flan_example
from tracewheel.curation.curated_folder import TRAIN
from tracewheel.curation.hindsight import hindsight_episodes
from tracewheel.curation.labels import VERIFIED
from tracewheel.curation.message_pairs import preference_pairs
from tracewheel.curation.openings import opening_lengths
from tracewheel.environments.recorded.calls import has_broken_call

if TYPE_CHECKING:
    import pandas

DEMONSTRATIONS, FLAN, PAIRS, HINDSIGHT = "demonstrations", "agent_flan", "preference_pairs", "hindsight"
PAIRS_PER_TASK = 8  # preference pairs
DEMONSTRATION_COLUMNS = ("id", "task_id", "trace_id", "outcome_source", "label", "opening", "messages", "tools")
FLAN_COLUMNS = ("id", "task_id", "trace_id", "class", "opening", "messages", "tools")
SET_VERSION = 1


def stage_sets(
    tasks: pandas.DataFrame,
    episodes: pandas.DataFrame,
    config: SetsConfig | None = None,
) -> tuple[dict[str, pandas.DataFrame], dict[str, Any]]:
    """Make the sets of a curated data set.

    Args:
        tasks: Task records with `split`.
        episodes: As the curation stage writes them, with the columns of `label_episodes`.
        config: Which sources of outcomes are trusted, and which pairs are made.

    Returns:
        A frame for each set, by name: `demonstrations`, `agent_flan`, `preference_pairs` and `hindsight`. And a report with
        the rows of each, the Agent-FLAN rows by class, the report on the pairs, and successes `left_out` by reason.
    """
    config = config or SetsConfig()
    training = episodes[episodes["split"] == TRAIN].sort_values(["task_id", "trace_id"])
    training = training.assign(opening=opening_lengths(training))
    good = training[training["outcome_source"].isin(config.sources) & (training["label"] >= 1.0)]
    broken = good["messages"].map(lambda messages: has_broken_call(json.loads(messages))).astype(bool)
    good = good[~broken]
    demonstrations = _demonstrations(good)
    flan = _flan(good)
    pairs, pair_report = preference_pairs(training, per_task=PAIRS_PER_TASK, margin=1.0, shared="auto")
    hindsight = _demonstrations(_hindsight(tasks, training))
    sets = {DEMONSTRATIONS: demonstrations, FLAN: flan, PAIRS: pairs, HINDSIGHT: hindsight}
    sets = {name: frame.assign(schema_version=SET_VERSION) for name, frame in sets.items()}
    report = {
        "rows": {name: len(frame) for name, frame in sets.items()},
        "agent_flan": {str(name): int(count) for name, count in sorted(flan["class"].value_counts().items())},
        "preference_pairs": pair_report,
        "left_out": {BROKEN_CALL: int(broken.sum())} if broken.any() else {},
    }
    return sets, report


class SetsWriter:
    """Writes the sets of a data set in parts, as `<name>.parquet`. All episodes of a task must be in one part.

    Args:
        tasks: Task records with `split`.
        out: The folder.
        config: As in `stage_sets`.
    """

    def __init__(self, tasks: pandas.DataFrame, out: Path, config: SetsConfig | None = None) -> None:
        self._tasks, self._out, self._config = tasks, out, config
        self._writers: dict[str, Any] = {}
        self._report: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._out.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def add(self, episodes: pandas.DataFrame) -> None:
        """Add the episodes of some tasks."""
        import pyarrow
        import pyarrow.parquet

        if self._writers and not (episodes["split"] == TRAIN).any():
            return
        sets, report = stage_sets(self._tasks, episodes, self._config)
        self._report = _sum(self._report, report)
        for name, frame in sets.items():
            schema = pyarrow.schema([(column, _kind(column)) for column in frame.columns])
            if name not in self._writers:
                self._writers[name] = pyarrow.parquet.ParquetWriter(self._out / f"{name}.parquet", schema)
            self._writers[name].write_table(pyarrow.Table.from_pandas(frame, schema=schema, preserve_index=False))

    def report(self) -> dict[str, Any]:
        """The report of `stage_sets` over all parts."""
        return self._report


def _kind(column: str) -> Any:
    import pyarrow

    numbers = dict.fromkeys(("label", "margin"), pyarrow.float64())
    counts = dict.fromkeys(("step", "opening", "schema_version"), pyarrow.int64())
    return (numbers | counts).get(column, pyarrow.string())


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The sum of two nested mappings of counts."""
    added = dict(one)
    for name, value in other.items():
        added[name] = _sum(one.get(name, {}), value) if isinstance(value, dict) else one.get(name, 0) + value
    return added


def _demonstrations(episodes: pandas.DataFrame) -> pandas.DataFrame:
    """Whole episodes without repetitions, which would only add weight."""
    identities = [content_hash([spoken, tools]) for spoken, tools in zip(episodes["messages"], episodes["tools"], strict=True)]
    rows = episodes.assign(id=identities).drop_duplicates("id")
    return rows[list(DEMONSTRATION_COLUMNS)].reset_index(drop=True)


def _flan(episodes: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    rows: dict[str, tuple[Any, ...]] = {}
    for kind in CLASSES:
        columns = episodes[["task_id", "trace_id", "messages", "tools", "opening"]]
        for task_id, trace_id, spoken, offered, opening in columns.itertuples(index=False, name=None):
            example = flan_example(kind, json.loads(spoken), json.loads(offered), opening)
            if example is None:
                continue
            messages, tools = (json.dumps(part, ensure_ascii=False) for part in example[:2])
            identity = content_hash([kind, messages, tools])
            rows.setdefault(identity, (identity, task_id, trace_id, kind, example.context, messages, tools))
    return pandas.DataFrame(list(rows.values()), columns=list(FLAN_COLUMNS))


def _hindsight(tasks: pandas.DataFrame, training: pandas.DataFrame) -> pandas.DataFrame:
    """Failed episodes as successes of the goals they reached, where the environment can read a goal from a final state."""
    # Hindsight reads `success`; the label is the outcome that counts.
    failed = training[training["outcome_source"] == VERIFIED]
    own = tasks[(tasks["split"] == TRAIN) & tasks["id"].isin(failed["task_id"])]
    records = [{str(name): value for name, value in row.items()} for row in own.to_dict("records")]
    by_id = {record["id"]: Task.from_record(record) for record in records}
    taken = set(tasks.loc[tasks["split"] != TRAIN, "fingerprint"])
    failed = failed[failed["task_id"].isin(list(by_id))]
    found = hindsight_episodes(failed.assign(success=failed["label"]), by_id, taken)
    return found.assign(outcome_source=VERIFIED, label=found["success"])
