"""Why a curation finds no task: the most frequent reasons, each with an example, or what a recorded world lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.files import read_table
from tracewheel.curation.agreement import OTHER_REPLIES
from tracewheel.curation.probes import Probe
from tracewheel.curation.replay import NOT_TRIED
from tracewheel.curation.replayed_traces import ReplayedTraces

if TYPE_CHECKING:
    import pandas


def why_no_task(traces: Path, replayed: ReplayedTraces, probes: Mapping[str, Probe], kind: str) -> str:
    """Why no trace gives a task for the environment `kind`."""
    rows, recorded = replayed.rows, replayed.recorded
    if recorded and (rows.empty or not recorded["traces"]["success"]):
        return f"no trace gives a task for the environment '{kind}': {without_task(recorded)}"
    why = rows["dropped"].where(rows["dropped"] != "", rows["task_id"].map(_in_words(probes)))
    none = f"none of the {len(rows)} traces gives a task for the environment '{kind}'"
    return "; ".join([none, *_most_frequent(why.dropna(), rows, traces)])


def without_score(traces: Path, episodes: pandas.DataFrame) -> list[str]:
    """Why replayed episodes have no score, the most frequent reasons; not those whose replies are not as logged.

    Args:
        traces: The ingested traces.
        episodes: Their `id`, `unscored` and `success`. One that the verifier cannot judge may have the log's outcome.
    """
    why = episodes.loc[episodes["success"].isna(), "unscored"]
    return _most_frequent(why[~why.isin(("", OTHER_REPLIES, NOT_TRIED))], episodes, traces)


def _most_frequent(why: pandas.Series, rows: pandas.DataFrame, traces: Path) -> list[str]:
    """The most frequent reasons of some rows, each with the place of an example in its log."""
    examples = rows["id"].reindex(why.index).groupby(why).first()
    return [f"{count} of them: {reason} ({_place(traces, examples[reason])})" for reason, count in Counter(why).most_common(3)]


def _in_words(probes: Mapping[str, Probe]) -> dict[str, str]:
    return {name: f"{probe.verdict}: {probe.reason}" for name, probe in probes.items() if not probe.valid}


def without_task(recorded: Mapping[str, Any]) -> str:
    """Why a recorded environment has no task, and the ways on.

    Args:
        recorded: What became of the traces (`recorded_episodes`).
    """
    outcomes = recorded["traces"]
    known, traces = outcomes["success"] + outcomes["failure"], sum(outcomes.values())
    if outcomes["success"]:
        left_out = "; ".join(f"{count} left out: {reason}" for reason, count in recorded["left_out"].items())
        return f"{outcomes['success']} of {traces} traces are successes; {left_out}"
    if known:
        cause = f"{known} of {traces} traces have an outcome, and none is a success (1 or more)"
        first = "take the right field, or one on a scale that ends at 1, with ingest.fields.outcome"
    else:
        cause = f"none of {traces} traces has an outcome, and its tasks come from successes"
        first = (
            "name the field that holds it with ingest.fields.outcome, or a file of outcomes that came later with "
            "ingest.outcomes.paths (docs/traces.md)"
        )
    return (
        f"{cause}. Ways on: {first}; let a judge score the traces and log its score as the outcome "
        "(plugins/graders/docs/judges.md); collect "
        "people's feedback and see it with `tracewheel runs labels`; or give an environment, whose verifier decides "
        "(docs/your-environment.md)"
    )


def _place(traces: Path, trace_id: str) -> str:
    """Where a trace stands in its log."""
    rows = read_table(traces, columns=["id", "source_file", "source_line"])
    found = rows[rows["id"] == trace_id]
    if found.empty:  # a turn of a trace, in a recorded environment
        return f"first: {trace_id}"
    row = found.iloc[0]
    return f"first: {row['source_file']}:{row['source_line']}"
