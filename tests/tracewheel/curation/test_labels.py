"""Labels: source of the outcome, fault, and divergence."""

import json
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.errors import DataError
from tracewheel.curation.labels import LABEL_COLUMNS, SOURCES, conversation_ended, label_episodes, label_of

TOOLS = json.dumps([{"type": "function", "function": {"name": name}} for name in ("look", "take", "finish")])
NAN = float("nan")


def row(identity, calls, *, task="t", **values):
    """An episode of calls `tool` or `tool:argument`; one with "finish" ends with it, others with words."""
    messages = [{"role": "user", "content": "Go."}]
    for number, call in enumerate(calls):
        name, _, argument = call.partition(":")
        function = {"name": name, "arguments": json.dumps({"x": argument})}
        messages.append({"role": "assistant", "tool_calls": [{"id": str(number), "type": "function", "function": function}]})
        if name != "finish":
            messages.append({"role": "tool", "tool_call_id": str(number), "content": "ok"})
    if "finish" not in calls:
        messages.append({"role": "assistant", "content": "Done."})
    return {"id": identity, "task_id": task, "messages": json.dumps(messages), "tools": TOOLS, **values}


def label(*rows):
    frame, report = label_episodes(pd.DataFrame(list(rows)))
    return frame.set_index("id"), report


@pytest.mark.parametrize(
    ("known", "source", "value"),
    [
        ((1.0, 0.0, 0.5), "verified", 1.0),
        ((0.0, 1.0, None), "verified", 0.0),
        ((None, 0.0, 1.0), "logged", 0.0),
        ((NAN, 0.25, 1.0), "logged", 0.25),
        ((NAN, NAN, 0.5), "judged", 0.5),
        ((None, None, None), "unknown", None),
        ((NAN, None, NAN), "unknown", None),
    ],
)
def test_the_most_reliable_outcome_is_the_label(known, source, value):
    assert (label_of(*known).source, label_of(*known).value) == (source, value)


@given(st.lists(st.none() | st.just(NAN) | st.floats(0, 1), min_size=3, max_size=3))
def test_an_outcome_has_a_value_exactly_when_its_source_is_known(known):
    label = label_of(*known)
    assert label.source in SOURCES
    assert (label.value is None) == (label.source == "unknown")


def test_a_failure_is_compared_only_with_its_own_task():
    frame, report = label(
        row("win", ["look", "take:a"], outcome=1.0),
        row("loss", ["look", "take:b"], outcome=0.0),
        row("stranger", ["look", "take:b"], task="other", outcome=0.0),
    )
    assert frame.loc["loss", ["failure_kind", "failure_detail", "diverges_at", "diverges_from", "diverges_way"]].tolist() == [
        "wrong_arguments", "take", 1, "win", "arguments",
    ]  # fmt: skip
    assert json.loads(frame.loc["loss", "messages"])[frame.loc["loss", "diverges_message"]]["role"] == "assistant"
    assert pd.isna(frame.loc["stranger", "diverges_at"]) and frame.loc["stranger", "failure_kind"] == "unknown"
    assert frame.loc["win", ["failure_kind", "diverges_from"]].tolist() == ["", ""]
    assert report["failures"] == {"unknown": 1, "wrong_arguments": 1} and report["mean_divergence_step"] == 1.0
    assert report["outcomes"] == {"verified": 0, "logged": 3, "judged": 0, "unknown": 0}


def test_an_unknown_outcome_is_neither_success_nor_failure():
    frame, report = label(row("a", ["look"], outcome=None), row("b", ["look", "look"], outcome=NAN), row("c", [], outcome=0.0))
    assert frame.loc[["a", "b"], "label"].isna().all() and (frame.loc[["a", "b"], "failure_kind"] == "").all()
    assert pd.isna(frame.loc["c", "diverges_at"]), "and no example to compare with"
    assert report["mean_label"] == {"logged": 0.0}


def test_replay_takes_precedence_over_the_log():
    frame, _ = label(
        row("a", ["look", "finish"], success=0.0, outcome=1.0, breakdown='{"manifest": 0.0}', ended=True),
        row("b", ["look", "finish"], success=1.0, outcome=0.0, breakdown='{"manifest": 1.0}', ended=True),
    )
    assert frame["label"].tolist() == [0.0, 1.0] and set(frame["outcome_source"]) == {"verified"}
    assert frame.loc["a", ["failure_kind", "failure_detail"]].tolist() == ["wrong_final_state", "forgot_manifest"]


def test_a_recorded_success_counts_as_judged():
    rows = pd.DataFrame(
        [
            row("logged", ["look"], success=0.5, outcome=1.0, judged=NAN),
            row("matched", ["look"], success=0.5, outcome=NAN, judged=NAN),
            row("judged", ["look"], success=0.5, outcome=NAN, judged=0.0),
        ]
    )
    frame, _ = label_episodes(rows, replay_proves=False)
    assert frame["outcome_source"].tolist() == ["logged", "judged", "judged"]
    assert frame["label"].tolist() == [1.0, 0.5, 0.0]
    assert label_episodes(rows)[0]["outcome_source"].tolist() == ["verified"] * 3


def test_episodes_without_a_task_are_not_compared():
    frame, _ = label(row("win", ["look"], task="", outcome=1.0), row("loss", ["take"], task="", outcome=0.0))
    assert pd.isna(frame.loc["loss", "diverges_at"])


def test_relabelling_changes_only_labels():
    rows = [row("win", ["look"], outcome=1.0), row("loss", ["take", "take"], outcome=0.0, stop_reason="max_turns")]
    once, _ = label_episodes(pd.DataFrame(rows, index=[7, 3]))
    twice, _ = label_episodes(once)
    pd.testing.assert_frame_equal(once, twice)
    assert list(once.index) == [7, 3] and list(once.columns[-len(LABEL_COLUMNS) :]) == list(LABEL_COLUMNS)
    assert once.loc[3, "failure_kind"] == "loop"
    stored = pd.DataFrame(rows).assign(outcome=[1.0, 0.5])
    assert label_episodes(stored)[0]["label"].tolist() == [1.0, 0.5]


def test_the_shape_of_the_labels_does_not_depend_on_what_is_known(tmp_path):
    """Parquet files of different versions have the same types, even without any divergence."""
    kinds = []
    for number, rows in enumerate(([row("a", [], outcome=None)], [row("w", ["look"], outcome=1.0), row("l", [], outcome=0.0)])):
        frame, _ = label_episodes(pd.DataFrame(rows))
        frame[list(LABEL_COLUMNS)].to_parquet(tmp_path / f"{number}.parquet")
        read = pd.read_parquet(tmp_path / f"{number}.parquet")
        kinds.append([str(read[name].dtype) for name in LABEL_COLUMNS if not name.endswith(("kind", "detail", "from", "way"))])
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize(
    ("messages", "ended"),
    [
        ([], False),
        ([{"role": "user", "content": "a"}], False),
        ([{"role": "assistant", "content": "a"}], True),
        ([{"role": "assistant", "content": "a"}, {"role": "user", "content": "bye"}], True),
        ([{"role": "assistant", "tool_calls": [1]}], True),
        ([{"role": "assistant", "tool_calls": [1]}, {"role": "tool", "content": "x"}], False),
    ],
)
def test_when_a_conversation_has_ended(messages, ended):
    assert conversation_ended(messages) is ended


def test_a_missing_column_is_named():
    with pytest.raises(DataError, match="tools"):
        label_episodes(pd.DataFrame([{"id": "a", "task_id": "t", "messages": "[]"}]))


def test_partial_rewards_are_failures_with_their_value():
    frame, _ = label(row("a", ["look"], outcome=0.5))
    assert math.isclose(frame.loc["a", "label"], 0.5) and frame.loc["a", "failure_kind"] == "unknown"
