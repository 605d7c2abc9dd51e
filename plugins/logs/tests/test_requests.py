"""Logs of single model requests: which of them are one conversation."""

import itertools
import json
import random
from collections import Counter

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.config import IngestConfig
from tracewheel.core.types import Trace
from tracewheel.curation.replayed_traces import superseded_traces
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.spool import Spool

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SYSTEM = {"role": "system", "content": "Help."}


def read(*values, format="auto"):
    with Spool() as spool:
        reader = LogReader(format, spool)
        pieces = [Piece(json.dumps(value).encode(), number, 0) for number, value in enumerate(values, start=1)]
        return [*reader.read(pieces, "log"), *(item for _, item in reader.spooled())]


def user(text):
    return {"role": "user", "content": text}


def told(text):
    return {"role": "assistant", "content": text}


def called(identity, thing="door"):
    function = {"name": "look", "arguments": json.dumps({"at": thing})}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": identity, "type": "function", "function": function}]}


def reply(identity, text):
    return {"role": "tool", "tool_call_id": identity, "content": text}


def requests_of(conversation, **fields):
    """The log of a conversation: a pair for each of the agent's turns."""
    return [
        pair(conversation[:position], message, **fields)
        for position, message in enumerate(conversation)
        if message["role"] == "assistant"
    ]


NUMBERS = itertools.count()


def pair(sent, answer, **fields):
    """One logged request; its id is new."""
    choices = [{"index": 0, "message": answer, "finish_reason": "stop"}] if answer else []
    response = {"id": f"r{next(NUMBERS)}", "created": 1790000000, "choices": choices}
    return {"request": {"model": "m", "messages": sent, "tools": [TOOL]}, "response": response, **fields}


def texts(item):
    assert isinstance(item, Trace), item
    return tuple((message["role"], message["content"] or "calls") for message in item.messages)


def as_texts(conversation):
    return tuple((message["role"], message["content"] or "calls") for message in conversation)


TALK = [
    SYSTEM,
    user("Open the door."),
    called("c1"),
    reply("c1", "locked"),
    called("c2", "key"),
    reply("c2", "found"),
    told("Done."),
]


def test_requests_that_continue_one_another_are_one_conversation():
    (trace,) = read(*requests_of(TALK, session_id="s", user_id="u"))
    assert texts(trace) == as_texts(TALK)
    assert (trace.info["requests"], trace.session, trace.user, trace.tools) == (3, "s", "u", [TOOL])
    assert trace.format == "requests"


def test_an_id_that_each_request_has_of_its_own_is_no_session():
    (trace,) = read(*({**record, "trace_id": f"t{number}"} for number, record in enumerate(requests_of(TALK))))
    assert trace.session is None
    (trace,) = read(*({**record, "trace_id": "t"} for record in requests_of(TALK)))
    assert trace.session == "t"


# Conversations from few texts, so that many begin alike; each turn of the user is followed by the agent's.
turns = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(talks=st.lists(turns, min_size=1, max_size=6), order=st.randoms(use_true_random=False), answered=st.booleans())
def test_any_mixture_of_logs_gives_back_its_conversations(talks, order, answered):
    talks = [[message for asked, said in talk for message in (user(asked), told(said))] for talk in talks]
    log = [record for talk in talks for record in requests_of(talk)]
    if answered:
        log.append(pair(talks[0][:-1], None))  # failed, and was sent again
    order.shuffle(log)
    whole = [as_texts(talk) for talk in talks]
    expected = Counter(talk for talk in whole if not any(other[: len(talk)] == talk != other for other in whole))
    assert Counter(map(texts, read(*log))) == expected


def test_branches_and_attempts_stay_apart():
    other = [*TALK[:4], told("It is locked.")]
    assert Counter(map(texts, read(*requests_of(TALK), *requests_of(other)))) == Counter([as_texts(TALK), as_texts(other)])
    twice = read(*requests_of(TALK), *requests_of(TALK))
    assert [texts(trace) for trace in twice] == [as_texts(TALK)] * 2
    assert twice[0].id != twice[1].id


def test_a_session_or_a_reward_of_its_own_makes_a_conversation_of_a_beginning():
    start = TALK[:3]
    logs = [*requests_of(TALK, session_id="s1"), *requests_of(start, session_id="s2"), *requests_of(start, session_id="s2")]
    assert Counter(len(trace.messages) for trace in read(*logs)) == {7: 1, 3: 2}
    scored = [*requests_of(TALK), *requests_of(start, reward=0.0)]
    assert sorted((len(trace.messages), trace.outcome) for trace in read(*scored) if trace.outcome is not None) == [(3, 0.0)]


def test_users_are_never_mixed():
    logs = [*requests_of(TALK, user_id="u1"), *requests_of(TALK, user_id="u2")]
    random.Random(3).shuffle(logs)
    assert sorted((trace.user, len(trace.messages)) for trace in read(*logs)) == [("u1", 7), ("u2", 7)]


def test_thoughts_ids_and_white_space_may_differ_when_a_turn_is_sent_back():
    thoughtful = {**called("c1"), "reasoning_content": "A door."}
    spoken = told("<think>Hm.</think>\nIt is locked.\n")
    sent_back = [*TALK[:2], called("other"), reply("other", "locked")]
    again = [*sent_back, told("It is locked."), user("Thanks.")]
    (trace,) = read(pair(TALK[:2], thoughtful), pair(sent_back, spoken), pair(again, told("Bye.")))
    assert len(trace.messages) == 7
    assert trace.messages[2]["reasoning"] == "A door."


def test_a_request_that_failed_is_not_a_conversation_but_a_log_of_failures_is_said():
    failed = pair(TALK[:2], None, error={"message": "overloaded"})
    (trace,) = read(failed, *requests_of(TALK))
    assert texts(trace) == as_texts(TALK)
    (item,) = read(failed, failed)
    assert isinstance(item, Quarantined) and item.reason == "no assistant turn"


def in_layout(layout, record):
    """A record of the pair layout as other tools log it."""
    request, response = record["request"], record["response"]
    match layout:
        case "bodies as text":
            return {
                "request": {"url": "u", "body": json.dumps(request)},
                "response": {"status": 200, "body": json.dumps(response)},
            }
        case "helicone":
            return {"request_id": response["id"], "request_body": request, "response_body": response, "request_user_id": "u"}
        case "litellm":
            return {"id": response["id"], "call_type": "acompletion", "messages": request["messages"], "response": response,
                    "startTime": 1790000000.5, "model_parameters": {"tools": [TOOL]}}  # fmt: skip
        case "litellm's table":
            return {"request_id": response["id"], "call_type": "acompletion", "messages": json.dumps(request["messages"]),
                    "response": json.dumps(response), "startTime": "2026-10-01T08:00:00Z"}  # fmt: skip
        case "choices beside":
            return {**request, **response}
        case "requests alone":
            return {**request, "temperature": 0.5}
        case _:
            return {"startedDateTime": "2026-10-01T08:00:00Z",
                    "request": {"method": "POST", "postData": {"text": json.dumps(request)}},
                    "response": {"status": 200, "content": {"text": streamed(response)}}}  # fmt: skip


def streamed(response):
    """A chat response as the text of a stream, a few characters at a time."""
    message = response["choices"][0]["message"]
    deltas = [{"role": "assistant"}, *({"content": character} for character in message["content"] or "")]
    for call in message.get("tool_calls") or []:
        deltas.append({"tool_calls": [{"index": 0, "id": call["id"], "function": {"name": call["function"]["name"]}}]})
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in call["function"]["arguments"]]
    events = [{"id": response["id"], "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


LAYOUTS = ["bodies as text", "helicone", "litellm", "litellm's table", "choices beside", "archive"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_conversation(layout):
    records = [in_layout(layout, record) for record in requests_of(TALK)]
    (trace,) = read({"log": {"version": "1.2", "entries": records}}) if layout == "archive" else read(*records)
    assert texts(trace) == as_texts(TALK)
    assert [call["function"]["arguments"] for call in trace.messages[4]["tool_calls"]] == ['{"at": "key"}']


def test_requests_without_responses_give_what_later_ones_repeat():
    (trace,) = read(*(in_layout("requests alone", record) for record in requests_of(TALK)))
    assert texts(trace) == as_texts(TALK[:-1])


def test_a_stream_that_was_cut_off_gives_what_came():
    (record,) = requests_of([user("Hello?"), told("Good morning.")])
    whole = streamed(record["response"])
    for end in [*range(0, len(whole), 9), len(whole)]:
        record["response"] = {"body_raw": whole[:end]}
        (item,) = read(record)
        said = item.messages[1]["content"] if isinstance(item, Trace) else ""
        assert "Good morning.".startswith(said or "")
    assert said == "Good morning."


def items(*texts_sent, previous=None, output="Yes."):
    """A request of the responses API whose history the provider keeps."""
    body = {
        "model": "m",
        "instructions": "Help.",
        "input": [user(text) for text in texts_sent],
        "previous_response_id": previous,
    }
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": output}]}
    return {"request": body, "response": {"id": f"resp_{output}", "object": "response", "output": [message]}}


def test_a_response_named_as_the_previous_one_comes_before():
    (trace,) = read(items("Two?", previous="resp_1", output="2"), items("One?", output="1"))
    assert texts(trace) == (("system", "Help."), ("user", "One?"), ("assistant", "1"), ("user", "Two?"), ("assistant", "2"))
    (item,) = read(items("Two?", previous="resp_1", output="2"))
    assert isinstance(item, Quarantined) and item.reason == "beginning is missing"
    circle = read(items("A", previous="resp_b", output="a"), items("B", previous="resp_a", output="b"))
    assert [item.reason for item in circle] == ["beginning is missing"]


def test_a_conversation_that_goes_on_in_a_later_ingest_is_curated_once(tmp_path):
    log, out = tmp_path / "proxy.jsonl", tmp_path / "out"
    config = IngestConfig(paths=(str(log),))
    first, *later = requests_of(TALK, session_id="s")
    log.write_text(json.dumps(first) + "\n")
    assert ingest_new(config, out)["kept"] == 1
    with log.open("a") as lines:
        lines.writelines(json.dumps(record) + "\n" for record in later)
    assert ingest_new(config, out)["added"]["kept"] == 1
    stored = pandas.read_parquet(out / "traces.parquet")
    lengths = {row.id: len(json.loads(row.messages)) for row in stored.itertuples()}
    assert superseded_traces(out / "traces.parquet") == {name for name, length in lengths.items() if length == 3}
