"""Scores in logs: which is the outcome, which a judge's opinion, and which is neither."""

import copy
import json
from pathlib import Path

import pytest

from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.spool import Spool
from tracewheel_logs.scores import LoggedScore, judged_of, outcome_of

OTEL = json.loads((Path(__file__).parent / "samples/otel.json").read_text())
SAMPLES = json.loads(Path(__file__).with_name("samples.json").read_text())


def read(*values):
    """The trace of values, one a line."""
    pieces = [Piece(json.dumps(value).encode(), number, 0) for number, value in enumerate(values, start=1)]
    with Spool() as spool:
        reader = LogReader("auto", spool)
        (trace,) = [*reader.read(pieces, "log"), *(item for _, item in reader.spooled())]
    return trace


def langfuse(*scores):
    record = copy.deepcopy(SAMPLES["records"]["langfuse"])
    record["trace"]["scores"] = list(scores)
    record["observations"].append({"id": "root", "type": "SPAN", "parentObservationId": None})
    for observation in record["observations"][:-1]:
        observation["parentObservationId"] = "root"
    return read(record)


def mlflow(*assessments):
    record = copy.deepcopy(SAMPLES["records"]["mlflow"])
    record["info"]["assessments"] = list(assessments)
    return read(record)


def otel(*events, place=0):
    spans = copy.deepcopy(OTEL)
    spans[place]["events"] = [
        {"name": "gen_ai.evaluation.result", "attributes": {f"gen_ai.evaluation.{key}": value for key, value in event.items()}}
        for event in events
    ]
    return read(*spans)


def phoenix(*annotations, place=0):
    spans = copy.deepcopy(SAMPLES["spans"]["openinference"])
    spans[place]["annotations"] = list(annotations)
    return read(*spans)


def numeric(name, value, source, **more):
    return {"name": name, "value": value, "source": source, "dataType": "NUMERIC", "stringValue": None, **more}


def feedback(name, value, source, **more):
    return {"assessment_name": name, "source": {"source_type": source}, "feedback": {"value": value}, "valid": True, **more}


def note(name, score, kind, label=None):
    return {"name": name, "annotator_kind": kind, "result": {"score": score, "label": label}}


CASES = {
    # The logged outcome, and the judgement.
    "a program's score is the outcome": (langfuse, [numeric("correctness", 0.5, "API")], 0.5, None),
    "a model's is a judgement and no outcome": (langfuse, [numeric("correctness", 0, "EVAL")], None, 0.0),
    "a person's is": (langfuse, [numeric("Goal Accuracy", 1, "ANNOTATION")], None, 1.0),
    "a person goes before a model": (
        langfuse, [numeric("reward", 0, "ANNOTATION"), numeric("reward", 1, "EVAL")], None, 0.0,
    ),
    "the more telling name goes before": (
        langfuse, [numeric("task-completion", 0.2, "EVAL"), numeric("success", 0.9, "EVAL")], None, 0.9,
    ),
    "both": (langfuse, [numeric("reward", 1, "API"), numeric("reward", 0.25, "EVAL")], 1.0, 0.25),
    "toxicity is no success": (langfuse, [numeric("toxicity", 0.8, "EVAL")], None, None),
    "another scale": (langfuse, [numeric("score", 4, "EVAL")], None, None),
    "a step of it": (langfuse, [numeric("score", 1, "EVAL", observationId="a"), numeric("reward", 1, "API", observationId="a")],
        None, None),
    "its outermost step": (langfuse, [numeric("score", 1, "EVAL", observationId="root")], None, 1.0),
    "a category by its name": (
        langfuse, [numeric("correctness", 1, "EVAL") | {"dataType": "CATEGORICAL", "stringValue": "incorrect"}], None, 0.0,
    ),
    "a category that is no yes or no": (
        langfuse, [numeric("correctness", 1, "EVAL") | {"dataType": "CATEGORICAL", "stringValue": "partly"}], None, None,
    ),
    "a truth": (
        langfuse, [numeric("success", 1, "ANNOTATION") | {"dataType": "BOOLEAN", "stringValue": "True"}], None, 1.0,
    ),
    "mlflow, code": (mlflow, [feedback("total", 0.5, "CODE")], 0.5, None),
    "mlflow, judge": (mlflow, [feedback("correctness", "yes", "LLM_JUDGE")], None, 1.0),
    "mlflow, person": (mlflow, [feedback("success", False, "HUMAN"), feedback("success", "yes", "LLM_JUDGE")], None, 0.0),
    "mlflow, replaced": (
        mlflow, [feedback("success", 1.0, "HUMAN", valid=False), feedback("total", 1.0, "CODE", valid=False)], None, None,
    ),
    "mlflow, of a span": (mlflow, [feedback("success", 1.0, "HUMAN", span_id="b")], None, None),
    "mlflow, what should come out": (
        mlflow, [{"assessment_name": "success", "source": {"source_type": "HUMAN"}, "expectation": {"value": 1.0}}], None, None,
    ),
    "otel, on the agent": (otel, [{"name": "correctness", "score.value": 0.75}], None, 0.75),
    "otel, a label": (otel, [{"name": "correctness", "score.value": 4.0, "score.label": "fail"}], None, 0.0),
    "phoenix, model": (phoenix, [note("correctness", 0.0, "LLM", "incorrect")], None, 0.0),
    "phoenix, person": (phoenix, [note("correctness", None, "HUMAN", "correct")], None, 1.0),
    "phoenix, code": (phoenix, [note("correctness", 1.0, "CODE")], 1.0, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_outcomes_and_judgements_are_distinguished(case):
    make, scores, outcome, judged = CASES[case]
    trace = make(*scores)
    assert (trace.outcome, trace.info.get("judged")) == (outcome, judged)


@pytest.mark.parametrize(
    ("make", "said"), [(otel, {"name": "score", "score.value": 1.0}), (phoenix, note("score", 1.0, "LLM"))]
)
def test_scores_of_inner_spans_do_not_count_for_the_trace(make, said):
    trace = make(said, place=-1)
    assert (trace.outcome, "judged" in trace.info) == (None, False)
    assert [(score["name"], score["of"]) for score in trace.info["scores"]] == [("score", "step")]


def test_all_scores_are_kept_as_they_were_logged():
    trace = langfuse(numeric("toxicity", 0.8, "EVAL"), numeric("reward", 1, "API"))
    assert trace.info["scores"] == [{"name": "toxicity", "value": 0.8, "judge": "model"}, {"name": "reward", "value": 1}]
    assert otel({"name": "tone", "score.label": "kind"}).info["scores"] == [
        {"name": "tone", "value": None, "judge": "model", "label": "kind"}
    ]


def test_feedback_written_by_mlflow_is_read():
    entities = pytest.importorskip("mlflow.entities")
    sources = {kind: entities.AssessmentSource(kind, "x") for kind in ("HUMAN", "LLM_JUDGE", "CODE")}
    made = [
        entities.Feedback(name="correctness", value="no", source=sources["LLM_JUDGE"], trace_id="t"),
        entities.Feedback(name="total", value=0.5, source=sources["CODE"], trace_id="t"),
        entities.Expectation(name="success", value=1.0, source=sources["HUMAN"], trace_id="t"),
    ]
    trace = mlflow(*(one.to_dictionary() for one in made))
    assert (trace.outcome, trace.info["judged"]) == (0.5, 0.0)


@pytest.mark.parametrize("value", [None, "", "maybe", [], {}, float("nan"), -0.5, 1.5, float("inf")])
def test_unusable_values_are_no_judgement(value):
    for judge in ("person", "model"):
        assert judged_of([LoggedScore("success", value, judge)]) is None
    assert outcome_of([LoggedScore("success", 1.0, "model"), LoggedScore(None, 1.0), LoggedScore(3, 1.0)]) is None
