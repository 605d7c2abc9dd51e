"""What is asked for is found, as a look through the stored files finds it, and nothing typed is more than words."""

import orjson
import pytest

from tracewheel.core.files import read_table
from tracewheel.dashboard.digests import Digests
from tracewheel.dashboard.episodes import excerpt
from tracewheel.dashboard.facts import words_of
from tracewheel.dashboard.find import (
    Asked,
    choices_of,
    count_of,
    episodes_of,
    rate_of,
    task_history,
    task_named,
    terms_of,
    train_counts,
)
from tracewheel.dashboard.sources import sources_of

MANY = 10_000


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


@pytest.fixture(scope="module")
def first(library, run_ids):
    """The digests of the first run."""
    return Digests(library).of(next(iter(library.places.values())), [run_ids[0]], 600)


def search(shelf, words, marks=None, begin=0, shown=MANY):
    return episodes_of(shelf, Asked(marks or {}, terms_of(words), first=begin, shown=shown))


@pytest.mark.parametrize(
    ("words", "is_there"),
    [
        ("urgent", lambda text: "urgent" in text),
        ("ÚRGENT", lambda text: "urgent" in text),
        ('"/done/manifest.json"', lambda text: "/done/manifest.json" in text),
        ("urgent -inbox", lambda text: "urgent" in text and "inbox" not in text),
        ("manif* urgent", lambda text: "manifest" in text and "urgent" in text),
        ("manif", lambda text: False),
    ],
)
def test_search_finds_what_is_there(shelf, texts, words, is_there):
    rows, count = search(shelf, words)
    wanted = {key for key, text in texts.items() if is_there(text)}
    assert {(row["entry"], row["part"], row["trajectory"]) for row in rows} == wanted
    assert count == len(rows) == len(wanted)
    page, still = search(shelf, words, begin=3, shown=5)
    assert page == rows[3:8] and still == count
    assert search(shelf, words, begin=MANY, shown=0) == ([], count)


def test_search_with_marks_and_of_one_run(shelf, first, run_ids):
    every, _ = search(shelf, "manifest")
    failed, _ = search(shelf, "manifest", {"outcome": "failed", "tool": "finish"})
    assert failed == [row | {"found": len(failed)} for row in every if row["outcome"] == "failed" and "finish" in row["tools"]]
    own, _ = search(first, "manifest")
    assert 0 < len(own) < len(every) and {row["run"] for row in own} == {run_ids[0]}


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
def test_nothing_typed_is_more_than_words(shelf, words):
    before = count_of(shelf)
    search(shelf, words, {"tool": words, "outcome": words}, shown=5)
    task_named(shelf, words)
    assert count_of(shelf) == before > 0


def test_what_is_typed():
    found = terms_of('one "two  Three" -four fi* -"a b" !! -')
    assert [(one.needle, one.is_wanted) for one in found] == [
        (" one ", True),
        (" two three ", True),
        (" four ", False),
        (" fi", True),
        (" a b ", False),
    ]
    assert terms_of("!! - *") == []
    assert excerpt("a long text with the Done/Manifest.json in it", ["done manifest json"])[1] == "Done/Manifest.json"


def test_episodes_of_a_run_by_filters(first):
    every, count = episodes_of(first, Asked(shown=MANY))
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
        rows, found = episodes_of(first, Asked({name: value}, shown=MANY))
        names = [{(row["entry"], row["part"], row["number"]) for row in several if passes(row)} for several in (rows, every)]
        assert names[0] == names[1] and found == len(rows) == len(names[0]) > 0, name
    longest, _ = episodes_of(first, Asked(sort="tokens", shown=7))
    assert [row["tokens"] for row in longest] == sorted((row["tokens"] for row in every), reverse=True)[:7]
    choices = choices_of(first)
    assert sum(n for _, n in choices["outcome"]) == count and dict(choices["fault"])["early_stop"] > 0
    assert [value for value, _ in choices["iteration"]] == [str(number) for number in range(9)]
    assert dict(choices["tool"])["read_file"] == sum("read_file" in row["tools"] for row in every)


def test_the_history_of_a_task_counts_each_stored_result_once(shelf, first, run_ids):
    every, _ = episodes_of(first, Asked({"kind": "rollout"}, shown=MANY))
    task = every[0]["task"]
    own = [row for row in every if row["task"] == task]
    history = task_history(first, task)
    (row,) = [row for row in history["rows"] if row["kind"] == "rollout"]
    solved = sum(row["success"] for row in own)
    assert (row["attempts"], row["successes"]) == (len(own), solved) and history["splits"] == ["train"]
    assert (
        row["posterior"] == pytest.approx((1 + solved) / (2 + len(own))) and row["ends"][0] < row["posterior"] < row["ends"][1]
    )
    both = task_history(shelf, task)
    assert both["episodes"] >= history["episodes"] and both["first"] <= both["last"] and both["prompt"]
    assert train_counts(first)[task]["attempts"] == len(own)
    assert task_history(shelf, "no such task") is None
    assert task_named(first, task)[0]["run"] == run_ids[0] and task_named(shelf, "x") == []
    assert rate_of(0, 0)["rate"] is None


def test_the_latest_come_first(shelf, first, run_ids):
    every, _ = search(shelf, "manifest")
    assert [row["started"] for row in every] == sorted((row["started"] for row in every), reverse=True)
    own, _ = search(first, "manifest")
    assert [row["place"] for row in own] == sorted((row["place"] for row in own), reverse=True)
