"""A table without rows has the columns of its record; one of an earlier version, without any, is read as empty."""

import pandas
import pyarrow.parquet
import pytest

from tracewheel.core.files import read_records, read_table, schema_of, write_records
from tracewheel.core.types import Score, Task, Trace, Trajectory
from tracewheel.evaluation.evaluate import RESULTS_FILE, write_evaluation
from tracewheel.scoring.score import read_scores, write_scores


@pytest.mark.parametrize("kind", [Trace, Task, Trajectory, Score])
def test_no_records_have_the_columns_of_their_kind(kind, tmp_path):
    write_records(tmp_path / "none.parquet", [], kind)
    stored = pyarrow.parquet.read_schema(tmp_path / "none.parquet")
    assert stored.equals(schema_of(kind)) and "null" not in map(str, stored.types)
    assert read_records(tmp_path / "none.parquet", kind) == []


def test_the_types_are_those_of_a_file_with_rows(tmp_path):
    write_records(tmp_path / "one.parquet", [Task("i", "e", "f", 1, "p", {}, {}, "v", "x")])
    stored = pyarrow.parquet.read_schema(tmp_path / "one.parquet")
    texts = {"string": "text", "large_string": "text"}
    assert [(field.name, texts.get(str(field.type), str(field.type))) for field in stored] == [
        (field.name, texts.get(str(field.type), str(field.type))) for field in schema_of(Task)
    ]


@pytest.mark.parametrize("baselines", [False, True])
def test_no_scores(baselines, tmp_path):
    write_scores(tmp_path / "scores.parquet", [], baselines=baselines)
    stored = pyarrow.parquet.read_schema(tmp_path / "scores.parquet")
    assert ("baseline" in stored.names) == baselines and "null" not in map(str, stored.types)
    assert read_scores(tmp_path / "scores.parquet") == []


def test_no_results(tmp_path):
    from tracewheel.config import EvaluationConfig, RubricConfig

    write_evaluation(EvaluationConfig(), RubricConfig(), [], {"greedy": [], "sampled": []}, tmp_path, {})
    assert "null" not in map(str, pyarrow.parquet.read_schema(tmp_path / RESULTS_FILE).types)
    assert list(read_table(tmp_path / RESULTS_FILE, ["task_id", "greedy"]).columns) == ["task_id", "greedy"]


def test_a_table_of_an_earlier_version_without_columns(tmp_path):
    pandas.DataFrame([]).to_parquet(tmp_path / "old.parquet", index=False)
    found = read_table(tmp_path / "old.parquet", ["task_id"])
    assert list(found.columns) == ["task_id"] and found.empty
    assert read_records(tmp_path / "old.parquet", Trajectory) == []


def test_without_records_the_kind_is_named(tmp_path):
    with pytest.raises(IndexError):
        write_records(tmp_path / "none.parquet", [])
