"""Attempts are kept, copies are not: with the same messages, what the log says of each decides."""

import copy
import json

import pytest

from tracewheel.config import IngestConfig
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest

SAID = [{"role": "user", "content": "Rome?"}, {"role": "assistant", "content": "Sunny."}]


def counts(tmp_path, *files):
    """Kept and duplicates, of everything at once and of one file after the other."""
    tmp_path = tmp_path / f"case-{len(list(tmp_path.iterdir()))}"
    tmp_path.mkdir()
    paths = []
    for number, lines in enumerate(files):
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    whole = ingest(IngestConfig(paths=tuple(map(str, paths))), tmp_path / "whole")
    for number in range(len(paths)):
        grown = ingest_new(IngestConfig(paths=tuple(map(str, paths[: number + 1]))), tmp_path / "grown")
    found = [(report["kept"], report["duplicates"]) for report in (whole, grown)]
    assert found[0] == found[1]
    return found[0]


def line(**fields):
    return {"messages": copy.deepcopy(SAID), **fields}


TAU = {"task_id": 3, "reward": 1.0, "info": {}, "traj": SAID}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line(id="a"), line(id="b"), line(id="c"), line(id="d")], (4, 0)),
        ([line(id="a", created="2026-10-01T08:00:00Z"), line(id="a", created="2026-10-02T08:00:00Z")], (1, 1)),
        ([line(id="a", trial=0), line(id="a", trial=1), line(id="a", trial=1)], (2, 1)),
        ([line(created="2026-10-01T08:00:00Z"), line(created="2026-10-02T08:00:00Z")], (2, 0)),
        ([line(created="2026-10-01T08:00:00Z"), line(created="2026-10-01T08:00:00Z")], (1, 1)),
        ([line(attempt=1), line(attempt=2)], (2, 0)),
        ([line(task="a"), line(task="b"), line(task="a")], (2, 1)),
        ([line(), line()], (1, 1)),
        ([line(reward=1.0), line(reward=0.0)], (1, 1)),
        ([line(id="a"), line()], (1, 1)),
        ([line(session="s"), line(session="t")], (2, 0)),
        ([{**TAU, "trial": trial} for trial in (0, 1, 2, 3)], (4, 0)),
        ([{**TAU, "trial": 0}, {**TAU, "trial": 0}], (1, 1)),
    ],
)
def test_what_a_log_says_tells_attempts_from_copies(tmp_path, lines, expected):
    assert counts(tmp_path, lines) == expected


@pytest.mark.parametrize("marks", [{}, {"id": "a"}, {"created": "2026-10-01T08:00:00Z"}, {"trial": 2}])
def test_a_file_under_another_name_holds_copies(tmp_path, marks):
    other = {**line(**marks), "messages": [{"role": "user", "content": "Oslo?"}, {"role": "assistant", "content": "Rain."}]}
    assert counts(tmp_path, [line(**marks), other], [line(**marks), other]) == (2, 2)


def span(trace, name, start):
    attributes = {
        "ai.operationId": name,
        "ai.prompt.messages": json.dumps(SAID[:1]),
        "ai.response.text": SAID[1]["content"],
    }
    return {
        "traceId": trace,
        "spanId": f"s-{trace}",
        "name": name,
        "startTime": [1790000000 + start, 5],
        "attributes": attributes,
    }


def test_traces_of_spans_are_attempts_unless_one_wraps_the_other(tmp_path):
    """Four attempts a minute apart; the SDK logged each as two traces, the call and what wraps it."""
    spans = [
        span(f"{kind}-{number}", f"ai.generateText{kind}", 60 * number) for number in range(4) for kind in ("", ".doGenerate")
    ]
    assert counts(tmp_path, spans) == (4, 4)
    assert counts(tmp_path, spans[::-1]) == (4, 4)
    assert counts(tmp_path, spans[::2]) == (4, 0)


def test_attempts_of_one_id_get_ids_of_their_own(tmp_path):
    import pandas

    counts(
        tmp_path, [line(id="a", trial=number) for number in range(3)] + [line(created=f"2026-10-0{day}") for day in (1, 2, 3)]
    )
    assert pandas.read_parquet(tmp_path / "case-0/whole/traces.parquet")["id"].nunique() == 6
