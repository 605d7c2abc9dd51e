"""Preference pairs from logs are cut where the assistants diverge."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.curation.message_pairs import PAIR_COLUMNS, preference_pairs

TOOLS = json.dumps(
    [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("look", "take")]
)
ASK = {"role": "user", "content": "Go."}


def say(text):
    return {"role": "assistant", "content": text}


def call(call_id, name, words=None, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": words, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


def reply(call_id, text="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def episode(identity, label, messages, *, task="t", split="train"):
    return {
        "trace_id": identity, "task_id": task, "split": split, "label": label, "messages": json.dumps(messages), "tools": TOOLS,
    }  # fmt: skip


def pairs(*rows, **options):
    frame, report = preference_pairs(pd.DataFrame(list(rows)), **options)
    assert list(frame.columns) == list(PAIR_COLUMNS)
    return frame.to_dict("records"), report


GOOD = [ASK, call("1", "look"), reply("1"), call("2", "take", x=1), reply("2"), say("Done.")]
BAD = [ASK, call("9", "look", words="Let me see."), reply("9"), call("8", "take", x=2), reply("8", "error"), say("Sorry.")]


def test_a_pair_is_cut_at_the_first_turn_that_differs():
    """Ids, and text next to an equal call, are no difference; the prompt is what the failed agent saw."""
    (pair,), report = pairs(episode("win", 1.0, GOOD), episode("loss", 0.0, BAD))
    assert json.loads(pair["prompt"]) == BAD[:3]
    assert json.loads(pair["chosen"]) == GOOD[3:] and json.loads(pair["rejected"]) == BAD[3:]
    assert (pair["step"], pair["chosen_trace"], pair["rejected_trace"], pair["margin"]) == (1, "win", "loss", 1.0)
    assert report == {"tasks_with_both": 1, "pairs": 1, "by_split": {"train": 1}, "no_pair_because": {}}


@pytest.mark.parametrize(
    ("failed", "because"),
    [
        (
            [ASK, call("1", "look"), reply("1", "something else"), call("2", "take", x=2)],
            "the user or a tool said something else first",
        ),
        ([{"role": "user", "content": "Come."}, *BAD[1:]], "the user or a tool said something else first"),
        (GOOD[:4], "one is the beginning of the other"),
        (GOOD, "one is the beginning of the other"),
        ([*GOOD[:5], {"role": "user", "content": "Wait."}], "the user or a tool said something else first"),
    ],
)
def test_a_user_or_tool_difference_makes_no_pair(failed, because):
    found, report = pairs(episode("win", 1.0, GOOD), episode("loss", 0.0, failed))
    assert found == [] and report["no_pair_because"] == {because: 1}


def test_turns_without_calls_are_compared_by_words():
    (pair,), _ = pairs(episode("win", 1.0, [ASK, say("Yes.")]), episode("loss", 0.0, [ASK, say("No.")]))
    assert json.loads(pair["chosen"]) == [say("Yes.")] and pair["step"] == 0


def test_pairs_by_calls_ignore_the_users_words():
    other = [{"role": "user", "content": "Come."}, *BAD[1:]]
    rows = [episode("win", 1.0, GOOD), episode("loss", 0.0, other)]
    (pair,), _ = pairs(*rows, shared="calls")
    assert json.loads(pair["prompt"]) == other[:3]
    assert json.loads(pair["chosen"]) == GOOD[3:4] and json.loads(pair["rejected"]) == other[3:4], "one turn each"
    assert pair["shared"] == "calls" and pair["step"] == 1
    drifted = [other[0], call("1", "look"), reply("1", "something else"), *other[3:]]
    found, report = pairs(rows[0], episode("loss", 0.0, drifted), shared="calls")
    assert found == [] and report["no_pair_because"] == {"the user or a tool said something else first": 1}


def test_tasks_splits_and_unknown_outcomes_are_not_mixed():
    rows = [
        episode("win", 1.0, GOOD),
        episode("other task", 0.0, BAD, task="u"),
        episode("other split", 0.0, BAD, split="held_out"),
        episode("unscored", float("nan"), BAD),
        episode("nameless", 0.0, BAD, task=""),
    ]
    found, report = pairs(*rows)
    assert found == [] and report["no_pair_because"] == {"different splits": 1}


def test_a_margin_keeps_half_successes_out():
    rows = [episode("win", 1.0, GOOD), episode("half", 0.5, BAD)]
    assert pairs(*rows)[0] == []
    (pair,) = pairs(*rows, margin=0.5)[0]
    assert pair["margin"] == 0.5


def test_pairs_of_a_task_use_each_episode_evenly():
    rows = [episode(f"win{n}", 1.0, [ASK, call("1", "take", x=n)]) for n in range(2)]
    rows += [episode(f"loss{n}", 0.0, [ASK, call("1", "take", x=10 + n)]) for n in range(4)]
    found, _ = pairs(*rows, per_task=4)
    assert sorted(pair["rejected_trace"] for pair in found) == ["loss0", "loss1", "loss2", "loss3"]
    assert sorted(pair["chosen_trace"] for pair in found) == ["win0", "win0", "win1", "win1"]
    assert len(pairs(*rows, per_task=99)[0]) == 8


TURNS = st.lists(st.sampled_from(["look", "take", "user", "say"]), max_size=4)


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), TURNS), min_size=2, max_size=5), st.randoms())
def test_prompt_and_continuations_make_up_the_episodes_and_order_does_not_matter(logged, rng):
    rows = []
    for number, (label, turns) in enumerate(logged):
        messages = [ASK]
        for place, turn in enumerate(turns):
            match turn:
                case "user":
                    messages.append({"role": "user", "content": "And?"})
                case "say":
                    messages.append(say("Hm."))
                case _:
                    messages += [call(f"{number}-{place}", turn), reply(f"{number}-{place}")]
        rows.append(episode(f"e{number}", label, messages))
    found, report = pairs(*rows)
    shuffled = list(rows)
    rng.shuffle(shuffled)
    assert pairs(*shuffled) == (found, report)
    by_id = {item["trace_id"]: item for item in rows}
    for pair in found:
        rejected = by_id[pair["rejected_trace"]]
        assert json.loads(pair["prompt"]) + json.loads(pair["rejected"]) == json.loads(rejected["messages"])
        chosen = json.loads(by_id[pair["chosen_trace"]]["messages"])
        assert chosen[-len(json.loads(pair["chosen"])) :] == json.loads(pair["chosen"])
        starts = [json.loads(pair[side])[0] for side in ("chosen", "rejected")]
        assert all(start["role"] == "assistant" for start in starts) and starts[0] != starts[1]
