"""The training sets: only training episodes, only proven ones, no repetitions."""

import json

import pandas as pd
import pytest

from tracewheel.config.curation import SetsConfig
from tracewheel.curation.agent_flan import DECLINE
from tracewheel.curation.episode_writer import SetsWriter, stage_sets
from tracewheel.curation.labels import label_episodes
from tracewheel.environments.workspace.agent import manifest_call, move_call, solution
from tracewheel.environments.workspace.environment import TOOLS, play
from tracewheel.environments.workspace.tasks import selected_files


@pytest.fixture(scope="module")
def dataset(tasks):
    """Per task, alternately training and held out: a success, its copy, a half solution, and an unknown outcome."""
    rows = []
    for number, task in enumerate(tasks):
        name = selected_files(task.initial_state, task.goal)[0]
        half = [move_call(task.goal["source"], name, task.goal["destination"]), manifest_call(task, [name]), ("finish", {})]
        outcomes = [(solution(task), 1.0), (solution(task), 1.0), (half, float(task.tier == 1)), (solution(task)[:2], None)]
        for attempt, (calls, success) in enumerate(outcomes):
            rows.append(
                {
                    "trace_id": f"{number}-{attempt}", "task_id": task.id, "split": "held_out" if number // 2 % 2 else "train",
                    "success": success, "failure": "", "messages": json.dumps(play(task, calls)), "tools": json.dumps(TOOLS),
                }
            )  # fmt: skip
    frame = pd.DataFrame([{**task.to_record(), "split": "held_out" if n // 2 % 2 else "train"} for n, task in enumerate(tasks)])
    episodes, _ = label_episodes(pd.DataFrame(rows).assign(id=lambda rows: rows["trace_id"]))
    return frame, episodes


@pytest.fixture(scope="module")
def made(dataset):
    return stage_sets(*dataset)


def test_demonstrations_are_verified_successes_of_the_training_split(dataset, made, tasks):
    tasks_frame, episodes = dataset
    demonstrations = made[0]["demonstrations"]
    training = set(tasks_frame.loc[tasks_frame["split"] == "train", "id"])
    assert set(demonstrations["task_id"]) == training
    assert demonstrations["id"].is_unique and not demonstrations["messages"].duplicated().any()
    assert set(demonstrations["outcome_source"]) == {"verified"} and (demonstrations["label"] == 1.0).all()
    assert set(demonstrations["trace_id"]) <= set(episodes["trace_id"])


def test_logged_outcomes_are_not_trusted_by_default(dataset):
    tasks, episodes = dataset
    hearsay = episodes.assign(outcome_source="logged")
    assert stage_sets(tasks, hearsay)[0]["demonstrations"].empty
    assert len(stage_sets(tasks, hearsay, SetsConfig(sources=("logged",)))[0]["demonstrations"])


def test_agent_flan_has_its_three_classes(made):
    flan, report = made[0]["agent_flan"], made[1]
    assert set(report["agent_flan"]) == {"multi_turn", "formatted", "negative"}
    for kind, spoken, offered in flan[["class", "messages", "tools"]].itertuples(index=False):
        messages, tools = json.loads(spoken), {tool["function"]["name"] for tool in json.loads(offered)}
        match kind:
            case "formatted":
                assert messages[-1]["tool_calls"] and sum("tool_calls" in message for message in messages) == 1
            case "negative":
                assert messages[-1]["content"] == DECLINE and len(tools) == len(TOOLS) - 1
            case _:
                assert len(tools) == len(TOOLS) and messages[-1]["tool_calls"][0]["function"]["name"] == "finish"
    assert report["rows"]["agent_flan"] == len(flan) and flan["id"].is_unique


def test_pairs_are_of_training_tasks_with_both_outcomes(dataset, made):
    pairs = made[0]["preference_pairs"]
    tasks, _ = dataset
    assert len(pairs) and set(pairs["split"]) == {"train"}
    assert set(pairs["task_id"]) <= set(tasks.loc[(tasks["split"] == "train") & (tasks["tier"] == 2), "id"])


def test_hindsight_relabels_training_failures_but_not_to_held_out_tasks(dataset, made, tasks):
    hindsight = made[0]["hindsight"]
    assert len(hindsight) and hindsight["trace_id"].str.endswith("-hindsight").all()
    assert not set(hindsight["task_id"]) & {task.id for task in tasks}, "these are other tasks"
    tasks_frame, episodes = dataset
    assert stage_sets(tasks_frame, episodes.assign(split="held_out"))[0]["hindsight"].empty


def test_pandas_reads_each_set_also_empty_ones(dataset, made, tmp_path):
    tasks, episodes = dataset
    for part, expected, folder in (
        (episodes, made, "full"),
        (episodes.iloc[:0], stage_sets(tasks, episodes.iloc[:0]), "empty"),
    ):
        with SetsWriter(tasks, tmp_path / folder) as writer:
            writer.add(part)
        assert writer.report() == expected[1]
        assert {path.stem for path in (tmp_path / folder).iterdir()} == set(expected[0])
        for name, frame in expected[0].items():
            read = pd.read_parquet(tmp_path / folder / f"{name}.parquet")
            assert list(read.columns) == list(frame.columns) and len(read) == len(frame)
            assert "schema_version" in read


def test_sets_do_not_depend_on_the_parts(dataset, made, tmp_path):
    tasks, episodes = dataset
    with SetsWriter(tasks, tmp_path) as writer:
        for _, part in episodes.groupby("task_id"):
            writer.add(part)
    assert writer.report() == made[1]
    for name, frame in made[0].items():
        read = pd.read_parquet(tmp_path / f"{name}.parquet")
        order = ["task_id", "id"]
        ours, theirs = (each.sort_values(order).reset_index(drop=True) for each in (read, frame))
        assert ours.astype(object).equals(theirs.astype(object))


def test_the_order_of_the_episodes_does_not_matter(dataset, made):
    tasks, episodes = dataset
    again, report = stage_sets(tasks, episodes.iloc[::-1])
    assert report == made[1]
    for name, frame in made[0].items():
        pd.testing.assert_frame_equal(frame, again[name])


def test_no_set_teaches_a_turn_that_was_cut_or_failed(dataset, made):
    tasks, episodes = dataset
    last = episodes.assign(messages=[marked(messages, -1) for messages in episodes["messages"]])
    sets, report = stage_sets(tasks, last)
    assert not any(report["rows"].values())
    good = episodes[(episodes["split"] == "train") & (episodes["label"] >= 1.0)]
    assert report["left_out"] == {"its last turn was cut off or failed": len(good)}
    first = episodes.assign(messages=[marked(messages, 0) for messages in episodes["messages"]])
    sets, report = stage_sets(tasks, first)
    assert report["rows"]["demonstrations"] == len(made[0]["demonstrations"]) and not report["left_out"]
    for name in ("demonstrations", "agent_flan"):
        for spoken, opening in sets[name][["messages", "opening"]].itertuples(index=False):
            taught = json.loads(spoken)[opening:]
            assert taught and not any("unfinished" in message for message in taught)
    assert not report["rows"]["preference_pairs"]


def marked(text, turn):
    """The messages, of which the agent's turn of this number was cut."""
    messages = json.loads(text)
    place = [at for at, message in enumerate(messages) if message["role"] == "assistant"][turn]
    return json.dumps([*messages[:place], {**messages[place], "unfinished": "cut: length"}, *messages[place + 1 :]])
