"""Rows of Langfuse's APIs: observations of v2 with what they say of their trace, and scores of v1 to v3."""

import json
from pathlib import Path

import pandas
import pytest

from tests.tracewheel.traces.readers.logged import read
from tracewheel.config import IngestConfig
from tracewheel.core.types import Trace
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.quarantine import Quarantined

*ROWS, SCORE = map(json.loads, Path(__file__).with_name("langfuse_rows.jsonl").read_text().splitlines())
TEXT = [
    {**row, **{side: row[side] if isinstance(row[side], str) else json.dumps(row[side]) for side in ("input", "output")}}
    for row in ROWS
]
OF_V3 = {"id": "sc-9", "projectId": "p-1", "name": "success", "source": "API", "timestamp": "2026-11-02T09:00:00.000Z"}


def page(rows):
    return {"data": rows, "meta": {"cursor": None}}


@pytest.mark.parametrize("values", [ROWS, ROWS[::-1], TEXT, [page(ROWS)], [page(TEXT)], [page(ROWS[:2]), page(ROWS)]])
@pytest.mark.parametrize("format", ["auto", "langfuse"])
def test_observations_are_gathered_into_their_trace(values, format):
    (trace,) = read(*values, SCORE, format=format)
    assert isinstance(trace, Trace), trace
    assert [message["role"] for message in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert (trace.id, trace.session, trace.user, trace.outcome) == ("tr-1", "s-1", "u-1", 1.0)
    assert (trace.created, trace.model, trace.info["name"]) == ("2026-11-01T08:00:00.000Z", "shed-1", "shed")


OF_TRACE = {"kind": "trace", "id": "tr-1"}
OF_ROOT, OF_STEP = ({"kind": "observation", "id": name, "traceId": "tr-1"} for name in ("ob-0", "ob-1"))


@pytest.mark.parametrize(
    ("score", "outcome", "judged"),
    [
        ({"dataType": "BOOLEAN", "value": True, "subject": OF_TRACE}, 1.0, None),
        ({"dataType": "NUMERIC", "value": 0.5, "subject": OF_TRACE}, 0.5, None),
        ({"dataType": "BOOLEAN", "value": False, "subject": OF_ROOT}, 0.0, None),
        ({"dataType": "BOOLEAN", "value": True, "subject": OF_STEP}, None, None),
        ({"dataType": "CATEGORICAL", "value": "pass", "source": "ANNOTATION", "subject": OF_TRACE}, None, 1.0),
    ],
)
def test_a_score_of_v3_names_what_it_scores_and_has_one_typed_value(score, outcome, judged):
    (trace,) = read(page(ROWS), page([{**OF_V3, **score}]))
    assert (trace.outcome, trace.info.get("judged")) == (outcome, judged)
    assert trace.info["scores"][0]["value"] == score["value"]


def ingested(folder, *values):
    """Ingest values as one more file of a folder; the traces then."""
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    (logs / f"{len(list(logs.iterdir()))}.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
    report = ingest_new(IngestConfig(paths=(str(logs),)), folder / "out")
    return pandas.read_parquet(folder / "out/traces.parquet").to_dict("records"), report


def test_scores_that_come_later_are_joined_by_trace_and_by_session(tmp_path):
    ((trace,), _) = ingested(tmp_path, *ROWS)
    assert pandas.isna(trace["outcome"])
    ((trace,), report) = ingested(tmp_path, SCORE)
    assert (trace["outcome"], report["quarantined"], report["outcomes"]["traces"]) == (1.0, 0, 1)
    later = {"timestamp": "2026-11-03T09:00:00.000Z", "dataType": "BOOLEAN", "value": False}
    ((trace,), _) = ingested(tmp_path, page([{**OF_V3, **later, "subject": {"kind": "session", "id": "s-1"}}]))
    assert trace["outcome"] == 0.0
    label = {"source": "ANNOTATION", "dataType": "CATEGORICAL", "value": "pass", "subject": OF_TRACE}
    ((trace,), report) = ingested(tmp_path, {**OF_V3, **label})
    assert (trace["outcome"], report["outcomes"]["kinds"]) == (0.0, {"verified": 2, "label": 1})


def test_scores_of_other_names_and_of_steps_say_nothing_and_a_score_of_nothing_is_put_aside(tmp_path):
    for score in ({**SCORE, "name": "toxicity"}, {**SCORE, "observationId": "ob-1"}):
        assert read(score) == []
    (item,) = read({**OF_V3, "dataType": "NUMERIC", "value": 1, "subject": {"kind": "experiment", "id": "e-1"}})
    assert isinstance(item, Quarantined)
    assert "of no trace" in item.detail
