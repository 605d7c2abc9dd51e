"""Imitation of episodes that begin in the middle of a conversation: the opening is context and is never learnt."""

import json
from dataclasses import fields

import pandas as pd
import pytest

from tests.replaying import replay_traces
from tracewheel.config import RetrainConfig, RolloutConfig
from tracewheel.core.types import Trace
from tracewheel.curation.agent_flan import DECLINE
from tracewheel.curation.curate import curate
from tracewheel.environments.recorded.traces import recorded_episodes
from tracewheel.learner.warm_start.demonstrations import demonstration_examples
from tracewheel.learner.warm_start.stage import warm_start
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.teacher.teach import teach

ROOMY = {"max_tokens": 2000, "max_turn_tokens": 500}
GREETING = "Of course, two of our very best teas for you, wrapped and ready to be taken home. " * 2


@pytest.fixture
def turns(logs, make_recording):
    """Records and tasks of the two turns of a conversation: two teas are bought, then the user asks what is left."""
    said = [("user", "Two teas."), *logs.bought[:2], ("say", GREETING), ("user", "What is left?"), logs.bought[2]]
    traces = pd.DataFrame([logs.record("win", logs.conversation(*said, ("say", "One.")), task="x", outcome=1.0)])
    kind, _ = make_recording(traces)
    rows, tasks = replay_traces(recorded_episodes(traces, kind)[0], kind)
    return rows, {task.prompt: task for task in tasks.values()}


@pytest.fixture
def task(turns):
    return turns[1]["What is left?"]


@pytest.fixture
def taught(chat_server, config, task, tmp_path):
    """A teacher behind a real endpoint asks for the stock and answers; its output folder and the report."""

    def run(**rollout):
        def answer(body, number):
            if body["messages"][-1]["role"] == "tool":
                return {"content": "One."}
            function = {"name": "stock", "arguments": '{"item": "tea"}'}
            return {"tool_calls": [{"id": "call-1", "type": "function", "function": function}]}

        teacher = {"endpoint": chat_server(answer).url, "model": "big", "samples": 1, "retries": 0, "timeout": 60}
        values = config.model_dump()
        changed = RetrainConfig.model_validate(values | {"teacher": teacher, "rollout": values["rollout"] | ROOMY | rollout})
        return tmp_path / "taught", teach(changed, [task], tmp_path / "taught", journal=tmp_path / "journal.jsonl")

    return run


@pytest.fixture
def words(call_text):
    """The teacher's turns, as a policy would sample them."""
    return [call_text("stock", item="tea"), "One."]


def learnt(renderer, ids, counts):
    """The text of the turns that are learnt, in order."""
    said = renderer.decode([token for token, counted in zip(ids, counts, strict=True) if counted])
    end = renderer.decode([renderer.end_of_turn_id])
    assert said.endswith(end)
    return said.removesuffix(end).split(end)


def spoken(renderer, rows, classes):
    examples = demonstration_examples(rows, renderer, classes)
    return [learnt(renderer, example["input_ids"], example["assistant_masks"]) for example in examples]


def test_only_the_teachers_turns_are_learnt_with_the_ids_of_a_rollout(taught, task, words, renderer, scripted_engine):
    folder, _ = taught()
    episodes = pd.read_parquet(folder / "episodes.parquet")
    assert episodes["opening"].tolist() == [7] and episodes["opening"].dtype == "int64"
    messages = json.loads(episodes["messages"][0])
    assert messages[7] == {"role": "user", "content": "What is left?"} and messages[6]["content"] == GREETING
    (example,) = demonstration_examples(episodes, renderer, ["multi_turn"])
    assert learnt(renderer, example["input_ids"], example["assistant_masks"]) == words
    assert GREETING.strip() in renderer.decode(example["input_ids"]), "it is still context"
    engine = scripted_engine(renderer, [words])
    (trajectory,) = run_episodes(engine, renderer, RolloutConfig(**ROOMY), RolloutPlan([task], samples=1, seed=0))
    assert example == {"input_ids": trajectory.token_ids, "assistant_masks": trajectory.action_mask}


def test_the_warm_start_loss_covers_only_the_teachers_turns(taught, turns, words, renderer, config, tmp_path):
    """Counted in tokens, with a logged episode from a file without a column `opening`."""
    rows, tasks = turns
    folder, _ = taught()
    curated = tmp_path / "curated"
    curated.mkdir()
    pd.DataFrame([task.to_record() | {"split": "train"} for task in tasks.values()]).to_parquet(curated / "tasks.parquet")
    old = rows[rows["opening"] == 0].assign(split="train").drop(columns="opening")
    assert len(old) == 1
    old.to_parquet(curated / "episodes.parquet")
    settings = config.warm_start.model_copy(update={"extra_demonstrations": (str(folder),), "epochs": 1})
    metrics = warm_start(config.model_copy(update={"warm_start": settings}), curated, tmp_path / "out", "verified")
    assert metrics["demonstrations"] == 2
    examples = demonstration_examples(pd.concat([old, pd.read_parquet(folder / "episodes.parquet")]), renderer, ["multi_turn"])
    counted = [learnt(renderer, example["input_ids"], example["assistant_masks"]) for example in examples]
    assert words in counted and max(len(said) for said in counted) == 3
    assert metrics["tokens"] == sum(sum(example["assistant_masks"]) for example in examples)


def test_the_length_of_the_opening_does_not_count_against_a_demonstration(taught, words, renderer):
    longest = max(len(renderer.tokenizer.encode(said, add_special_tokens=False)) + 1 for said in words)
    assert len(renderer.tokenizer.encode(GREETING, add_special_tokens=False)) > longest, "the context has a longer turn"
    assert taught(max_turn_tokens=longest)[1]["left_out"] == {}


def test_demonstrations_with_too_long_a_turn_are_left_out(taught, words, renderer):
    longest = max(len(renderer.tokenizer.encode(said, add_special_tokens=False)) + 1 for said in words)
    assert taught(max_turn_tokens=longest - 1)[1]["left_out"] == {"a turn longer than rollout.max_turn_tokens": 1}


def test_each_turn_of_a_conversation_with_several_tasks_is_learnt_once(turns, renderer, call_text):
    rows, _ = turns
    assert dict(zip(rows["id"], rows["opening"], strict=True)) == {"win-turn0": 0, "win-turn1": 7}
    stock, buy = call_text("stock", item="tea"), call_text("buy", item="tea", count=2)
    assert spoken(renderer, rows, ["multi_turn"]) == [[stock, buy, GREETING], [stock, "One."]]
    without = spoken(renderer, rows.drop(columns="opening"), ["multi_turn"])
    assert without[1] == [stock, buy, GREETING, stock, "One."], "what it would be otherwise"


def test_no_turn_of_the_airline_is_learnt_twice(make_recording, airline, renderer):
    """100 tasks from 29 conversations; the agent's turns are counted independently here."""
    kind, _ = make_recording(airline)
    rows, _ = replay_traces(recorded_episodes(airline, kind)[0], kind)
    spoke = 0
    for text in rows["messages"]:
        messages = json.loads(text)
        asked = max(index for index, message in enumerate(messages) if message["role"] == "user")
        spoke += sum(message["role"] == "assistant" for message in messages[asked:])

    def ends(rows):
        """All messages up to the end of each turn that counts."""
        return [
            tuple(example["input_ids"][: place + 1])
            for example in demonstration_examples(rows, renderer, ["multi_turn"])
            for place, token in enumerate(example["input_ids"])
            if token == renderer.end_of_turn_id and example["assistant_masks"][place]
        ]

    once = ends(rows)
    assert len(rows) == 100 and len(once) == len(set(once)) == spoke == 242
    assert len(ends(rows.drop(columns="opening"))) == 890, "what it would be otherwise"


def test_a_turn_with_other_replies_keeps_its_opening(turns):
    rows, _ = turns
    kind = json.loads(rows["environment"][0])["kind"]
    messages = json.loads(rows["messages"][1])
    messages[-2]["content"] = "9"
    traces = rows.iloc[1:].assign(messages=json.dumps(messages))[[field.name for field in fields(Trace)]]
    drifted, _ = replay_traces(traces, kind)
    assert drifted["observation_drift"].tolist() == [True] and drifted["opening"].tolist() == [7]


def test_demonstration_classes_ignore_the_opening(turns, renderer, call_text):
    rows, _ = turns
    assert spoken(renderer, rows, ["formatted"]) == [[call_text("stock", item="tea")]] * 2
    shown = [renderer.decode(example["input_ids"]) for example in demonstration_examples(rows, renderer, ["formatted"])]
    assert ["What is left?" in text for text in shown] == [False, True]
    # Of the second none: the agent has just called the tool that it would say it has not.
    assert spoken(renderer, rows, ["negative"]) == [[DECLINE]]


def test_text_before_the_first_call_is_learnt_only_in_whole_episodes(logs, renderer, call_text):
    look = logs.conversation(("user", "Two teas."), ("say", "I look."), logs.bought[0], ("say", "Three."))
    rows = pd.DataFrame([{"messages": json.dumps(look), "tools": json.dumps(logs.shop_tools)}])
    said = spoken(renderer, rows, ["multi_turn", "formatted", "negative"])
    assert said == [["I look.", call_text("stock", item="tea"), "Three."], [call_text("stock", item="tea")], [DECLINE]]


def test_curation_stores_the_length_of_openings(logs, make_recording, tmp_path):
    """Curation of conversations with two tasks each."""
    records = []
    for number, item in enumerate(["tea", "salt", "rope", "ink", "wax", "oil", "soap", "rice", "wine", "nails"]):
        look = ("stock", {"item": item}, "3")
        first = [look, ("buy", {"item": item, "count": 1}, "ok")] if number % 2 else [look]
        said = [("user", f"Have you any {item}?"), *first, ("say", "Yes."), ("user", f"And old {item}?")]
        more = [("stock", {"item": f"old {item}"}, "2"), ("say", "Two.")]
        records.append(logs.record(f"t{number}", logs.conversation(*said, *more), task=item, outcome=1.0))
    traces = pd.DataFrame(records)
    (tmp_path / "ingested").mkdir()
    traces.to_parquet(tmp_path / "ingested" / "traces.parquet")
    kind, _ = make_recording(traces)
    few = {"train_tasks": 4, "validation_tasks": 2, "held_out_tasks": 2, "harder_tasks": 1, "harder_tier": 2, "min_attempts": 1}
    changes = {"environment": {"kind": kind}, "curation": few | {"duplicates": {"link": []}}}
    config = RetrainConfig.model_validate({"name": "test", **changes})
    curate(config, tmp_path / "ingested", tmp_path / "curated")
    episodes = pd.read_parquet(tmp_path / "curated" / "episodes.parquet")
    assert episodes["opening"].dtype == "int64"
    asked = [[i for i, m in enumerate(json.loads(text)) if m["role"] == "user"] for text in episodes["messages"]]
    assert {len(places) for places in asked} == {1, 2}, "first and second turns"
    assert episodes["opening"].tolist() == [places[1] if len(places) == 2 else 0 for places in asked]
