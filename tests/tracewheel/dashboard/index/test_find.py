"""What is asked for is found, as a look through the stored files finds it, and nothing typed is more than words."""

import orjson
import pytest

from tracewheel.core.files import read_table
from tracewheel.dashboard.episodes import excerpt
from tracewheel.dashboard.index import find
from tracewheel.dashboard.index.facts import words_of
from tracewheel.dashboard.index.find import full_text_query, plain_words
from tracewheel.dashboard.sources import sources_of


@pytest.fixture(scope="module")
def texts(library):
    """Words of each episode of both runs, by stored result, part and id."""
    found = {}
    for place, run_id in library.runs():
        for source in sources_of(library.run(place.name, run_id)):
            table = read_table(source.trajectories, ["id", "messages"])
            for name, messages in zip(table["id"], table["messages"], strict=True):
                found[source.entry, source.part, name] = words_of(orjson.loads(messages))
    return found


@pytest.mark.parametrize(
    ("words", "is_there"),
    [
        ("urgent", lambda text: "urgent" in text),
        ('"/done/manifest.json"', lambda text: "/done/manifest.json" in text),
        ("urgent -inbox", lambda text: "urgent" in text and "inbox" not in text),
        ("manif* urgent", lambda text: "manifest" in text and "urgent" in text),
    ],
)
def test_search_finds_what_is_there(indexed, texts, words, is_there):
    rows, count = find.search(indexed, words, {}, [], 0, 5000)
    wanted = {key for key, text in texts.items() if is_there(text)}
    assert {(row["entry"], row["part"], row["trajectory"]) for row in rows} == wanted
    assert count == len(rows) == len(wanted) > 0
    page, _ = find.search(indexed, words, {}, [], 3, 5)
    assert [row["id"] for row in page] == [row["id"] for row in rows[3:8]]


def test_search_with_marks_and_of_one_run(indexed, run_ids):
    every, _ = find.search(indexed, "manifest", {}, [], 0, 5000)
    failed, _ = find.search(indexed, "manifest", {"outcome": "failed", "tool": "finish"}, [], 0, 5000)
    assert {row["id"] for row in failed} == {
        row["id"] for row in every if row["outcome"] == "failed" and "finish" in row["tools"]
    }
    number = find.run_number(indexed, run_ids[0])
    own, _ = find.search(indexed, "manifest", {}, [number], 0, 5000)
    assert 0 < len(own) < len(every) and {row["run"] for row in own} == {run_ids[0]}
    assert find.search(indexed, "  ", {}, [], 0, 10) == ([], 0)


TYPED = [
    '"',
    '"" AND',
    "text : x",
    "a NOT",
    "(",
    "NEAR(a b)",
    "*",
    "-",
    "-a",
    "^a",
    "a:b",
    "'; DROP TABLE runs; --",
    "?x",
    "\0a",
]


@pytest.mark.parametrize("words", TYPED)
def test_nothing_typed_is_more_than_words(indexed, words):
    find.search(
        indexed, words.encode("utf-8", "replace").decode(), {"tool": words.encode("utf-8", "replace").decode()}, [], 0, 5
    )
    assert indexed.execute("SELECT count(*) FROM runs").fetchone()[0] == 2


def test_queries():
    assert full_text_query('two words "a phrase" -not', {}) == '(text : ("two" AND "words" AND "a phrase")) NOT text : ("not")'
    assert full_text_query("begin*", {}) == 'text : ("begin" *)'
    assert full_text_query("", {"outcome": ""}) == full_text_query("!! -x", {}) == ""
    assert plain_words('one "two three" -four fi*') == ["one", "two three", "fi"]
    assert excerpt("a long text with the Done/Manifest.json in it", ["done manifest json"])[1] == "Done/Manifest.json"


def test_episodes_of_a_run_by_filters(indexed, run_ids):
    run = find.run_number(indexed, run_ids[0])
    every, count = find.episodes_of(indexed, run, find.Asked({}, shown=10_000))
    assert len(every) == count
    checks = {
        "outcome": ("failed", lambda row: row["outcome"] == "failed"),
        "tool": ("read_file", lambda row: "read_file" in row["tools"]),
        "iteration": ("3", lambda row: row["iteration"] == 3),
        "version": ("2", lambda row: row["oldest"] <= 2 <= row["newest"]),
        "least": ("150", lambda row: row["tokens"] >= 150),
        "kind": ("rollout", lambda row: row["kind"] == "rollout"),
        "stop": ("no_tool_call", lambda row: row["stop"] == "no_tool_call"),
        "fault": ("early_stop", lambda row: row["fault"] == "early_stop"),
    }
    for name, (value, passes) in checks.items():
        rows, found = find.episodes_of(indexed, run, find.Asked({name: value}, shown=10_000))
        assert {row["id"] for row in rows} == {row["id"] for row in every if passes(row)}, name
        assert found == len(rows) > 0, name
    longest, _ = find.episodes_of(indexed, run, find.Asked({}, sort="tokens", shown=7))
    assert [row["tokens"] for row in longest] == sorted((row["tokens"] for row in every), reverse=True)[:7]
    choices = find.choices_of(indexed, run)
    assert sum(n for _, n in choices["outcome"]) == count and dict(choices["fault"])["early_stop"] > 0


def test_the_history_of_a_task_counts_each_stored_result_once(indexed, run_ids):
    run = find.run_number(indexed, run_ids[0])
    every, _ = find.episodes_of(indexed, run, find.Asked({"kind": "rollout"}, shown=10_000))
    task = every[0]["task"]
    own = [row for row in every if row["task"] == task]
    history = find.task_history(indexed, task, [run])
    (row,) = [row for row in history["rows"] if row["kind"] == "rollout"]
    solved = sum(row["success"] for row in own)
    assert (row["attempts"], row["successes"]) == (len(own), solved) and history["splits"] == ["train"]
    assert (
        row["posterior"] == pytest.approx((1 + solved) / (2 + len(own))) and row["ends"][0] < row["posterior"] < row["ends"][1]
    )
    both = find.task_history(indexed, task, [])
    assert both["episodes"] >= history["episodes"] and both["first"] <= both["last"]
    assert find.train_counts(indexed, run)[task]["attempts"] == len(own)
    assert find.task_history(indexed, "no such task", []) is None
    assert find.task_named(indexed, task, [run])[0]["run"] == run_ids[0] and find.task_named(indexed, "x", []) == []
    assert find.rate_of(0, 0)["rate"] is None
