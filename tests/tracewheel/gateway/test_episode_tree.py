"""Programs that rewrite their histories: the trees worked out by hand, and the gradients of an exact re-run."""

import functools
import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from tracewheel.core.forks import rows
from tracewheel.gateway.exchange import Refusal
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.scored_trajectories import with_credit

SYSTEM, USER = {"role": "system", "content": "S"}, {"role": "user", "content": "u"}


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture
def talk(talk_with, renderer):
    return functools.partial(talk_with, renderer)


def strips_thinking(talk):
    made = talk("<think>\na\n</think>\n\none", "<think>\nb\n</think>\n\ntwo", "three")
    messages = [SYSTEM, USER]
    for text in ("x", "y", "z"):
        message = made.ask(messages)
        messages = [*messages, {"role": "assistant", "content": message["content"]}, user(text)]
    return made


def compacts(talk):
    made = talk("one", "two", "three", "four")
    first = made.ask([SYSTEM, USER])
    second = made.ask([SYSTEM, USER, first, user("x")])
    third = made.ask([SYSTEM, USER, user("you said one"), second, user("y")])
    made.ask([SYSTEM, USER, user("you said one"), second, user("y"), third, user("z")])
    return made


def has_two_sub_agents(talk):
    made = talk("plan", "left", "right", "done")
    plan = made.ask([SYSTEM, USER])
    left = made.ask([{"role": "system", "content": "L"}, user("plan")], "policy/left")
    right = made.ask([{"role": "system", "content": "R"}, user("plan")], "policy/right")
    made.ask([SYSTEM, USER, plan, user(f"{left['content']} {right['content']}")])
    return made


def retries(talk):
    made = talk("bad", "good", "end")
    made.ask([SYSTEM, USER])
    good = made.ask([SYSTEM, USER])
    made.ask([SYSTEM, USER, good, user("x")])
    return made


def edits(talk):
    made = talk("one two", "three", "four")
    first = made.ask([SYSTEM, USER])
    edited = {**first, "content": "one TWO"}
    second = made.ask([SYSTEM, USER, edited, user("x")])
    made.ask([SYSTEM, USER, edited, user("x"), second, user("y")])
    return made


# For each: the branches as (reason, turns), and of each row the numbers of the turns that are trained on in it.
PROGRAMS = {
    strips_thinking: ([("", [0]), ("thinking_stripped", [1]), ("thinking_stripped", [2])], [[0], [1], [2]]),
    compacts: ([("", [0, 1]), ("compaction", [2, 3])], [[0, 1], [2, 3]]),
    has_two_sub_agents: ([("", [0, 3]), ("sub_agent", [1]), ("sub_agent", [2])], [[1], [2], [0, 3]]),
    retries: ([("", [0]), ("retry", [1, 2])], [[0], [1, 2]]),
    edits: ([("", [0]), ("edited", [1, 2])], [[0], [1, 2]]),
}


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.__name__)
def program(request, talk):
    return request.param(talk), *PROGRAMS[request.param]


def test_the_tree_is_the_one_worked_out_by_hand(program, renderer):
    talk, branches, turns_of_rows = program
    found = talk.episode.record()
    assert [(branch["reason"], branch["turns"]) for branch in found.branches] == branches
    paths = rows(found.forks, len(found.token_ids))
    own = [[number for number, turn in enumerate(found.turns) if turn["end"] - 1 in path] for path in paths]
    assert own == turns_of_rows
    for reply, turn in zip(talk.replies, found.turns, strict=True):
        path = next(path for path in paths if turn["end"] - 1 in path)
        read = path[: path.index(turn["start"])]
        assert tuple(found.token_ids[at] for at in read) == reply.prompt_ids
        assert found.token_ids[turn["start"] : turn["end"]] == [token.id for token in reply.tokens]
    assert sum(found.action_mask) == sum(len(reply.tokens) for reply in talk.replies)


def test_a_context_is_what_the_template_writes(program, renderer):
    """Where the template only appends and ids and text agree, the context is that of the messages alone."""
    talk, *_ = program
    for branch in talk.episode.record().branches:
        *before, last = branch["messages"]
        reply = next(reply for reply in talk.replies if reply.message == last)
        assert renderer.decode(list(reply.prompt_ids)) == renderer.decode(renderer.prompt_ids(before, []))


def test_gradients_are_those_of_an_exact_rerun(program, model):
    """Each turn alone, after the context that was read, against the tree in one pass."""
    talk, *_ = program
    found = talk.episode.record()
    whole = pd.DataFrame(
        [{"token_ids": found.token_ids, "action_mask": found.action_mask, "logprobs": found.logprobs, "forks": found.forks}]
    )
    alone = pd.DataFrame(
        [
            {
                "token_ids": [*reply.prompt_ids, *(token.id for token in reply.tokens)],
                "action_mask": [0] * len(reply.prompt_ids) + [1] * len(reply.tokens),
                "logprobs": [0.0] * (len(reply.prompt_ids) + len(reply.tokens)),
            }
            for reply in talk.replies
        ]
    )
    for layout in ("packed", "shared_prefix"):
        expected = gradient(model, alone, layout)
        assert torch.linalg.norm(gradient(model, whole, layout) - expected) < 1e-5 * torch.linalg.norm(expected)


def gradient(model, table, layout):
    model.zero_grad()
    total = 0.0
    for batch in micro_batches(table, [1.0] * len(table), 4000, layout=layout):
        logprobs = action_logprobs(model, batch, layout=layout)[0]
        total = total + (logprobs * batch.action_mask).sum()
    total.backward()
    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    model.zero_grad()
    return found


def test_a_reply_may_come_back_with_other_white_space_in_its_arguments(talk, call_text):
    made = talk(call_text("read_file", path="a"), "end")
    said = made.ask([USER])
    [call] = said["tool_calls"]
    call = {**call, "function": {**call["function"], "arguments": '{ "path":\n"a"}'}}
    made.ask(
        [USER, {**said, "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"], "content": "t"}]
    )
    found = made.episode.record()
    assert not found.branches and not found.forks and len(found.turns) == 2


def test_a_call_with_another_id_is_an_edit(talk, call_text):
    made = talk(call_text("read_file", path="a"), "end")
    said = made.ask([USER])
    [call] = said["tool_calls"]
    made.ask([USER, {**said, "tool_calls": [{**call, "id": "mine"}]}, {"role": "tool", "tool_call_id": "mine", "content": "t"}])
    assert [branch["reason"] for branch in made.episode.record().branches] == ["", "edited"]


@pytest.mark.parametrize(
    ("histories", "reason"),
    [
        (([USER, "one", user("x")], [USER, "one", user("y")]), "parallel"),
        (([USER], [user("other")]), "new_conversation"),
    ],
)
def test_why_a_history_parts(talk, histories, reason):
    made = talk("one", "two", "three")
    said = made.ask([USER])
    for history in histories:
        made.ask([said if message == "one" else message for message in history])
    assert made.episode.record().branches[-1]["reason"] == reason


def test_other_tools_begin_a_branch(talk):
    from tracewheel.environments.workspace.environment import TOOLS

    made = talk("one", "two")
    said = made.ask([USER], tools=TOOLS)
    made.ask([USER, said, user("x")], tools=TOOLS[:2])
    assert [branch["reason"] for branch in made.episode.record().branches] == ["", "tools_changed"]


def test_a_stop_text_ends_a_turn_where_it_is_complete(talk, renderer):
    made = talk("go on. Observation:none", "end")
    said = made.ask([USER], stop=("Observation:",))
    assert said["content"].strip() == "go on."
    reply = made.replies[0]
    assert reply.stop_sequence == "Observation:" and reply.finish_reason == "stop"
    assert renderer.decode([token.id for token in reply.tokens]) == "go on. Observation:"
    made.ask([USER, said, user("x")])
    found = made.episode.record()
    assert not found.branches and not found.forks
    end = found.turns[0]["end"]
    assert found.token_ids[end] == renderer.end_of_turn_id and found.action_mask[end] == 0


def test_a_named_tool_begins_the_turn_and_is_not_trained_on(talk, call_text, renderer):
    from tracewheel.environments.workspace.environment import TOOLS

    head = renderer.call_head(next(tool for tool in TOOLS if tool["function"]["name"] == "read_file"))
    rest = call_text("read_file", path="a").removeprefix(renderer.decode(head))
    made = talk(rest)
    said = made.ask([USER], tools=TOOLS, tool="read_file")
    assert said["tool_calls"][0]["function"]["name"] == "read_file"
    [turn] = made.episode.record().turns
    assert turn["forced"] == len(head)


def test_limits_and_what_cannot_be_answered(talk):
    made = talk("one", "two", max_turns=1, max_tokens=200, max_turn_tokens=50)
    for messages, kind in [
        ([], "invalid_request"),
        ([user("long " * 300)], "context_length_exceeded"),
    ]:
        with pytest.raises(Refusal) as refused:
            made.ask(messages)
        assert refused.value.kind == kind
    said = made.ask([USER])
    with pytest.raises(Refusal, match="rollout.max_turns"):
        made.ask([USER, said, user("x")])
    found = made.episode.record()
    assert (found.limit, found.requests["asked"], found.requests["refused"], len(found.turns)) == ("max_turns", 4, 3, 1)
    made.gateway.close(made.episode)
    with pytest.raises(Refusal) as refused:
        made.ask([USER])
    assert refused.value.kind == "authentication"


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        ("all", [None] * 4),
        ("auto", [None] * 4),
        ("last", [None, "", "", None]),
        ("kept", [None, "", "", None]),
        ("per_agent", [None, "left", "right", None]),
    ],
)
def test_credit_of_branches(talk, credit, expected):
    found = has_two_sub_agents(talk).episode.record(credit)
    assert [turn.get("credit") for turn in found.turns] == expected


THROWN, SUMMARY = "There is nothing to tell of it.", "<analysis>a b c</analysis><summary>The key lies under the mat.</summary>"
SECOND = "The key opened the shed, and the rake is in it."


def summed_up(talk, begin):
    """Two turns, a summary that is thrown away, one that is taken, and a turn after it."""
    made = talk("look", "lift", THROWN, SUMMARY, "open")
    first = made.ask([SYSTEM, USER])
    second = made.ask([SYSTEM, USER, first, user("x")])
    history = [SYSTEM, USER, first, user("x"), second, user("Sum up.")]
    made.ask(history)
    made.ask(history)
    return made, [*begin, user("So far:\nThe key  lies under the mat.")]


@pytest.mark.parametrize("begin", [[SYSTEM], [SYSTEM, USER]], ids=["anew", "after the task"])
def test_the_summary_that_was_taken_is_kept_with_the_work_before_it(talk, begin):
    made, history = summed_up(talk, begin)
    made.ask(history)
    found = made.episode.record("auto")
    assert [branch["reason"] for branch in found.branches] == ["", "retry", "compaction"]
    assert [turn.get("credit") for turn in found.turns] == [None, None, "", None, None]
    assert [turn.get("credit") for turn in made.episode.record("last").turns] == ["", "", "", "", None]
    row = {
        "token_ids": found.token_ids,
        "action_mask": found.action_mask,
        "logprobs": found.logprobs,
        "total": 1.0,
        "group": "g",
    }
    [kept] = with_credit(pd.DataFrame([{**row, "turns": json.dumps(found.turns)}])).to_dict("records")
    thrown = range(found.turns[2]["start"], found.turns[2]["end"])
    assert [at for at in range(len(found.token_ids)) if found.action_mask[at] > kept["action_mask"][at]] == list(thrown)


def test_summaries_of_summaries_are_kept(talk):
    made, history = summed_up(lambda *texts: talk(*texts, THROWN, SECOND, "rake"), [SYSTEM])
    opened = made.ask(history)
    again = [*history, opened, user("Sum up.")]
    made.ask(again)
    made.ask(again)
    made.ask([SYSTEM, user(SECOND)])
    assert [turn.get("credit") for turn in made.episode.record("kept").turns] == [None, None, "", None, None, "", None, None]


def test_turns_that_a_window_left_out_are_not_kept(talk):
    made = talk("one", "two", "three")
    first = made.ask([SYSTEM, USER])
    second = made.ask([SYSTEM, USER, first, user("x")])
    made.ask([SYSTEM, USER, second, user("y")])
    found = made.episode.record("auto")
    assert found.branches[-1]["reason"] == "compaction"
    assert [turn.get("credit") for turn in found.turns] == ["", None, None]


def test_a_sub_agents_answer_that_was_used_is_kept_and_its_work(talk):
    made = talk("plan", "looking for it", "The rake is in bay 3.", "no answer at all", "done")
    plan = made.ask([SYSTEM, USER])
    other = [{"role": "system", "content": "L"}, user("find")]
    looked = made.ask(other, "policy/left")
    answer = made.ask([*other, looked, user("go on")], "policy/left")
    made.ask([{"role": "system", "content": "R"}, user("find")], "policy/right")
    made.ask([SYSTEM, USER, plan, user(f"left says: {answer['content']}")])
    assert [turn.get("credit") for turn in made.episode.record("kept").turns] == [None, None, None, "", None]


def test_a_turn_sent_back_without_its_thinking_is_kept(talk):
    found = strips_thinking(talk).episode.record("kept")
    assert [turn.get("credit") for turn in found.turns] == [None] * 3


def test_a_recorded_session_of_an_agent_that_sums_up(talk):
    """Requests of LangChain 1.5's agent with its SummarizationMiddleware, made to throw each first summary away."""
    asked = json.loads(Path(__file__).with_name("summarised_session.json").read_text())
    made = talk(*(each["says"] for each in asked), max_tokens=4000, max_turn_tokens=200, max_turns=20)
    for each in asked:
        made.ask(each["messages"], tools=each["tools"])
    found = made.episode.record("auto")
    thrown = [number for number, each in enumerate(asked) if "of no use" in each["says"]]
    assert thrown == [3, 7, 11] and len(found.turns) == 15
    assert [number for number, turn in enumerate(found.turns) if turn.get("credit") == ""] == thrown
    assert [branch["reason"] for branch in found.branches].count("compaction") == 3


def texts(found, renderer, sampled=False):
    """The text of all tokens of an episode, or of those that were sampled."""
    return renderer.decode([one for one, mask in zip(found.token_ids, found.action_mask, strict=True) if mask or not sampled])


def test_a_stop_text_that_a_program_puts_back_is_the_turn_as_it_was(talk, renderer):
    made = talk("x = 1</code>", "y = 2</code>", "done")
    said = made.ask([USER], stop=("</code>",))
    assert said["content"] == "x = 1"
    messages = [USER, {**said, "content": "x = 1</code>"}, user("1")]
    said = made.ask(messages, stop=("</code>",))
    made.ask([*messages, {**said, "content": "y = 2</code> I call."}, user("2")])
    found = made.episode.record()
    assert found.branches == [] and found.requests["unmatched"] == 0
    assert texts(found, renderer).count("</code>") == 2 and texts(found, renderer).count("</code> I call.<|im_end|>") == 1
    assert "I call." not in texts(found, renderer, sampled=True)


def test_a_turn_begins_with_the_programs_words_and_is_not_trained_on_them(talk, renderer):
    made = talk(" one.", "two")
    said = made.ask([USER], prefill="I am")
    made.ask([USER, said, user("x")])
    found = made.episode.record()
    assert said["content"] == "I am one." and found.branches == []
    assert texts(found, renderer).count("I am one.") == 1 and texts(found, renderer, sampled=True).startswith(" one.")
    assert found.turns[0]["forced"] > 0


def test_the_assistant_may_speak_last(talk):
    made = talk("one", "two")
    said = made.ask([USER])
    made.ask([USER, said])
    found = made.episode.record()
    assert len(found.turns) == 2 and found.requests["unmatched"] == 0


def test_a_title_beside_the_agent_is_neither_its_root_nor_rewarded(talk):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    made = talk("A title of it", "one", "two", "A short summary of all")
    made.ask([{"role": "system", "content": "Name it."}, USER], model="small")
    first = made.ask([SYSTEM, USER], tools=tools)
    made.ask([SYSTEM, USER, first, user("x")], tools=tools)
    made.ask([{"role": "system", "content": "Sum up."}, USER])
    found = made.episode.record("auto")
    assert [(branch["reason"], branch["agent"], branch["turns"]) for branch in found.branches] == [
        ("", "", [1, 2]), ("side_request", "small", [0]), ("side_request", "", [3]),
    ]  # fmt: skip
    assert [turn.get("credit") for turn in found.turns] == ["", None, None, ""]
    assert found.messages[-1]["content"] == "two"
    assert [turn.get("credit") for turn in made.episode.record("all").turns] == [None] * 4
    assert made.episode.record("per_agent").turns[3]["credit"].startswith("agent-")


def test_an_answer_without_tools_that_the_agent_has_read_is_no_side_request(talk):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    made = talk("First look into the shed.", "one")
    plan = made.ask([SYSTEM, user("plan")])
    made.ask([SYSTEM, user(f"Do this: {plan['content']}")], tools=tools)
    assert [turn.get("credit") for turn in made.episode.record("auto").turns] == [None, None]
