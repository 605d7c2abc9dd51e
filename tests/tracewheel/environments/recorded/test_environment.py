"""The recorded environment: logged replies by the state of the episode; all other calls are unrecorded."""

import json

import pandas as pd
import pytest

from tests.replaying import replay_traces
from tracewheel.core.errors import DataError
from tracewheel.core.kind_table import give
from tracewheel.core.types import Task, Trace
from tracewheel.curation.replay import judge
from tracewheel.environments import OpeningProvider, Solver, make_environment
from tracewheel.environments.recorded.calls import calls_in
from tracewheel.environments.recorded.traces import recorded_episodes

TEA = {"item": "tea"}


def begin(kind, name, context=(), references=()):
    """An environment at the start of an episode of a logged task."""
    environment = make_environment(kind)
    logged = {"kind": kind, "task": name, "context": list(context), "references": list(references)}
    task = environment.task_from_log("Do it.", logged)
    environment.reset(task)
    return environment, task


@pytest.fixture
def shop(make_recording, logs):
    return make_recording(logs.shop())[0]


def test_the_calls_so_far_decide_among_several_replies(shop):
    environment, _ = begin(shop, "two")
    assert environment.step("stock", TEA).text == "3"
    assert environment.step("buy", {"item": "tea", "count": 2}).text == "ok"
    assert environment.step("stock", TEA).text == "1"


def test_earlier_calls_in_another_order_are_matched(shop):
    """No trace bought before looking. Looking changes nothing, so the purchases decide."""
    environment, _ = begin(shop, "two")
    environment.step("buy", {"item": "tea", "count": 2})
    assert environment.step("stock", TEA).text == "1"


def test_equivalent_arguments_match(shop):
    environment, _ = begin(shop, "two")
    assert environment.step("buy", {"count": "2", "item": " tea "}).text == "ok"


@pytest.mark.parametrize(("tool", "arguments"), [("buy", {"item": "tea", "count": 5}), ("leave", {}), ("stock", {})])
def test_a_call_that_no_trace_made_is_unrecorded_and_ends_the_episode_without_a_score(shop, tool, arguments):
    environment, task = begin(shop, "two", references=[[{"name": "stock", "arguments": TEA}]])
    environment.step("stock", TEA)
    observation = environment.step(tool, arguments)
    assert observation.error and observation.done and "unrecorded" in observation.text
    assert environment.snapshot()["unrecorded"] == [{"name": tool, "arguments": arguments}]
    total, _, unscored = judge(task, environment)
    assert total is None and tool in unscored


def test_an_invented_tool_is_a_mistake_and_stays_scored(shop):
    environment, task = begin(shop, "two", references=[[{"name": "stock", "arguments": TEA}]])
    observation = environment.step("steal", TEA)
    assert observation.error and not observation.done
    environment.step("stock", TEA)
    assert judge(task, environment)[0] == 0.5


def test_without_a_shared_world_only_traces_of_the_task_answer(make_recording, logs):
    kind, _ = make_recording(logs.shop(), shared_world=False)
    environment, _ = begin(kind, "two")
    assert environment.step("buy", {"item": "tea", "count": 3}).done
    kind, _ = make_recording(logs.shop(), "shared", shared_world=True)
    environment, _ = begin(kind, "two")
    assert environment.step("buy", {"item": "tea", "count": 3}).text == "ok"
    assert environment.step("stock", TEA).text == "0"


def test_a_call_without_a_logged_reply_ends_the_episode(make_recording, logs):
    messages = logs.conversation(("user", "Go."), ("stock", TEA, "3"), ("leave", {}, None))
    kind, _ = make_recording(pd.DataFrame([logs.record("t", messages, task="x")]))
    environment, _ = begin(kind, "x")
    assert not environment.step("stock", TEA).done
    observation = environment.step("leave", {})
    assert observation.done and not observation.error


def test_free_tools_accept_any_arguments_and_change_nothing(make_recording, logs):
    thinking = ("think", {"thought": "hm"}, "")
    messages = logs.conversation(("user", "Go."), thinking, ("stock", TEA, "3"))
    kind, _ = make_recording(pd.DataFrame([logs.record("t", messages, task="x")]), free_tools=("think",))
    environment, _ = begin(kind, "x", references=[[{"name": "think", "arguments": {}}, {"name": "stock", "arguments": TEA}]])
    assert environment.step("think", {"thought": "something else"}).text == ""
    assert environment.step("stock", TEA).text == "3"
    assert [call["name"] for call in environment.snapshot()["calls"]] == ["stock"]


def test_an_episode_continues_its_context(shop, logs):
    context = logs.conversation(("user", "Hello."), *logs.bought[:2], ("say", "What else?"))
    environment, task = begin(shop, "two", context)
    assert environment.system_prompt == "You keep a shop."
    assert environment.opening(task) == context[1:]
    assert environment.step("stock", TEA).text == "1"
    assert [call["name"] for call in environment.snapshot()["calls"]] == ["stock"], "only what the policy called"


def test_episodes_share_no_state(shop):
    one, _ = begin(shop, "two")
    other, _ = begin(shop, "two")
    one.step("buy", {"item": "tea", "count": 2})
    assert other.step("stock", TEA).text == "3"
    before = one.snapshot()
    one.step("stock", TEA)
    assert len(before["calls"]) == 1


def test_the_protocols(shop):
    environment, task = begin(
        shop, "two", references=[[{"name": "stock", "arguments": TEA}] * 2, [{"name": "stock", "arguments": TEA}]]
    )
    assert isinstance(environment, OpeningProvider) and isinstance(environment, Solver)
    assert environment.kind == task.environment == shop
    assert environment.solution(task) == [("stock", TEA)], "the shorter one"
    assert [tool["function"]["name"] for tool in make_environment(shop).tools()] == ["stock", "buy", "think", "leave"]


def test_a_task_survives_storage(shop, logs):
    _, task = begin(shop, "two", logs.conversation(("user", "Hi.")), [[{"name": "stock", "arguments": TEA}]])
    assert Task.from_record(task.to_record()) == task
    assert (task.family, task.tier, task.verifier) == ("stock", 1, "recorded")


def test_more_successes_keep_the_fingerprint(shop):
    one = begin(shop, "two", references=[])[1]
    other = begin(shop, "two", references=[[{"name": "stock", "arguments": TEA}]])[1]
    assert (one.id, one.fingerprint) == (other.id, other.fingerprint)
    assert begin(shop, "all")[1].fingerprint != one.fingerprint


@pytest.mark.parametrize(
    ("logged", "named"),
    [
        ({}, "'task'"),
        ({"task": "x"}, "'context'"),
        ({"task": "x", "context": [{"role": "robot"}]}, "'context'"),
        ({"task": "x", "context": []}, "'references'"),
        ({"task": "x", "context": [], "references": [[{"name": "a"}]]}, "'references'"),
    ],
)
def test_an_invalid_logged_start_names_the_field(shop, logged, named):
    with pytest.raises(DataError, match=named):
        make_environment(shop).task_from_log("p", logged)


def test_a_task_of_another_environment_is_refused(shop, tasks):
    with pytest.raises(DataError, match="not from a recording"):
        make_environment(shop).reset(tasks[0])


@pytest.mark.parametrize("content", [None, "{}", '{"version": 99}', "["])
def test_an_invalid_recording_is_an_error_that_says_what_to_do(tmp_path, content):
    if content is not None:
        (tmp_path / "recording.json").write_text(content)
    with pytest.raises(DataError, match="recording"):
        make_environment(give(f"recorded:{tmp_path}"))


def test_a_changed_recording_is_read_again(make_recording, logs):
    kind, _ = make_recording(logs.shop())
    make_environment(kind)
    messages = logs.conversation(("user", "Go."), ("leave", {}, "bye"))
    make_recording(pd.DataFrame([logs.record("t", messages, task="x")]))
    assert begin(kind, "x")[0].step("leave", {}).text == "bye"


def test_failed_and_successful_traces_are_scored_by_their_calls(make_recording, logs):
    kind, _ = make_recording(logs.shop())
    known = dict(zip(logs.shop()["id"], logs.shop()["outcome"], strict=True))
    rows = recorded_episodes(logs.shop().assign(outcome=None), kind, by="episode", success=known)[0]
    replayed, tasks = replay_traces(rows, kind)
    assert dict(zip(replayed["id"], replayed["success"], strict=True)) == pytest.approx(
        {"a-win": float("nan"), "a-loss": 1 / 3, "a-long": 2 / 3, "b-win": float("nan")}, nan_ok=True
    ), "no trace is judged against itself"
    assert dict(zip(replayed["id"], replayed["solution"], strict=True)) == {name: known[name] == 1.0 for name in known}
    rewarded, _ = replay_traces(recorded_episodes(logs.shop(), kind, by="episode")[0], kind)
    assert rewarded["success"].tolist() == logs.shop()["outcome"].tolist(), "the log's own reward comes first"
    assert not replayed["observation_drift"].any() and len(tasks) == 2
    assert set(rows["session"]) == {"task two", "task all"}, "attempts at one task are linked"


def test_each_turn_of_a_conversation_is_a_task(make_recording, logs):
    said = [("user", "Two teas."), *logs.bought[:2], ("say", "Anything else?"), ("user", "What is left?"), logs.bought[2]]
    again = [*said[:-1], ("say", "I do not know.")]
    traces = pd.DataFrame(
        [
            logs.record("win", logs.conversation(*said), task="x", outcome=1.0),
            logs.record("loss", logs.conversation(*again), task="x", outcome=0.0),
        ]
    )
    kind, _ = make_recording(traces)
    rows = recorded_episodes(traces, kind, by="turn")[0]
    assert sorted(rows["id"]) == ["loss-turn0", "loss-turn1", "win-turn0", "win-turn1"]
    assert rows["outcome"].isna().all(), "a reward is for the whole"
    replayed, tasks = replay_traces(rows, kind)
    unknown = float("nan")
    assert dict(zip(replayed["id"], replayed["success"], strict=True)) == pytest.approx(
        {"win-turn0": unknown, "win-turn1": unknown, "loss-turn0": 1.0, "loss-turn1": 0.0}, nan_ok=True
    ), "no trace is judged against itself"
    assert sorted(task.prompt for task in tasks.values()) == ["Two teas.", "What is left?"]
    assert len(make_environment(kind).opening(next(task for task in tasks.values() if "left" in task.prompt))) == 6


def test_a_turn_without_a_success_is_not_a_task(make_recording, logs):
    traces = logs.shop()
    kind, _ = make_recording(traces)
    assert recorded_episodes(traces[traces["id"] == "a-loss"], kind)[0].empty
    assert len(recorded_episodes(traces[traces["id"] == "a-loss"], kind, success={"a-loss": 1.0})[0]) == 1


def test_every_call_of_the_airline_gets_its_logged_reply(make_recording, airline):
    """621 calls of 100 traces, counted independently."""
    kind, about = make_recording(airline)
    logged = [json.loads(text) for text in airline["messages"]]
    assert about["calls"] == sum(len(message.get("tool_calls") or []) for messages in logged for message in messages) == 621
    rows = recorded_episodes(airline, kind, by="episode")[0]
    found = 0
    for row in rows.to_dict("records"):
        trace = Trace.from_record({str(name): value for name, value in row.items()})
        environment = make_environment(kind)
        environment.reset(environment.task_from_log(trace.environment["prompt"], trace.environment))
        for call in calls_in(trace.messages):
            observation = environment.step(call.name, call.arguments)
            assert (observation.text, observation.done) == (call.reply, False), f"{row['id']}: {call}"
            found += 1
        assert not environment.snapshot()["unrecorded"]
    assert found == 621


def test_a_changed_call_of_the_airline_is_unrecorded(make_recording, airline):
    kind, _ = make_recording(airline)
    rows = recorded_episodes(airline, kind, by="episode")[0]
    changed = 0
    for row in rows.to_dict("records"):
        logged, messages = json.loads(row["environment"]), json.loads(row["messages"])
        calls = calls_in(messages)
        environment = make_environment(kind)
        task = environment.task_from_log(logged["prompt"], logged)
        environment.reset(task)
        for call in calls[:-1]:
            environment.step(call.name, call.arguments)
        if calls:
            last = calls[-1]
            assert environment.step(last.name, {**last.arguments, "changed": "by the test"}).done
            assert judge(task, environment)[0] is None
            changed += 1
    assert changed == airline["messages"].str.contains('"tool_calls"').sum() > 80


def test_the_airline_gives_tasks_and_scores(make_recording, airline):
    kind, about = make_recording(airline)
    assert about["shared_world"] and about["agreement"] == 1.0
    replayed, tasks = replay_traces(recorded_episodes(airline, kind, by="episode")[0], kind)
    assert len(tasks) == 25 and not replayed["observation_drift"].any()
    assert replayed["success"].tolist() == airline["outcome"].tolist() and replayed["success"].sum() == 31
    turns, turn_tasks = replay_traces(recorded_episodes(airline, kind)[0], kind)
    assert len(turn_tasks) == 100 and turns["solution"].all()
    assert turns["success"].isna().all(), "each is the only success of its task: no evidence"
