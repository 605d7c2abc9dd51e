"""docs/datasets.md lists the columns of the files in their order."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tracewheel.core.types import Task, Trace
from tracewheel.curation.curate import RATE_COLUMNS
from tracewheel.curation.curated_folder import OUTCOME_COLUMNS
from tracewheel.curation.difficulty import COUNTED_COLUMNS
from tracewheel.curation.episode_writer import DEMONSTRATION_COLUMNS, FLAN_COLUMNS, KNOWN_COLUMNS
from tracewheel.curation.labels import LABEL_COLUMNS
from tracewheel.curation.message_pairs import PAIR_COLUMNS
from tracewheel.environments.recorded.build import COLUMNS

PAGE = (Path(__file__).parents[3] / "docs/datasets.md").read_text()
VERSION = ("schema_version",)


def documented(heading):
    """The columns in the table under a heading, with their types."""
    section = re.split(r"(?m)^#+ ", PAGE.partition(f"# {heading}\n")[2])[0]
    return dict(re.findall(r"(?m)^\| `(\w+)` \| ([\w ]+) \| \S", section))


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("`traces.parquet`", [field.name for field in fields(Trace)]),
        ("`episodes.parquet`", KNOWN_COLUMNS),
        ("Labels", LABEL_COLUMNS),
        ("`counted.parquet`", COUNTED_COLUMNS),
        ("`outcomes.parquet`", OUTCOME_COLUMNS),
        ("`calls.parquet`", COLUMNS),
        ("`demonstrations.parquet`", DEMONSTRATION_COLUMNS + VERSION),
        ("`agent_flan.parquet`", FLAN_COLUMNS + VERSION),
        ("`preference_pairs.parquet`", PAIR_COLUMNS + VERSION),
    ],
)
def test_a_table_has_every_column(heading, columns):
    assert list(documented(heading)) == list(columns)


def test_tasks_have_the_columns_of_the_record_and_those_of_curation():
    columns = list(documented("`tasks.parquet`"))
    assert columns[: len(fields(Task))] == [field.name for field in fields(Task)]
    assert columns[len(fields(Task)) :] == [*RATE_COLUMNS, "component", "split"]


@pytest.mark.parametrize(("heading", "record"), [("`traces.parquet`", Trace), ("`tasks.parquet`", Task)])
def test_json_columns_are_documented_as_such(heading, record):
    said = {name for name, kind in documented(heading).items() if kind == "JSON text"}
    assert said == set(record.JSON_FIELDS)
