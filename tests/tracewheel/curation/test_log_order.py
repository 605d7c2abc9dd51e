"""Records keep their keys in the order of the log, because what an environment replies may follow it."""

import dataclasses
import json
import random

import pandas
import pytest

from tracewheel.config import CurationConfig, IngestConfig, RetrainConfig
from tracewheel.core.types import Task, Trace, Trajectory, content_hash
from tracewheel.curation.agreement import OTHER_REPLIES, Agreement
from tracewheel.curation.curate import curate
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.curation.leaks import leak_report
from tracewheel.environments import Observation
from tracewheel.environments.base import function_tool
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.traces.ingest import ingest

KIND, VERIFIER = f"{__name__}:Shelf", f"{__name__}:ShelfVerifier"
TOOLS = [
    function_tool("look", "Names what is on the shelf.", {}),
    function_tool("take", "Takes a thing.", {"name": {"type": "string"}}),
]
THINGS = ["pear", "apple", "fig", "date", "cherry", "banana"]
FEW = {"train_tasks": 8, "validation_tasks": 4, "held_out_tasks": 4, "harder_tasks": 0, "min_attempts": 1}


class Shelf:
    """Names its things in the order of its state, as a dictionary's iteration does."""

    kind, system_prompt = KIND, ""

    def task_from_log(self, prompt, logged):
        state, goal = logged["initial_state"], logged["goal"]
        return Task(content_hash([state, goal]), KIND, "shelf", 1, prompt, state, goal, VERIFIER, content_hash([state, goal]))

    def tools(self):
        return TOOLS

    def reset(self, task):
        self.things, self.goal = dict(task.initial_state["things"]), task.goal

    def step(self, tool, args):
        if tool == "take":
            self.things.pop(args["name"], None)
        left = "".join(f"\n{name}: {json.dumps(about)}" for name, about in self.things.items())
        return Observation(f"wanted {list(self.goal)}, there are{left}")

    def snapshot(self):
        return {"things": dict(self.things)}


class ShelfVerifier:
    def verify(self, task, final_state):
        taken = float(set(final_state["things"]) == set(task.initial_state["things"]) - set(task.goal))
        return taken, {"taken": taken}


def line_of(number, worlds=Shelf):
    """A log line of an agent that looks, and takes what it was asked to take."""
    chance = random.Random(number)
    things = {name: {"weight": chance.randrange(9), "colour": "red", "age": 1} for name in chance.sample(THINGS, 5)}
    goal = dict.fromkeys(chance.sample(list(things), 2), 1)
    logged = {"kind": KIND, "initial_state": {"things": things, "about": number}, "goal": goal}
    world = worlds()
    world.reset(world.task_from_log("x", logged))
    messages = [{"role": "user", "content": f"Take {', '.join(goal)} from shelf {number}."}]
    for place, (tool, args) in enumerate([("look", {}), *(("take", {"name": name}) for name in goal)]):
        call = {"id": f"c{place}", "type": "function", "function": {"name": tool, "arguments": json.dumps(args)}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{place}", "content": world.step(tool, args).text})
    return {"messages": messages, "tools": TOOLS, "environment": logged, "user": f"u{number}", "reward": 1.0}


@pytest.fixture
def curated(tmp_path):
    def curated(lines):
        log = tmp_path / "log.jsonl"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        ingest(IngestConfig(paths=(str(log),)), tmp_path / "ingested")
        config = RetrainConfig(name="test", environment={"kind": KIND}, curation=CurationConfig(**FEW))
        return curate(config, tmp_path / "ingested", tmp_path / "out"), tmp_path / "out"

    return curated


def test_a_world_that_replies_in_the_order_of_its_state_agrees_with_its_log(curated):
    report, out = curated([line_of(number) for number in range(30)])
    assert report["agreement"] == {
        "episodes": 30, "agreeing": 30, "share": 1.0, "reasons": {}, "first_difference": None,
    }  # fmt: skip
    assert report["funnel"]["unscored"] == 0 and report["deployed"]["train"]["success"] == 1.0
    demonstrations = pandas.read_parquet(out / "sets/demonstrations.parquet").set_index("task_id")["messages"]
    tasks = load_tasks(out, "train")
    assert len(tasks) == len(demonstrations) == 8
    for task in tasks:  # what a rollout and an evaluation begin with
        world = Shelf()
        world.reset(task)
        assert world.step("look", {}).text == json.loads(demonstrations[task.id])[2]["content"]
        assert make_verifier(task.verifier).verify(task, world.snapshot())[0] == 0.0


def test_the_first_reply_that_differs_is_shown_beside_the_logged_one(curated):
    class Other(Shelf):
        def step(self, tool, args):
            reply = super().step(tool, args)
            return reply if tool == "look" else Observation(f"{reply.text}\nThank you.")

    lines = [line_of(number, Other if number % 3 else Shelf) for number in range(30)]
    report, out = curated(lines)
    agreement = Agreement.from_record(json.loads((out / "report.json").read_text())["agreement"])
    assert agreement.to_record() == report["agreement"]
    assert (agreement.episodes, agreement.agreeing, agreement.reasons) == (30, 10, {OTHER_REPLIES: 20})
    first = agreement.first_difference
    taken = next(iter(lines[1]["environment"]["goal"]))
    assert (first.turn, first.call, json.loads(first.arguments)) == (2, "take", {"name": taken})
    assert first.logged.removeprefix("…") == f"{first.replayed.removeprefix('…')}\nThank you."
    assert lines[1]["messages"][4]["content"].endswith(first.logged.removeprefix("…"))


def test_a_score_that_differs_from_the_logged_reward_does_not_agree(curated):
    report, _ = curated([line_of(number) | {"reward": float(number % 10 > 0)} for number in range(30)])
    assert report["agreement"]["reasons"] == {"the score differs from the logged reward": 3}
    assert (report["agreement"]["share"], report["agreement"]["first_difference"]) == (0.9, None)


def test_records_are_equal_after_storing_in_any_order():
    """Order is kept in the text, and counts nowhere else: hashes and leaks go by value."""
    state = {"b": {"z": 1, "a": 2}, "a": 0}
    task = Task("t", "k", "f", 1, "p", state, {"y": 1, "x": 2}, "v", "")
    again = Task.from_record(task.to_record())
    assert json.dumps([again.initial_state, again.goal]) == json.dumps([state, task.goal])
    other = dataclasses.replace(task, id="u", fingerprint="w", initial_state={"a": 0, "b": {"a": 2, "z": 1}})
    assert content_hash(other.initial_state) == content_hash(state)
    rows = pandas.DataFrame([task.to_record() | {"split": "train"}, other.to_record() | {"split": "held_out"}])
    found = leak_report(rows, pandas.DataFrame({"task_id": ["t", "u"], "split": ["train", "held_out"]}))
    assert [leak["kind"] for leak in found] == ["starting point and goal"]
    end = Trajectory("r", "t", "g", 0, 0, 0, 1.0, [], [], [], [], state, [{"role": "user", "content": ""}], "finished")
    assert json.dumps(Trajectory.from_record(end.to_record()).final_state) == json.dumps(state)


def test_copies_are_found_whatever_the_order_of_their_keys(tmp_path):
    line = line_of(1)
    turned = json.loads(json.dumps(line, sort_keys=True))
    assert json.dumps(turned) != json.dumps(line)
    log = tmp_path / "log.jsonl"
    log.write_text(f"{json.dumps(line)}\n{json.dumps(turned)}\n")
    assert ingest(IngestConfig(paths=(str(log),)), tmp_path / "out")["duplicates"] == 1
    row = pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")[0]
    trace = Trace.from_record(row)
    assert json.dumps(trace.environment) == json.dumps(line["environment"])
    assert [message.get("content") for message in trace.messages] == [message["content"] for message in line["messages"]]
