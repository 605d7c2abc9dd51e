"""Duplicates of every kind are found, and different tasks are kept apart."""

import json
from collections import Counter
from pathlib import Path

import pandas
import pytest

from tracewheel.curation.duplicates import DuplicateFinder, describe_duplicates
from tracewheel.curation.task_text import TaskText

TAU_BENCH = Path(__file__).parents[4] / "shared/traces/tau_bench/gpt-4o-airline.tasks0-24.json"
REQUEST = (
    "My name is Mia Li and my user id is mia_li_3668. I want to cancel reservation 4WQ150 and get the money back on my gift "
    "card, because my mother fell ill in Chicago and I have to stay with her until the end of the month."
)
CALLS = [("get_user", {"user_id": "mia_li_3668"}), ("cancel_reservation", {"reservation_id": "4WQ150"})]


def messages_of(request, calls=CALLS, prefix="call"):
    said = [{"role": "system", "content": "You help."}, {"role": "user", "content": request}]
    for number, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        said.append({"role": "assistant", "content": None, "tool_calls": [{"id": f"{prefix}{number}", "function": function}]})
        said.append({"role": "tool", "tool_call_id": f"{prefix}{number}", "content": "ok"})
    return [*said, {"role": "assistant", "content": "Done."}]


def frame_of(**traces):
    rows = []
    for name, trace in traces.items():
        messages, environment, *fingerprint = trace if isinstance(trace, tuple) else (trace, None)
        logged = None if environment is None else json.dumps(environment)
        row = {"id": name, "messages": json.dumps(messages), "environment": logged}
        rows.append(row | ({"fingerprint": fingerprint[0]} if fingerprint else {}))
    return pandas.DataFrame(rows)


def clusters_of(batches):
    finder = DuplicateFinder()
    for batch in batches:
        finder.add(batch)
    return finder.clusters()


def found(frame):
    clusters = clusters_of([frame])
    groups = clusters.groupby(["kind", "cluster"])["trace_id"].apply(set)
    return {kind: [members for (own, _), members in groups.items() if own == kind] for kind in set(clusters["kind"])}


def test_a_copy_with_other_ids_is_exact():
    frame = frame_of(a=messages_of(REQUEST), b=messages_of(REQUEST, prefix="toolu_"), c=messages_of(REQUEST + " Please."))
    assert found(frame)["exact"] == [{"a", "b"}]


@pytest.mark.parametrize(
    "copy",
    [
        messages_of("  " + REQUEST.replace(" ", "   ").replace(". ", ".\n\n")),
        messages_of(REQUEST.upper()),
        messages_of(
            REQUEST.replace("4WQ150", "7XK922").replace("3668", "1207"),
            [("get_user", {"user_id": "mia_li_1207"}), ("cancel_reservation", {"reservation_id": "4WQ150"})],
        ),
        messages_of(
            "Hello! Mia Li here (mia_li_3668). Since my mother became ill in Chicago and I will be staying there till the "
            "end of the month, could you make sure that booking 4WQ150 is cancelled? The refund should go to the gift card."
        ),
    ],
    ids=["whitespace", "case", "renumbered", "paraphrase"],
)
def test_a_near_copy_is_found(copy):
    frame = frame_of(
        a=messages_of(REQUEST), b=copy, c=messages_of("What is the weather in Boston on Sunday, and should I take a coat?", [])
    )
    assert found(frame)["near"] == [{"a", "b"}]


def test_another_request_of_the_same_kind_is_no_copy():
    other = (
        "Raj Patel here, id raj_patel_9. Please change the seat of flight HAT204 in reservation ZFA04Y to a window, "
        "and add two bags. I pay with the card on file, and want a receipt by mail to my office in Denver."
    )
    calls = [("get_user", {"user_id": "raj_patel_9"}), ("update_seat", {"reservation_id": "ZFA04Y", "seat": "window"})]
    assert found(frame_of(a=messages_of(REQUEST), b=messages_of(other, calls))) == {}


def test_greetings_are_no_duplicates():
    assert found(frame_of(a=messages_of("Hi", []), b=messages_of("hi!", []))) == {}


def test_the_goal_decides_where_the_environment_has_one():
    def state(number, word="tax"):
        return {
            "kind": "files",
            "prompt": f"Wording {word}",
            "initial_state": {f"/in/a{number}.txt": word},
            "goal": {"move": word},
        }

    frame = frame_of(
        a=(messages_of(REQUEST), state(1)),
        b=(messages_of("Something else altogether, said in quite another way here."), state(1) | {"prompt": "x"}),
        c=(messages_of(REQUEST + " Soon."), state(2)),
        d=(messages_of(REQUEST + " Very soon."), state(1, "bill")),
    )
    assert found(frame) == {"semantic": [{"a", "b"}], "renumbered": [{"a", "b", "c"}]}


def test_the_fingerprint_is_the_key_where_it_is_known():
    state = {"kind": "files", "files": ["x"]}
    frame = frame_of(
        a=(messages_of(REQUEST), state, "same"),
        b=(messages_of("Quite other words for it, all of them new."), {**state, "files": ["y"]}, "same"),
        c=(messages_of("And a third way to put the very same."), {**state, "files": ["z"]}, "other"),
    )
    assert found(frame)["semantic"] == [{"a", "b"}]


def test_clusters_do_not_depend_on_the_batches():
    whole = pandas.concat(
        [
            frame_of(
                **{
                    f"a{n}": messages_of(f"{REQUEST} Order {n}."),
                    f"b{n}": messages_of(f"Tell me about topic number {n} of chemistry"),
                }
            )
            for n in range(20)
        ],
        ignore_index=True,
    )
    clusters = clusters_of([whole.iloc[start : start + 7] for start in range(0, len(whole), 7)])
    pandas.testing.assert_frame_equal(clusters, clusters_of([whole]))
    report = describe_duplicates(clusters)
    assert report["near"] == {"clusters": 2, "traces": 40, "more_than_one": 38}


def test_without_traces_there_are_no_clusters():
    clusters = clusters_of([])
    assert list(clusters.columns) == ["trace_id", "cluster", "kind"]
    assert clusters.empty


def test_a_paraphrase_keeps_names_numbers_and_quotations():
    text = TaskText.of(
        [{"role": "user", "content": 'Please move "old report" of Anna Kern to /tmp/x9. Copying the report too.'}], 500
    )
    members = set(text.content())
    assert {"old report*0", "anna*2", "kern*0", "tmp/x9*1", "mov", "repor", "copy"} <= members
    assert "please*0" not in members


@pytest.mark.skipif(not TAU_BENCH.exists(), reason="the shared traces are not here")
def test_near_copies_in_real_traces_are_of_one_task():
    """tau-bench has 25 tasks of 4 trials, with free conversations: no cluster may mix tasks."""
    records = json.loads(TAU_BENCH.read_text())
    frame = pandas.DataFrame(
        [
            {"id": f"{one['task_id']}-{one['trial']}", "messages": json.dumps(one["traj"]), "task": one["task_id"]}
            for one in records
        ]
    )
    near = clusters_of([frame]).query("kind == 'near'").merge(frame, left_on="trace_id", right_on="id")
    assert len(near) >= 8
    assert Counter(near.groupby("cluster")["task"].nunique()).keys() == {1}
