"""Differences between two versions of a data set: all planted changes are found, and nothing else."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.core.errors import DataError
from tracewheel_lab.dataset_diff import diff_datasets


def task(identity, **changes):
    values = {"fingerprint": f"f-{identity}", "split": "train", "tier": 2, "family": "a", "attempts": 4, "successes": 1}
    return {"id": identity, **values, "verifier": "v", **changes}


def episode(identity, **changes):
    return {"trace_id": identity, "task_id": "t1", "split": "train", "success": 0.0, "failure": "loop", **changes}


@pytest.fixture
def curated(tmp_path):
    def write(name, tasks, episodes):
        folder = tmp_path / name
        folder.mkdir()
        pd.DataFrame(tasks).to_parquet(folder / "tasks.parquet")
        pd.DataFrame(episodes).to_parquet(folder / "episodes.parquet")
        return folder

    return write


TASKS = [task("t1"), task("t2"), task("t3"), task("t4")]
EPISODES = [episode("e1"), episode("e2"), episode("e3", success=None, failure="")]


def test_equal_data_sets_are_the_same(curated):
    result = diff_datasets(curated("a", TASKS, EPISODES), curated("b", TASKS[::-1], EPISODES[::-1]))
    assert result["same"]
    assert result["counts"] == {"tasks": {"before": 4, "after": 4}, "episodes": {"before": 3, "after": 3}}


def test_added_removed_reworded_and_relabelled_tasks_are_distinguished(curated):
    after = [
        task("t1"),
        task("t2", split="held_out", tier=3),
        task("t3", attempts=8, successes=4),
        task("t4-in-other-words", fingerprint="f-t4"),
        task("t5"),
    ]
    episodes = [episode("e1", success=1.0, failure=""), episode("e3", success=None, failure=""), episode("e4")]
    result = diff_datasets(curated("a", [*TASKS, task("t0")], EPISODES), curated("b", after, episodes))
    tasks = result["tasks"]
    assert not result["same"]
    assert tasks["lists"] == {
        "added": ["t5"],
        "removed": ["t0"],
        "reworded": [{"before": "t4", "after": "t4-in-other-words"}],
        "changed": [
            {"id": "t2", "split": ["train", "held_out"], "tier": [2, 3]},
            {"id": "t3", "success_rate": [0.25, 0.5], "attempts": [4, 8]},
        ],
    }
    assert (tasks["added"], tasks["removed"], tasks["reworded"], tasks["changed"]) == (1, 1, 1, 2)
    assert tasks["by_label"] == {"attempts": 1, "split": 1, "success_rate": 1, "tier": 1}
    assert result["episodes"]["lists"] == {
        "added": ["e4"],
        "removed": ["e2"],
        "reworded": [],
        "changed": [{"id": "e1", "success": [0.0, 1.0], "failure": ["loop", ""]}],
    }


def test_unscored_is_not_0_and_equals_itself(curated):
    before = curated("a", TASKS, [episode("e1", success=None), episode("e2")])
    result = diff_datasets(before, curated("b", TASKS, [episode("e1", success=0.0), episode("e2", success=None)]))
    changed = result["episodes"]["lists"]["changed"]
    assert changed == [{"id": "e1", "success": [None, 0.0]}, {"id": "e2", "success": [0.0, None]}]
    assert diff_datasets(before, before)["same"]


def test_a_task_without_attempts_has_no_rate(curated):
    untried = [task("t1", attempts=0, successes=0)]
    result = diff_datasets(curated("a", untried, EPISODES), curated("b", [task("t1")], EPISODES))
    assert result["tasks"]["lists"]["changed"] == [{"id": "t1", "success_rate": [None, 0.25], "attempts": [0, 4]}]


def test_a_label_in_only_one_version_is_no_change(curated):
    labelled = [episode(row["trace_id"], label=1.0) for row in EPISODES]
    assert diff_datasets(curated("a", TASKS, labelled), curated("b", TASKS, [episode(f"e{n}") for n in (1, 2, 3)]))["same"]


def test_the_limit_cuts_lists_but_not_counts(curated):
    result = diff_datasets(curated("a", TASKS, EPISODES), curated("b", [task(f"n{n}") for n in range(9)], EPISODES), limit=2)
    assert result["tasks"]["added"] == 9 and result["tasks"]["lists"]["added"] == ["n0", "n1"]
    whole = diff_datasets(curated("c", TASKS, EPISODES), curated("d", [task("other")], EPISODES), limit=None)
    assert len(whole["tasks"]["lists"]["removed"]) == 4


def test_ingested_traces_are_compared_whether_one_file_or_a_folder_of_parts(tmp_path):
    rows = [
        {"id": f"t{n}", "outcome": float(n % 2), "session": "s", "user": None, "model": "m", "messages": "[]"} for n in range(4)
    ]
    one, other = tmp_path / "a", tmp_path / "b"
    one.mkdir()
    (other / "traces.parquet").mkdir(parents=True)
    pd.DataFrame(rows[:3]).to_parquet(one / "traces.parquet")
    changed = [{**rows[0], "outcome": 1.0}, *rows[1:]]
    for number, part in enumerate((changed[:2], changed[3:])):
        pd.DataFrame(part).to_parquet(other / f"traces.parquet/part-0000{number}.parquet")
    result = diff_datasets(one, other)
    assert result["counts"] == {"traces": {"before": 3, "after": 3}}
    assert result["traces"]["lists"]["added"] == ["t3"] and result["traces"]["lists"]["removed"] == ["t2"]
    assert result["traces"]["lists"]["changed"] == [{"id": "t0", "outcome": [0.0, 1.0]}]


def test_folders_that_cannot_be_compared_are_errors(curated, tmp_path):
    (tmp_path / "empty").mkdir()
    whole = curated("a", TASKS, EPISODES)
    with pytest.raises(DataError, match="empty: holds neither"):
        diff_datasets(whole, tmp_path / "empty")
    traces = tmp_path / "traces"
    traces.mkdir()
    pd.DataFrame([{"id": "a"}]).to_parquet(traces / "traces.parquet")
    with pytest.raises(DataError, match="compare two of the same kind"):
        diff_datasets(whole, traces)
    (traces / "traces.parquet").write_text("no parquet")
    with pytest.raises(DataError, match="not a Parquet file"):
        diff_datasets(traces, traces)


IDS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["train", "held_out"]), min_size=1)


@settings(max_examples=25, deadline=None)
@given(IDS, IDS)
def test_every_task_is_added_removed_changed_or_the_same(tmp_path_factory, one, other):
    folders = []
    for splits in (one, other):
        folder = tmp_path_factory.mktemp("curated")
        pd.DataFrame([task(identity, split=split) for identity, split in splits.items()]).to_parquet(folder / "tasks.parquet")
        pd.DataFrame(EPISODES).to_parquet(folder / "episodes.parquet")
        folders.append(folder)
    there, back = diff_datasets(*folders)["tasks"], diff_datasets(*reversed(folders))["tasks"]
    assert set(there["lists"]["added"]) == other.keys() - one.keys()
    assert set(there["lists"]["removed"]) == one.keys() - other.keys()
    assert {entry["id"] for entry in there["lists"]["changed"]} == {
        key for key in one.keys() & other.keys() if one[key] != other[key]
    }
    assert (there["added"], there["changed"]) == (back["removed"], back["changed"])
