"""Examples from logged episodes: the ids of a rollout of the same words, and Agent-FLAN's classes."""

import json
from collections import Counter

import pandas as pd
import pytest

from tracewheel.config import RolloutConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.agent_flan import DECLINE
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS, play
from tracewheel.learner.warm_start.demonstrations import demonstration_examples, with_replay
from tracewheel.rollout.rollout import RolloutPlan, run_episodes


def episodes_of(*conversations, tools=TOOLS):
    return pd.DataFrame([{"messages": json.dumps(messages), "tools": json.dumps(tools)} for messages in conversations])


def spoken(renderer, example):
    """The words of the turns that count, in order."""
    turns, current = [], []
    for token, counts in zip(example["input_ids"], example["assistant_masks"], strict=True):
        if counts:
            current.append(token)
        if counts and token == renderer.end_of_turn_id:
            turns.append(renderer.decode(current[:-1]))
            current = []
    assert not current
    return turns


@pytest.fixture
def rolled_out(scripted_engine, renderer):
    """A trajectory of one task in which the policy samples given words."""

    def run(task, words):
        config = RolloutConfig(max_tokens=4000, max_turn_tokens=1000)
        return run_episodes(scripted_engine(renderer, [words]), renderer, config, RolloutPlan([task], samples=1, seed=0))[0]

    return run


def test_a_demonstration_has_the_ids_of_a_rollout_of_the_same_words(renderer, tasks, solution_words, rolled_out):
    for task in tasks:
        (example,) = demonstration_examples(episodes_of(play(task, solution(task))), renderer, ["multi_turn"])
        trajectory = rolled_out(task, solution_words(task))
        assert example == {"input_ids": trajectory.token_ids, "assistant_masks": trajectory.action_mask}


def test_stored_messages_of_a_rollout_give_its_ids(renderer, tasks, call_text, rolled_out):
    """With text next to calls, several calls per turn, an invented tool and a malformed call."""
    source = tasks[0].goal["source"]
    words = [
        "I look.\n" + call_text("list_files", path=source) + "\n" + call_text("list_files", path="/x"),
        call_text("delete_file", path="/ü"),
        "<tool_call>{</tool_call>",
        "Enough.",
    ]
    trajectory = rolled_out(tasks[0], words)
    (example,) = demonstration_examples(episodes_of(trajectory.messages), renderer, ["multi_turn"])
    assert example == {"input_ids": trajectory.token_ids, "assistant_masks": trajectory.action_mask}
    assert spoken(renderer, example) == words


def test_multi_turn_examples_train_on_every_turn(renderer, tasks, solution_words):
    examples = demonstration_examples(episodes_of(*(play(task, solution(task)) for task in tasks)), renderer, ["multi_turn"])
    assert [spoken(renderer, example) for example in examples] == [solution_words(task) for task in tasks]


def test_formatted_examples_train_on_the_first_call_alone(renderer, tasks, solution_words):
    examples = demonstration_examples(episodes_of(*(play(task, solution(task)) for task in tasks)), renderer, ["formatted"])
    assert [spoken(renderer, example) for example in examples] == [solution_words(task)[:1] for task in tasks]
    assert all("<tool_response>" not in renderer.decode(example["input_ids"]) for example in examples)


def test_negative_examples_decline_where_the_tool_is_missing(renderer, tasks):
    for task in tasks:
        needed = solution(task)[0][0]
        (example,) = demonstration_examples(episodes_of(play(task, solution(task))), renderer, ["negative"])
        assert spoken(renderer, example) == [DECLINE]
        text = renderer.decode(example["input_ids"])
        offered = [
            json.loads(line)["function"]["name"] for line in text.split("<tools>\n")[1].split("\n</tools>")[0].split("\n")
        ]
        assert offered == [tool["function"]["name"] for tool in TOOLS if tool["function"]["name"] != needed]
        assert task.prompt in text


def test_examples_are_ordered_by_class(renderer, tasks):
    episodes = episodes_of(*(play(task, solution(task)) for task in tasks[:2]))
    classes = ["multi_turn", "formatted", "negative"]
    together = demonstration_examples(episodes, renderer, classes)
    assert together == [example for kind in classes for example in demonstration_examples(episodes, renderer, [kind])]
    assert len(together) == 6


def test_an_episode_without_a_call_gives_no_call_example(renderer):
    messages = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}]
    assert len(demonstration_examples(episodes_of(messages), renderer, ["multi_turn"])) == 1
    assert demonstration_examples(episodes_of(messages), renderer, ["formatted", "negative"]) == []


def test_an_invalid_opening_is_a_data_error(renderer, tasks):
    episodes = episodes_of(play(tasks[0], solution(tasks[0])))
    for strange in (-1, 1.5):
        with pytest.raises(DataError, match=f"column opening: {strange} is not a number of messages"):
            demonstration_examples(episodes.assign(opening=strange), renderer, ["multi_turn"])


def test_an_episode_without_an_answer_gives_no_example(renderer, tasks):
    said = play(tasks[0], solution(tasks[0]))
    cut = episodes_of(said[:2], [*said, {"role": "user", "content": "And now?"}]).assign(opening=[0, len(said)])
    assert demonstration_examples(cut, renderer, ["multi_turn", "formatted", "negative"]) == []


@pytest.fixture
def replay():
    return pd.DataFrame({"input_ids": [[i, i] for i in range(20)], "assistant_masks": [[0, 1]] * 20})


@pytest.mark.parametrize(("share", "added"), [(0.0, 0), (0.25, 2), (0.5, 6), (0.75, 18), (1.0, 20)])
def test_replay_text_makes_up_its_share(replay, share, added):
    examples = [{"input_ids": [100 + i], "assistant_masks": [1]} for i in range(6)]
    mixed = with_replay(examples, replay, share, seed=0)
    assert mixed[:6] == examples
    generic = [example["input_ids"][0] for example in mixed[6:]]
    assert len(generic) == len(set(generic)) == added
    assert all(type(token) is int for example in mixed for token in example["input_ids"])
    assert with_replay(examples, replay, share, seed=0) == mixed
    if 0 < added < 20:
        assert with_replay(examples, replay, share, seed=1) != mixed


def test_too_little_replay_text_is_a_data_error(replay):
    with pytest.raises(DataError, match="54 rows of replay text are needed, the file has 20"):
        with_replay([{"input_ids": [1], "assistant_masks": [1]}] * 6, replay, 0.9, seed=0)


def test_a_demonstration_that_no_template_can_write_is_left_out_and_counted(renderer, tasks):
    """A recovered failure: a call with broken arguments and the complaint about it, then all as it should be."""
    good = play(tasks[0], solution(tasks[0]))
    call = {"id": "b", "type": "function", "function": {"name": "list_files", "arguments": '{"path": '}}
    reply = {"role": "tool", "tool_call_id": "b", "content": "error: the arguments are not JSON"}
    failed = [*good[:2], {"role": "assistant", "content": None, "tool_calls": [call]}, reply, *good[2:]]
    left_out = Counter()
    examples = demonstration_examples(episodes_of(good, failed), renderer, ["multi_turn"], left_out)
    assert examples == demonstration_examples(episodes_of(good), renderer, ["multi_turn"])
    assert left_out == {"a call with broken arguments": 1}


def test_no_example_teaches_a_turn_that_was_cut(renderer, tasks):
    good = play(tasks[0], solution(tasks[0]))
    turns = [place for place, message in enumerate(good) if message["role"] == "assistant"]
    ends_cut, went_on = (
        [{**message, "unfinished": "cut: length"} if place == at else message for place, message in enumerate(good)]
        for at in (turns[-1], turns[0])
    )
    left_out = Counter()
    [whole] = demonstration_examples(episodes_of(good), renderer, ["multi_turn"])
    [rest] = demonstration_examples(episodes_of(ends_cut, went_on), renderer, ["multi_turn"], left_out)
    assert left_out == {"its last turn was cut off or failed": 1}
    assert rest["input_ids"] == whole["input_ids"]  # the mark is not said
    assert spoken(renderer, rest) == spoken(renderer, whole)[1:]
