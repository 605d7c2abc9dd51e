"""How many held-out tasks two runs share, so that rates on other tasks are not read as pairs."""

import pandas
import pytest

from tasks.records.split_chain import remember_splits, shared_held_out
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import SPLITS_FILE, TASKS_FILE


@pytest.fixture
def complete(make_run):
    """A run whose curation holds out some tasks, remembered as the last complete one; and its curation."""

    def curated(run, held):
        def write(out):
            rows = [*((task, "held_out") for task in held), ("trained", "train")]
            pandas.DataFrame(rows, columns=["id", "split"]).to_parquet(out / TASKS_FILE)
            (out / SPLITS_FILE).write_bytes(b"")

        return run.store.make("curate", "-".join(held), write)

    def make(name, held, *, remembered=True):
        run = make_run(seed=len(name))
        entry = curated(run, held)
        if remembered:
            traces = Entry("ingest", name, entry.path, name, 0.0, {})
            remember_splits(run, traces, entry, None)
        return run, entry

    return make


def test_the_report_says_how_many_held_out_tasks_the_last_run_had_too(complete):
    first, entry = complete("a", ("t1", "t2", "t3"), remembered=False)
    assert shared_held_out(first, entry) is None
    last, _ = complete("a", ("t1", "t2", "t3"))
    run, entry = complete("bb", ("t2", "t3", "t4"), remembered=False)
    found = shared_held_out(run, entry)
    assert {name: found[name] for name in ("run", "tasks", "shared")} == {"run": last.record.run_id, "tasks": 3, "shared": 2}
    assert found["says"].startswith(f"2 of the 3 held-out tasks were also held out in run {last.record.run_id}: ")
    same, entry = complete("ccc", ("t1", "t2", "t3"), remembered=False)
    assert shared_held_out(same, entry)["says"] == f"The held-out tasks are those of run {last.record.run_id}."
    run.record.path.mkdir(parents=True, exist_ok=True)
    run.record.write("summary.json", {"held_out_shared": found})
    assert shared_held_out(run, entry) == found, "the report of a complete run is written again as it was"
