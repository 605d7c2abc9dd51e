"""Building recordings: tool sets, shared worlds, and files that pandas reads."""

import json

import pandas as pd
import pytest

from tracewheel.core.errors import DataError
from tracewheel.environments.recorded.build import COLUMNS, log_task, merged_tools, tool_sets
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import play


@pytest.fixture
def asked(logs):
    """A trace that begins with the user message "Go."."""
    return lambda identity, *turns, **options: logs.record(identity, logs.conversation(("user", "Go."), *turns), **options)


def test_files_of_a_recording(make_recording, tmp_path, logs):
    _, about = make_recording(logs.shop())
    calls = pd.read_parquet(tmp_path / "recording/calls.parquet")
    assert list(calls.columns) == list(COLUMNS) and len(calls) == about["calls"] == 8
    assert about["calls_by_tool"] == {"buy": 2, "stock": 6} and about["distinct_calls"] == 3
    assert about["state_dependent_calls"] == 1, "the stock of tea in one task; the other looked once"
    assert json.loads((tmp_path / "recording/recording.json").read_text()) == about


def test_equal_traces_give_equal_bytes(make_recording, tmp_path, logs):
    one, other = (make_recording(logs.shop(), name)[1] for name in ("one", "other"))
    assert one == other
    assert (tmp_path / "one/calls.parquet").read_bytes() == (tmp_path / "other/calls.parquet").read_bytes()
    assert make_recording(logs.shop().iloc[:1], "less")[1]["id"] != one["id"]


def test_the_keys_of_a_schema_keep_their_order(make_recording, tmp_path, logs):
    make_recording(logs.shop())
    stored = json.loads((tmp_path / "recording/recording.json").read_text())["tools"]
    assert json.dumps(stored) == json.dumps(logs.shop_tools)


@pytest.mark.parametrize(("replies", "agreement", "shared"), [("aaaaaaaaab", 0.9, True), ("aaaaaaaabb", 0.8, False)])
def test_the_world_is_shared_when_first_calls_get_the_same_replies(make_recording, replies, agreement, shared, asked):
    rows = [asked(f"t{n}", ("stock", {"item": "tea"}, reply), task=str(n)) for n, reply in enumerate(replies)]
    _, about = make_recording(pd.DataFrame(rows))
    assert about["agreement"] == pytest.approx(agreement) and about["shared_world"] is shared


def test_the_world_is_not_shared_when_nothing_can_be_compared(make_recording, asked):
    rows = [asked("t", ("stock", {"item": "tea"}, "1"), task="a"), asked("u", ("stock", {"item": "oil"}, "1"), task="b")]
    _, about = make_recording(pd.DataFrame(rows))
    assert about["agreement"] is None and about["shared_world"] is False


def test_later_calls_do_not_affect_world_agreement(make_recording, asked):
    """The second calls differ, after other purchases; the first ones agree."""
    look, buy = ("stock", {"item": "tea"}, "3"), ("buy", {"item": "tea", "count": 1}, "ok")
    rows = [asked("t", look, buy, ("stock", {"item": "tea"}, "2"), task="a"), asked("u", look, look, task="b")]
    assert make_recording(pd.DataFrame(rows))[1]["agreement"] == 1.0


def test_workspace_tasks_do_not_share_a_world(make_recording, tasks, logs):
    """Each task has its own files, so a listing of one does not apply to another."""
    rows = [
        logs.record(f"t{n}", play(task, solution(task)), tools=None, environment=json.dumps({"state": task.initial_state}))
        for n, task in enumerate(tasks)
    ]
    schemas = json.dumps([logs.tool(name) for name in ("list_files", "read_file", "move_file", "write_file", "finish")])
    _, about = make_recording(pd.DataFrame([{**row, "tools": schemas} for row in rows]))
    assert about["tasks"] == len({task.prompt + json.dumps(task.initial_state) for task in tasks})
    assert not about["shared_world"]


def test_an_invented_tool_is_not_recorded(make_recording, asked):
    _, about = make_recording(pd.DataFrame([asked("t", ("stock", {"item": "tea"}, "1"), ("steal", {}, "error: no such tool"))]))
    assert about["calls_by_tool"] == {"stock": 1}


def test_without_a_logged_name_the_task_is_the_first_messages(logs, asked):
    one, same, other = (
        asked(name, ("stock", {"item": item}, "1")) for name, item in (("a", "tea"), ("b", "oil"), ("c", "tea"))
    )
    assert log_task(one) == log_task(same) == log_task({**other, "task": None}) == log_task({**other, "task": float("nan")})
    assert log_task({**other, "environment": '{"kind": "x"}'}) != log_task(one)
    assert log_task(logs.record("d", logs.conversation(("user", "Stop.")))) != log_task(one)
    assert log_task({**other, "task": "named"}) == "named"


def test_several_tool_sets_are_an_error_with_counts(make_recording, logs, asked):
    rows = [asked("t", ("stock", {"item": "tea"}, "1")), asked("u", ("look", {}, "1"), tools=[logs.tool("look")])]
    with pytest.raises(DataError, match=r"2 tool sets.*1 traces"):
        make_recording(pd.DataFrame(rows))


def test_one_agents_tools_are_one_set_whoever_logged_it(make_recording, asked):
    rows = [asked(name, ("stock", {"item": "tea"}, "1"), format=name) for name in ("openai", "tracewheel")]
    assert make_recording(pd.DataFrame(rows))[1]["traces"] == 2


def test_inferred_schemas_of_one_format_are_merged(logs, asked):
    seen = [
        [logs.tool("stock", item=logs.text, colour=logs.text)],
        [logs.tool("stock", item=logs.text), logs.tool("buy", count=logs.number)],
    ]
    rows = [asked(f"t{n}", tools=tools, tools_inferred=True, format="sharegpt") for n, tools in enumerate(seen)]
    traces = pd.DataFrame(rows)
    assert set(tool_sets(traces)) == {"sharegpt: inferred"}
    stock, buy = (tool["function"] for tool in merged_tools(traces))
    assert set(stock["parameters"]["properties"]) == {"item", "colour"} and stock["parameters"]["required"] == ["item"]
    assert buy["parameters"]["required"] == ["count"]


def test_traces_without_any_tool_belong_to_every_set(make_recording, asked):
    rows = [asked("t", ("stock", {"item": "tea"}, "1")), asked("u", ("say", "Hello."), tools=[])]
    assert make_recording(pd.DataFrame(rows))[1]["calls"] == 1


def test_nothing_to_record_is_an_error(make_recording, asked):
    with pytest.raises(DataError, match="none of the 1 traces has a tool call"):
        make_recording(pd.DataFrame([asked("t", ("say", "Hello."))]))


def test_an_unknown_free_tool_is_an_error(make_recording, logs):
    with pytest.raises(DataError, match="the traces have no tool dream"):
        make_recording(logs.shop(), free_tools=("dream",))
