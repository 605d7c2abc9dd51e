"""What the dashboard is pointed at, and the names of it in addresses."""

import shutil

import pytest

from tracewheel.core.errors import DataError
from tracewheel.dashboard.library import Library, NotThere, entry_path


def test_a_work_folder_shows_its_runs_and_a_run_only_itself(shown, run_ids):
    assert {run for _, run in Library([shown]).runs()} == set(run_ids)
    assert [run for _, run in Library([shown / run_ids[1]]).runs()] == [run_ids[1]]
    assert {run for _, run in Library([shown / run_ids[1], shown]).runs()} == set(run_ids)
    assert {run for _, run in Library([shown / run for run in run_ids]).runs()} == set(run_ids)
    with pytest.raises(NotThere):
        Library([shown / run_ids[1]]).run("demo", run_ids[0])


def test_folders_of_one_name_have_two_addresses(shown, tmp_path):
    other = tmp_path / "demo"
    other.mkdir()
    names = list(Library([shown, other]).places)
    assert names[0] == "demo" and names[1].startswith("demo-")
    assert names == list(Library([shown, other]).places), "an address stays what it is"


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such folder; give a work folder"):
        Library([tmp_path / "nothing"])


@pytest.mark.parametrize("name", ["..", ".", "../demo", "store", "%2e%2e", "", "ABCD", "abcdef\n", "0" * 65, "/etc", "~", "*"])
def test_a_name_that_leads_elsewhere_is_not_there(library, name):
    with pytest.raises(NotThere):
        library.run("demo", name)
    with pytest.raises(NotThere):
        library.run(name, "00aa")


@pytest.mark.parametrize(
    "name", ["../store", "ingest-../../..", "..", "", ".facts", "evaluate-", "evaluate-zzzzzzzzzzzz", "-00000000"]
)
def test_an_entry_is_one_that_the_run_asked_for(library, run_ids, name):
    with pytest.raises(NotThere):
        entry_path(library.run("demo", run_ids[0]), name)


def test_an_entry_that_was_freed_is_said_to_be(shown, tmp_path, run_ids):
    copy = tmp_path / "demo"
    shutil.copytree(shown, copy)
    run = Library([copy]).run("demo", run_ids[0])
    entry = next(run.of_stage("rollout"))
    assert entry_path(run, entry.name) == entry.path
    shutil.rmtree(entry.path)
    with pytest.raises(NotThere, match="no longer has it"):
        entry_path(run, entry.name)
