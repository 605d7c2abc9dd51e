"""The leak check: each way to train on held-out data is found and named."""

import json

import pandas
import pytest

from tracewheel.config import CurationConfig, DuplicatesConfig
from tracewheel.core.errors import DataError, LeakError
from tracewheel.curation.duplicates import DuplicateFinder
from tracewheel.curation.leaks import check_curated, check_leaks, check_training, describe_leaks, leak_report, outside_training
from tracewheel.curation.splits import components

TASKS = [
    ("t1", "f1", "state1", "goal1", "train"),
    ("t2", "f2", "state2", "goal2", "validation"),
    ("t3", "f3", "state3", "goal3", "held_out"),
    ("t4", "f4", "state4", "goal4", "harder"),
]
EPISODES = [
    ("t1", "train", "u1", "s1"),
    ("t1", "train", None, None),
    ("t2", "validation", "u2", "s2"),
    ("t3", "held_out", "u3", "s3"),
    ("t4", "harder", "u3", None),
    ("t4", "harder", float("nan"), ""),
]


def check(tasks=(), episodes=()):
    return check_leaks(
        pandas.DataFrame([*TASKS, *tasks], columns=["id", "fingerprint", "initial_state", "goal", "split"]),
        pandas.DataFrame([*EPISODES, *episodes], columns=["task_id", "split", "user", "session"]),
    )


def test_clean_splits_pass_and_the_test_side_may_share_users():
    assert check() == []


@pytest.mark.parametrize(
    ("tasks", "episodes", "named"),
    [
        ([("t3", "f9", "state9", "goal9", "train")], [], ["task t3", "held_out", "train"]),
        ([("t9", "f3", "state9", "goal9", "train")], [], ["fingerprint f3", "t3", "t9"]),
        ([("t9", "f9", "state3", "goal3", "train")], [], ["starting point and goal", "t3", "t9"]),
        ([("t9", "f4", "state9", "goal9", "train")], [], ["fingerprint f4", "harder"]),
        ([("t9", "f3", "state9", "goal9", "validation")], [], ["fingerprint f3", "validation"]),
        ([("t9", "f2", "state9", "goal9", "train")], [], ["fingerprint f2", "validation"]),
        ([], [("t3", "train", None, None)], ["task t3", "train"]),
        ([], [("t1", "train", "u3", None)], ["user u3", "t1", "t3"]),
        ([], [("t1", "train", None, "s3")], ["session s3", "t1", "t3"]),
        ([], [("t2", "validation", "u1", None)], ["user u1", "validation"]),
    ],
)
def test_a_leak_is_an_error_that_names_it(tasks, episodes, named):
    with pytest.raises(LeakError) as caught:
        check(tasks, episodes)
    for text in named:
        assert text in str(caught.value)


def test_many_leaks_are_counted_and_the_first_are_shown():
    tasks = [(f"x{n}", f"same{n}", f"a{n}", "g", split) for n in range(30) for split in ("train", "held_out")]
    with pytest.raises(LeakError, match="and 80 more"):
        check(tasks)


def test_an_unknown_split_is_an_error():
    with pytest.raises(DataError, match="elsewhere"):
        check([("t9", "f9", "s9", "g9", "elsewhere")])


@pytest.mark.parametrize("split", ["validation", "held_out", "harder", "reserve"])
def test_nothing_is_learnt_from_but_training_tasks_and_those_made_for_training(tmp_path, split):
    """A task beside the episodes counts as made for training, unless curation keeps it or its equal apart."""
    rows = [("t1", "f1", "train"), ("t2", "f2", split)]
    tasks = pandas.DataFrame(rows, columns=["id", "fingerprint", "split"])
    tasks[tasks["split"] != "reserve"].to_parquet(tmp_path / "tasks.parquet")
    if split == "reserve":
        tasks[tasks["split"] == "reserve"].to_parquet(tmp_path / "reserve.parquet")
    played = tmp_path / "trajectories.parquet"
    pandas.DataFrame({"task_id": ["t1", "t2", "t3", "t4"]}).to_parquet(played)
    assert outside_training(tmp_path, played) == {"t2", "t3", "t4"}
    beside = pandas.DataFrame([("t1", "f9"), ("t2", "f2"), ("t3", "f3"), ("t4", "f2")], columns=["id", "fingerprint"])
    beside.to_parquet(tmp_path / "variants.parquet")
    assert outside_training(tmp_path, played) == {"t2", "t4"}
    with pytest.raises(LeakError, match=r"trajectories\.parquet: task t2 is no training task"):
        check_training(tmp_path, played)


REQUEST = (
    "My name is Mia Li, user id mia_li_3668. Cancel reservation 4WQ150 and refund it to my gift card, because my mother "
    "fell ill in Chicago and I have to stay with her until the end of the month."
)
COPIES = {
    "whitespace": REQUEST.replace(" ", "  ").replace(". ", ".\n"),
    "renumbered": REQUEST.replace("3668", "7071").replace("4WQ150", "8WQ922"),
    "paraphrase": (
        "Hello, this is Mia Li (user id mia_li_3668). Because my mother fell ill in Chicago I will stay with her until the "
        "end of the month. Could reservation 4WQ150 be cancelled, and the refund put on my gift card?"
    ),
}
UNRELATED = "Please book a table for five at the harbour restaurant on Friday evening, by the window if there is one left."


def logs(request, same_user=False):
    """Two logged tasks without an environment, one trained on and one held out; the second's prompt is `request`."""
    rows = [("trace1", "t1", "train", "u1", REQUEST), ("trace2", "t2", "held_out", "u1" if same_user else "u2", request)]
    episodes = pandas.DataFrame(rows, columns=["trace_id", "task_id", "split", "user", "text"])
    episodes["messages"] = [json.dumps([{"role": "user", "content": text}]) for text in episodes["text"]]
    tasks = pandas.DataFrame(
        {"id": ["t1", "t2"], "fingerprint": ["f1", "f2"], "initial_state": "{}", "split": ["train", "held_out"]}
    )
    tasks["goal"] = episodes["text"]
    return tasks, episodes.assign(fingerprint=tasks["fingerprint"], session=None)


def clusters_of(episodes):
    finder = DuplicateFinder()
    finder.add(episodes)
    return finder.clusters()


@pytest.mark.parametrize("planted", ["user", *COPIES])
def test_a_planted_leak_is_found_and_splits_would_prevent_it(planted):
    tasks, episodes = logs(COPIES.get(planted, UNRELATED), same_user=planted == "user")
    clusters = clusters_of(episodes)
    leaks = leak_report(tasks, episodes, clusters)
    assert [leak["kind"] for leak in leaks] == ["user" if planted == "user" else "near duplicate"]
    assert leaks[0]["splits"] == ["held_out", "train"]
    assert leaks[0]["tasks"] == ["t1", "t2"]
    assert leaks[0]["traces"] == ["trace1", "trace2"]
    with pytest.raises(LeakError, match=leaks[0]["kind"]):
        check_leaks(tasks, episodes, clusters)
    assert check_leaks(tasks, episodes, clusters, allow=True) == leaks
    assert components(episodes, clusters) == {"t1": "t1", "t2": "t1"}
    assert json.loads(json.dumps(leaks)) == leaks


def test_unrelated_tasks_are_no_leak():
    tasks, episodes = logs(UNRELATED)
    clusters = clusters_of(episodes)
    assert check_leaks(tasks, episodes, clusters) == []
    assert components(episodes, clusters) == {"t1": "t1", "t2": "t2"}


def test_only_the_configured_kinds_link():
    _, episodes = logs(COPIES["whitespace"])
    clusters = clusters_of(episodes)
    assert components(episodes, clusters, ("exact", "semantic")) == {"t1": "t1", "t2": "t2"}
    assert components(episodes, clusters, ("near",)) == {"t1": "t1", "t2": "t1"}
    assert components(episodes) == {"t1": "t1", "t2": "t2"}


def test_the_logged_task_name_links_and_leaks():
    tasks, episodes = logs(UNRELATED)
    episodes["task"] = "airline-7"
    assert components(episodes) == {"t1": "t1", "t2": "t1"}
    assert "logged task airline-7 is in held_out and train" in describe_leaks(leak_report(tasks, episodes))


@pytest.fixture
def folder(tmp_path):
    """A curated folder, by whoever, that trains on a copy of what it holds out."""
    tasks, episodes = logs(COPIES["whitespace"])
    tasks.to_parquet(tmp_path / "tasks.parquet")
    episodes.to_parquet(tmp_path / "episodes.parquet")
    clusters_of(episodes).to_parquet(tmp_path / "duplicates.parquet")
    return tmp_path


def test_training_refuses_a_folder_with_a_leaking_duplicate(folder):
    with pytest.raises(LeakError, match="near duplicate .* is in held_out and train"):
        check_curated(folder, CurationConfig())
    (leak,) = check_curated(folder, CurationConfig(allow_leak=True))
    assert leak["traces"] == ["trace1", "trace2"]
    assert check_curated(folder, CurationConfig(duplicates=DuplicatesConfig(link=("exact", "semantic")))) == []


def test_a_folder_without_duplicates_is_checked_for_the_rest(folder):
    (folder / "duplicates.parquet").unlink()
    assert check_curated(folder, CurationConfig()) == []
    _, episodes = logs(UNRELATED, same_user=True)
    episodes.to_parquet(folder / "episodes.parquet")
    with pytest.raises(LeakError, match="user u1"):
        check_curated(folder, CurationConfig())


@pytest.mark.parametrize(
    ("name", "columns", "said"),
    [
        ("duplicates.parquet", {"trace_id": ["trace1"], "kind": ["near"]}, r"duplicates\.parquet: no column 'cluster'"),
        ("episodes.parquet", {"task_id": ["t1"], "split": ["train"]}, r"episodes\.parquet: no column 'trace_id'"),
    ],
)
def test_an_invalid_folder_is_an_error_that_names_the_file(folder, name, columns, said):
    pandas.DataFrame(columns).to_parquet(folder / name)
    with pytest.raises(DataError, match=said):
        check_curated(folder, CurationConfig())
