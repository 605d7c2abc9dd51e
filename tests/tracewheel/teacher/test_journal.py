"""The journal of an endpoint's replies, and resuming from it."""

import json
import threading

import pytest

from tracewheel.core.errors import DataError
from tracewheel.engines.chat_reply import Reply, ReplyTokens, Usage
from tracewheel.teacher.attempt import Attempt, EndpointEpisode
from tracewheel.teacher.play import Journal


@pytest.fixture
def wanted(tasks):
    return EndpointEpisode(tasks[0], 0, 5, 0.5, "key-1")


def reply(text, cost=0.25):
    usage = Usage(10, 4, 2, cost)
    return Reply({"role": "assistant", "content": text}, "stop", usage, ReplyTokens([1, 2], [3], [-0.5]))


def say(text, asked):
    """An endpoint that replies with a text and keeps its requests."""

    def ask(wanted, messages, tools):
        asked.append(messages)
        return reply(text)

    return ask


def test_stored_replies_are_not_requested_again(wanted, tmp_path):
    path, asked = tmp_path / "deep" / "journal.jsonl", []
    with Journal(path) as journal:
        assert journal.speaker(wanted, say("one", asked))(["hello"], []) == reply("one")
    with Journal(path) as journal:
        speak = journal.speaker(wanted, say("two", asked))
        assert speak(["hello"], []) == reply("one") and len(asked) == 1
        assert speak(["hello", "more"], []) == reply("two"), "another conversation"
        assert journal.spent == 0.25
    with Journal(path) as journal:
        assert journal.spent == 0.5
        assert journal.speaker(EndpointEpisode(wanted.task, 1, 5, 0.5, "key-2"), say("three", asked))(["hello"], []) == reply(
            "three"
        )


def test_unfinished_episodes_are_not_stored_as_ended(tmp_path):
    path = tmp_path / "journal.jsonl"
    ended = Attempt(
        "a", "task", 0, 1, 1.0, messages=[{"role": "user", "content": "«hi»"}], stop_reason="finished", final_state={}
    )
    with Journal(path) as journal:
        for attempt in (ended, Attempt("b", "task", 0, 1, 1.0, stop_reason="budget"),
                        Attempt("c", "task", 0, 1, 1.0, stop_reason="infrastructure_failed")):  # fmt: skip
            journal.note(attempt)
    assert Journal(path).ended == {"a": ended}


def test_an_incomplete_line_is_dropped_and_overwritten(wanted, tmp_path):
    path, asked = tmp_path / "journal.jsonl", []
    with Journal(path) as journal:
        journal.speaker(wanted, say("one", asked))(["hello"], [])
        journal.speaker(wanted, say("two", asked))(["more"], [])
    path.write_bytes(path.read_bytes()[:-30])
    with Journal(path) as journal:
        assert journal.spent == 0.25
        journal.speaker(wanted, say("again", asked))(["more"], [])
    assert [json.loads(line)["reply"]["message"]["content"] for line in path.read_text().splitlines()] == ["one", "again"]


@pytest.mark.parametrize(
    "line", ["no json", '{"episode": "a"}', '{"attempt": {"key": "a"}}', '{"key": "an older version"}', "[]"]
)
def test_another_file_is_refused_and_left_alone(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match="is no journal of this version"):
        Journal(path)
    assert path.read_text() == line + "\n"


def test_many_threads_write_whole_lines(wanted, tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:

        def work(thread):
            speak = journal.speaker(EndpointEpisode(wanted.task, 0, 5, 0.5, f"{thread}"), say("x" * 5000, []))
            for number in range(20):
                speak([number], [])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert Journal(path).spent == pytest.approx(8 * 20 * 0.25)
