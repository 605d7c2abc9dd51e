"""Runs side by side: what is shared is paired, and what is not is counted."""

import json
from itertools import product

import numpy as np
import pytest

from tracewheel.comparison.compare import check_runs, compare_runs
from tracewheel.comparison.compare_page import sections_of, title_of
from tracewheel.comparison.document import to_markdown
from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import DataError
from tracewheel.core.run_record import run_named
from tracewheel.dashboard.files import document_file

TASKS = [f"{family}-{number}" for family, number in product(("list", "move"), range(4))]
NOBODY = dict.fromkeys(TASKS, 0.0)


@pytest.fixture
def two(write_run):
    """A base that solves list-0 and list-1; a run that solves list-0 and move-1, trains on move-3 and holds out move-4."""
    base = {**NOBODY, "list-0": 1.0, "list-1": 1.0}
    run = {name: value for name, value in {**NOBODY, "list-0": 1.0, "move-1": 1.0, "move-4": 1.0}.items() if name != "move-3"}
    splits = {**dict.fromkeys(run, "held_out"), "move-3": "train"}
    records = write_run("aaaa", base, NOBODY, words="left"), write_run("bbbb", run, NOBODY, splits=splits, words="right")
    return [FinishedRun(run_named(str(record))) for record in records]


def test_only_shared_tasks_are_paired_and_the_others_are_counted(two):
    found = compare_runs(two)["comparisons"][0]
    part = found["splits"]["held_out"]
    assert part["shared"] == 7
    assert part["only_base"] == {"tasks": 1, "in_run": {"train": 1}}
    assert part["only_run"] == {"tasks": 1, "in_base": {"not in its data": 1}}
    rows = {row["family"]: row for row in part["paired"]["rows"]}
    assert {name: (row["tasks"], row["difference"]) for name, row in rows.items()} == {
        "all families": (7, 0.0),
        "list": (4, -0.25),
        "move": (3, pytest.approx(1 / 3)),
    }
    assert rows["list"]["interval"][0] < -0.25 < rows["list"]["interval"][1]


def test_lost_and_gained_tasks_show_where_their_episodes_part(two):
    found = compare_runs(two)["comparisons"][0]
    assert (found["gained"], found["lost"]) == (1, 1)
    lost, gained = found["changes"]
    assert (lost["change"], lost["task_id"], gained["task_id"]) == ("lost", "list-1", "move-1")
    assert lost["run"]["file"] == f"evaluate-{'3' * 16}/greedy/trajectories.parquet"
    assert lost["base"]["trajectory"] == "left-list-1"
    excerpt = lost["excerpt"]
    assert excerpt["parts_at"] == 3
    assert excerpt["run"]["turns"][0] == "3 assistant: right"
    assert excerpt["base"]["scored"] == "the verifier's words"
    assert excerpt["final_state"] == [["files./a", "left", "right"]]


def test_p_values_are_those_of_all_sign_flips(two):
    from tracewheel.comparison.paired import paired_differences
    from tracewheel.core.files import read_table

    tables = [read_table(run.evaluation("rl").path / "results.parquet") for run in reversed(two)]
    row = paired_differences(*tables, greedy_weight=1.0)["rows"][2]
    differences = np.array([0.0, 1.0, 0.0])
    sums = [np.dot(signs, differences) for signs in product((-1, 1), repeat=3)]
    assert row["p"] == min(1.0, 2 * np.mean(np.array(sums) >= 1.0))


def test_other_sampling_is_compared_greedily_and_another_meaning_of_success_not_at_all(write_run):
    outcome = {"list-0": 1.0, "list-1": 0.0}
    base = write_run("aaaa", outcome, outcome)
    hotter = write_run(
        "bbbb", outcome, outcome, settings={"evaluation": {"samples": 4, "temperature": 0.7, "top_p": 1.0}, "seed": 1}
    )
    other = write_run("cccc", outcome, outcome, settings={"environment": {"kind": "orders"}})
    found = compare_runs([FinishedRun(run_named(str(record))) for record in (base, hotter, other)])
    second, third = found["comparisons"]
    assert second["not_paired"] == []
    assert not second["splits"]["held_out"]["paired"]["sampled"]
    assert [note.split(":")[0] for note in second["notes"]] == [
        "sampled episodes are not compared",
        "evaluation.samples 2 / 4",
        "seed 0 and 1",
    ]
    assert third["splits"]["held_out"]["paired"] is None
    assert third["not_paired"] == ["success means something else: environment.kind workspace / orders"]
    assert {row["name"] for row in found["config"]} == {
        "evaluation.samples",
        "evaluation.temperature",
        "seed",
        "environment.kind",
    }


def test_every_format_shows_the_same_and_text_stays_text(two, write_run):
    found = compare_runs(two)
    found["comparisons"][0]["changes"][0]["prompt"] = "<script>alert(1)</script> | `x`"
    title, sections = title_of(found), sections_of(found)
    page, text = document_file(title, sections), to_markdown(title, sections)
    assert "<script>" not in page
    assert "<script>" not in text
    for words in ("list-1", "not in its data", "bbbb minus aaaa"):
        assert words in page
        assert words in text
    assert json.loads(json.dumps(found)) == found


def test_runs_are_found_by_folder_work_folder_and_id(two, tmp_path):
    record = two[0].record.path
    assert run_named(str(record.parent)).path == record
    assert run_named("aa", record.parent).path == record
    with pytest.raises(DataError, match="no run of that id in .*it has aaaa"):
        run_named("cc", record.parent)
    with pytest.raises(DataError, match="neither a run's folder"):
        run_named(str(tmp_path / "work-aaaa" / "store"))
    with pytest.raises(DataError, match="named twice"):
        check_runs([two[0], two[0]])


def test_a_lost_evaluation_is_said(two):
    from tracewheel.core.store import remove

    remove(two[0].store / f"evaluate-{'3' * 16}")
    found = compare_runs([FinishedRun(two[0].record), two[1]])["comparisons"][0]
    assert "no evaluation of rl on held_out tasks is known of aaaa" in found["not_paired"][0]
    assert found["changes"] == []
