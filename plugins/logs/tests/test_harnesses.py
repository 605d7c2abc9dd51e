"""Logs of evaluation harnesses: attempts, outcomes by programs only, and nothing of the answers in the messages."""

import copy
import json
import zipfile
from pathlib import Path

import pyarrow
import pytest

from tracewheel.core.types import Trace
from tracewheel.traces.discovery import find_files
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.reading import read_traces

FOLDER = Path(__file__).with_name("samples")
INSPECT, TAU2 = (json.loads((FOLDER / f"{name}.json").read_text()) for name in ("inspect", "tau2"))


def read(tmp_path, value, name="log.json"):
    file = tmp_path / name
    file.write_text(json.dumps(value, indent=1))
    return list(read_traces({name: file}))


def texts(trace):
    assert isinstance(trace, Trace), trace
    return [message["content"] or "" for message in trace.messages]


def with_scores(scores, **more):
    log = copy.deepcopy(INSPECT)
    log["samples"][0] |= {"scores": scores, **more}
    return log


def test_a_sample_of_inspect(tmp_path):
    (trace,) = read(tmp_path, INSPECT)
    assert (trace.id, trace.task, trace.model, trace.session) == ("x", "weather/4", "m", None)
    assert trace.created.startswith("2026-10-01T08:00:00")
    assert trace.outcome == 1.0  # the program's; the model's opinion is judged
    assert trace.info["judged"] == 0.0
    assert trace.info["target"] == "sunny today" and "sunny today" not in json.dumps(trace.messages)
    assert trace.messages[1]["reasoning"] == "I look."
    assert [tool["function"]["description"] for tool in trace.tools] == ["d"] and not trace.tools_inferred


@pytest.mark.parametrize(
    ("scores", "more", "outcome"),
    [
        ({"match": {"value": "P"}}, {}, 0.5),
        ({"match": {"value": "N"}}, {}, 0.0),
        ({"match": {"value": True}}, {}, 1.0),
        ({"match": {"value": "0.25"}}, {}, 0.25),
        ({"match": {"value": float("nan")}}, {}, None),
        ({"match": {"value": {"accuracy": 1}}}, {}, None),
        ({"model_graded_fact": {"value": "C"}}, {}, None),
        ({"mine": {"value": "C", "metadata": {"grading": []}}}, {}, None),
        ({"match": {"value": "C", "history": [{"value": "C", "provenance": {"author": "Ann"}}]}}, {}, None),
        ({"match": {"value": "C"}, "includes": {"value": "C"}}, {}, 1.0),
        ({"match": {"value": "C"}, "includes": {"value": "I"}}, {}, None),
        ({"length": {"value": 7}, "reward": {"value": 0.5}}, {}, 0.5),
        ({"match": {"value": "I"}}, {"error": {"message": "sandbox lost"}}, None),
        ({}, {"score": {"value": "C"}}, 1.0),
        (None, {}, None),
    ],
)
def test_outcomes_of_inspect_are_programs_scores_of_samples_that_ran(tmp_path, scores, more, outcome):
    log = json.loads(json.dumps(with_scores(scores, **more)).replace("NaN", "null"))
    (trace,) = read(tmp_path, log)
    assert trace.outcome == outcome


def test_epochs_are_attempts_and_a_failed_call_shows_its_error(tmp_path):
    log = copy.deepcopy(INSPECT)
    failed = copy.deepcopy(log["samples"][0]) | {"epoch": 2, "uuid": "y"}
    failed["messages"][2] |= {"content": "", "error": {"type": "timeout", "message": "took too long"}}
    log["samples"].append(failed)
    first, second = read(tmp_path, log)
    assert first.task == second.task and (first.info["epoch"], second.info["epoch"]) == (1, 2)
    assert texts(second)[2] == "took too long"


@pytest.mark.parametrize("kind", ["deflate", "zstandard", "damaged"])
def test_an_eval_archive_gives_the_same_traces_as_json(tmp_path, kind):
    log = copy.deepcopy(INSPECT)
    log["samples"].append(copy.deepcopy(log["samples"][0]) | {"epoch": 2, "uuid": "y"})
    file = tmp_path / "log.eval"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED if kind == "zstandard" else zipfile.ZIP_DEFLATED) as archive:
        for sample in log["samples"]:
            archive.writestr(f"samples/4_epoch_{sample['epoch']}.json", json.dumps(sample))
        archive.writestr("summaries.json", "[]")
        archive.writestr("header.json", json.dumps({key: log[key] for key in ("version", "status", "eval", "results")}))
    if kind == "zstandard":
        as_zstandard(file)
    if kind == "damaged":
        data = bytearray(file.read_bytes())
        data[200:220] = bytes(20)
        file.write_bytes(data)
    assert list(find_files([str(tmp_path)]).values()) == [file]
    items = list(read_traces({"log.eval": file}))
    if kind == "damaged":
        assert [item.reason for item in items if isinstance(item, Quarantined)] == ["compression damaged"]
        return
    expected = read(tmp_path, log)
    assert [(item.id, item.messages, item.outcome) for item in items] == [(t.id, t.messages, t.outcome) for t in expected]


def as_zstandard(file):
    """Write an archive's members again as newer versions do, which Python's library can neither write nor read."""
    with zipfile.ZipFile(file) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members:
            packed = pyarrow.compress(data, codec="zstd", asbytes=True)
            archive.writestr(name, packed)
            info = archive.getinfo(name)
            info.compress_type, info.file_size, info.compress_size = 93, len(data), len(packed)


def test_a_simulation_of_tau2_holds_what_the_agent_saw(tmp_path):
    (trace,) = read(tmp_path, TAU2)
    assert (trace.id, trace.task, trace.model, trace.outcome) == ("x", "weather/4", "m", 1.0)
    assert texts(trace) == ["Weather in Rome?", "", "sunny", "It is sunny."]  # not the user's own calls
    log = copy.deepcopy(TAU2)
    log["info"]["environment_info"]["policy"] = "Be brief."
    simulation = log["simulations"][0]
    greeting = {"role": "assistant", "content": "Hi! How can I help you today?"}
    simulation["messages"] = [greeting, *simulation["messages"]]
    again = {**simulation, "id": "y", "trial": 1, "termination_reason": "infrastructure_error", "reward_info": {"reward": 0.0}}
    first, second = read(tmp_path, {**log, "simulations": [simulation, again]})
    assert texts(first)[:3] == ["Be brief.", greeting["content"], "Weather in Rome?"]
    assert first.task == second.task and second.outcome is None


def test_one_sample_that_cannot_be_read_costs_no_other(tmp_path):
    log = copy.deepcopy(TAU2)
    log["simulations"].insert(0, {**log["simulations"][0], "id": "bad", "messages": [3]})
    bad, trace = read(tmp_path, log)
    assert (bad.reason, json.loads(bad.raw)["simulations"][0]["id"], trace.id) == ("message unreadable", "bad", "x")


def test_few_shot_text_of_tau_bench_without_calls_is_read_and_with_lost_calls_refused(tmp_path):
    (trace,) = read(tmp_path, {"messages_display": "user: Hi,\nis it sunny?\nassistant: It is.\nuser: Thanks"})
    assert texts(trace) == ["Hi,\nis it sunny?", "It is.", "Thanks"]
    (refused,) = read(tmp_path, {"messages_display": "user: Hi\nassistant: None\ntool: sunny\nassistant: It is."})
    assert refused.reason == "tool calls unreadable" and "not the calls" in refused.detail


SAMPLES = json.loads(Path(__file__).with_name("samples.json").read_text())["records"]


def test_sweagent_names_task_and_model_in_its_settings_or_the_task_by_the_file(tmp_path):
    run = {key: part for key, part in SAMPLES["sweagent"].items() if key != "instance_id"}
    settings = {"agent": {"model": {"name": "m"}}, "problem_statement": {"id": "repo__7", "text": "Mend it."}}
    (trace,) = read(tmp_path, {**run, "replay_config": json.dumps(settings)})
    assert (trace.task, trace.model) == ("repo__7", "m")
    (trace,) = read(tmp_path, run, "repo__8.traj")
    assert (trace.task, trace.model) == ("repo__8", None)


def test_a_continued_trajectory_of_atif_is_a_trace_of_the_same_session(tmp_path):
    first = {**SAMPLES["atif"], "schema_version": "ATIF-v1.8", "continued_trajectory_ref": "trajectory.cont-1.json"}
    copied = [{**step, "is_copied_context": True} for step in first["steps"]]
    more = [{"step_id": 9, "source": "user", "message": "And Oslo?"}, {"step_id": 10, "source": "agent", "message": "Rain."}]
    later = {**first, "trajectory_id": "y", "session_id": "conv-cont-1", "steps": [*copied, *more]}
    inner = {"agent": {"name": "helper"}, "trajectory_id": "z", "steps": more}
    (one,) = read(tmp_path, first)
    two, three = read(tmp_path, {**later, "subagent_trajectories": [inner]})
    assert one.session == two.session == "conv" and one.info["continued_trajectory_ref"] == "trajectory.cont-1.json"
    assert two.messages[: len(one.messages)] == one.messages and two.info["copied_messages"] == len(one.messages)
    assert texts(two)[-2:] == ["And Oslo?", "Rain."] == texts(three) and two.tokens is None
    assert (three.id, three.info["parent"], three.info["agent"]) == ("z", "y", {"name": "helper"})


def test_the_resolver_of_openhands_has_flat_events_and_a_models_opinion(tmp_path):
    record = {
        "issue": {"owner": "o", "repo": "r", "number": 5, "title": "Weather", "body": ""}, "issue_type": "issue",
        "instruction": "Weather in Rome?", "base_commit": "", "git_patch": "diff", "metrics": {"accumulated_cost": 0.1},
        "success": True, "comment_success": None, "result_explanation": "Done.", "error": None,
        "history": [
            {"content": "Weather in Rome?", "wait_for_response": False, "action": "message"},
            {"command": "curl weather/Rome", "thought": "I look.", "action": "run"},
            {"content": "sunny", "command_id": -1, "command": "curl weather/Rome", "exit_code": 0, "observation": "run"},
            {"outputs": {}, "thought": "It is sunny.", "action": "finish"},
        ],
    }  # fmt: skip
    (trace,) = read(tmp_path, record)
    assert texts(trace) == ["Weather in Rome?", "I look.", "sunny", "It is sunny."]
    assert [call["function"]["arguments"] for call in trace.messages[1]["tool_calls"]] == ['{"command": "curl weather/Rome"}']
    assert (trace.task, trace.outcome, trace.info["judged"]) == ("o/r#5", None, 1.0)


def test_mini_swe_agent_2_ends_a_run_with_a_message_that_is_not_sent(tmp_path):
    run = copy.deepcopy(SAMPLES["mini_swe_agent"])
    run["messages"].append({"role": "exit", "content": "done", "extra": {"exit_status": "Submitted", "submission": "done"}})
    run["messages"][-2]["extra"] = {"actions": [], "cost": 1.0, "timestamp": 1790841600.5}
    (trace,) = read(tmp_path, {**run, "trajectory_format": "mini-swe-agent-1.1"})
    assert trace.messages == read(tmp_path, SAMPLES["mini_swe_agent"])[0].messages
    assert trace.created.startswith("2026-10-01T08:00:00")


def test_code_agents_of_smolagents_write_text_and_see_observations_as_the_users(tmp_path):
    result = json.loads((FOLDER / "smolagents.json").read_text())
    (run,) = read(tmp_path, result)
    (listed,) = read(tmp_path, result["steps"])
    assert listed.messages == run.messages and run.info["state"] == "success" and run.outcome is None
    task, step, _ = result["steps"]
    code = {**step, "model_output_message": None, "model_output": "<code>weather('Rome')</code>", "observations": "sunny"}
    failed = {**code, "observations": None, "error": {"type": "AgentExecutionError", "message": "no such name"}}
    plan = {"plan": "First look.", "timing": step["timing"], "model_input_messages": [], "model_output_message": {}}
    (trace,) = read(tmp_path, [task, plan, code, failed])
    assert [message["role"] for message in trace.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert texts(trace)[3:] == [code["model_output"], "Observation:\nsunny", code["model_output"], "Error:\nno such name"]
