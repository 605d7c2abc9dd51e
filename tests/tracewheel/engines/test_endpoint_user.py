"""A simulated user behind a real HTTP server: what it is told, what it hears, its mistakes, and its journal."""

import pytest

from tracewheel.core.errors import InfrastructureError
from tracewheel.engines.endpoint_user import GOODBYE, EndpointUser
from tracewheel.environments.refund_desk.environment import RefundDeskArgs, RefundDeskEnvironment
from tracewheel.environments.refund_desk.tasks import refund_desk_task

ORDERS = [
    {"id": "K7", "customer": "Ann", "item": "kettle", "days": 12, "paid": "card", "status": "delivered"},
    {"id": "C9", "customer": "Ben", "item": "chair", "days": 3, "paid": "card", "status": "delivered"},
]
USER = {"customer": "Ann", "wish": "refund", "item": "kettle", "number": "asked", "used": True, "style": 0}
TASK = refund_desk_task("Please refund the kettle.", {"orders": ORDERS, "user": USER | {"instead": None, "change": None}})


def desk(server, **settings):
    args = {"endpoint": server.url, "model": "customer", "retries": 0, **settings}
    environment = RefundDeskEnvironment(RefundDeskArgs.model_validate({"user": {"kind": "endpoint", "args": args}}))
    environment.reset(TASK)
    return environment


def says(*texts):
    return lambda body, number: {"content": texts[min(number, len(texts) - 1)]}


def test_the_model_plays_the_customer(chat_server):
    server = chat_server(says("It is K7.", "<think>Used.</think>\nYes, I have used it.", f"Thanks. {GOODBYE}"))
    environment = desk(server, temperature=0.3)
    assert not environment.repeatable
    assert environment.reply("Which order?").text == "It is K7."
    assert environment.reply("Was it used?").text == "Yes, I have used it."
    last = environment.reply("Sorry, then we cannot refund it.")
    assert last.done and not last.fault
    (_, first), _, (_, third) = server.requests
    assert first["model"] == "customer" and first["temperature"] == 0.3 and "tools" not in first
    system, greeting, opening, asked = first["messages"]
    assert "Order number: K7" in system["content"] and "used" in system["content"]
    assert "C9" not in system["content"] and "Ben" not in system["content"] and "refused" not in TASK.prompt
    assert (greeting["role"], opening) == ("user", {"role": "assistant", "content": TASK.prompt})
    assert asked == {"role": "user", "content": "Which order?"}
    assert [message["role"] for message in third["messages"][3:]] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"content": "How may I help you?"}, "answers as an assistant"),
        ({"content": "It is R2."}, "makes a value up: 'R2'"),
        ({"content": "It was never used."}, "contradicts its facts"),
        ({"content": "It is C9."}, "tells what it cannot know"),
        ({"content": "<think>What now"}, "says nothing"),
        ({"content": "It is", "finish_reason": "length"}, "cut off"),
        (
            {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "refund", "arguments": "{}"}}]},
            "it calls a tool",
        ),
    ],
)
def test_a_model_that_errs_is_the_users_fault(chat_server, answer, reason):
    observation = desk(chat_server(lambda body, number: answer)).reply("Tell me more.")
    assert observation.fault == "user" and reason in observation.text


def test_an_endpoint_that_is_down_is_no_fault_of_the_user(chat_server):
    with pytest.raises(InfrastructureError):
        desk(chat_server(lambda body, number: (500, {}, b"oops"))).reply("Which order?")


def test_the_journal_answers_the_same_conversation_once(chat_server, tmp_path):
    server = chat_server(lambda body, number: {"content": f"Answer {number}."})
    journal = str(tmp_path / "users.jsonl")
    first, other = desk(server, journal=journal), desk(server, journal=journal)
    assert first.reply("Which order?").text == other.reply("Which order?").text == "Answer 0."
    assert first.reply("And your name?").text == "Answer 1."
    # Other settings, as in another process: the file is read again.
    again = desk(server, journal=journal, timeout=7)
    assert again.reply("Which order?").text == "Answer 0."
    assert len(server.requests) == 2


def test_episodes_share_one_client_and_its_limits(chat_server):
    args = EndpointUser.Args(endpoint=chat_server(says("Hm.")).url, model="customer")
    assert EndpointUser(args)._line is EndpointUser(args)._line
    assert EndpointUser(args)._line is not EndpointUser(args.model_copy(update={"seed": 1, "model": "other"}))._line


def test_an_episode_goes_on_from_its_snapshot_without_asking_again(chat_server):
    server = chat_server(says("It is K7.", "Yes, I have used it."))
    left, went_on = desk(server), desk(server)
    left.reply("Which order?")
    went_on.restore(TASK, left.snapshot())
    assert len(server.requests) == 1
    assert went_on.reply("Was it used?").text == "Yes, I have used it."
    (_, _), (_, second) = server.requests
    assert [message["content"] for message in second["messages"][3:]] == ["Which order?", "It is K7.", "Was it used?"]
