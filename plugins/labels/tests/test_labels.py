"""Labels of trajectories: a file that grows, and what it says of the graders."""

import json
import threading

import pytest

from tracewheel.core.errors import DataError, InputError
from tracewheel_labels.labels import LABELS_FILE, Label, Scored, add_label, between_people, calibrate, counts, labels_of

AT = "2026-11-23T14:00:00+00:00"


def label(trajectory, said, who="Ada", **more):
    return Label("evaluate-00000000", "greedy", trajectory, said, who, **more)


def test_a_second_label_of_a_person_replaces_the_first_and_the_file_only_grows(tmp_path):
    add_label(tmp_path, label("a", "right"))
    add_label(tmp_path, label("a", "wrong", at=AT, note="it moved one file too many"))
    add_label(tmp_path, label("a", "right", who="Bob"))
    found = labels_of(tmp_path)
    assert [(one.who, one.label) for one in found] == [("Ada", "wrong"), ("Bob", "right")]
    assert found[0].at == AT and found[0].note == "it moved one file too many"
    assert len((tmp_path / LABELS_FILE).read_text().splitlines()) == 3
    add_label(tmp_path, label("a", "withdrawn", who="Bob"))
    assert counts(labels_of(tmp_path)) == {"right": 0, "wrong": 1, "grader at fault": 0}


@pytest.mark.parametrize(
    "bad",
    [
        label("a", "perhaps"),
        label("a", "right", who=""),
        label("a", "right", who="A" * 81),
        label("a", "right", note="x" * 1001),
        label("a", "right", note="\x1b[31mred"),
        label("a", "right", note="two\nlines"),
        label("a", "right", who="Ada\u202e"),
        label("a", "right", note="\ud800"),
    ],
)
def test_unusable_texts_are_refused_and_nothing_is_written(tmp_path, bad):
    with pytest.raises(InputError):
        add_label(tmp_path, bad)
    assert not (tmp_path / LABELS_FILE).exists()


def test_a_line_that_a_kill_cut_is_passed_over_and_a_damaged_one_is_named(tmp_path):
    add_label(tmp_path, label("a", "right"))
    path = tmp_path / LABELS_FILE
    path.write_bytes(path.read_bytes() + b'{"entry": "evaluate-0')
    assert len(labels_of(tmp_path)) == 1
    add_label(tmp_path, label("b", "wrong"))
    assert [one.trajectory for one in labels_of(tmp_path)] == ["a", "b"]
    path.write_bytes(path.read_bytes() + b'{"entry": 3}\n')
    with pytest.raises(DataError, match=r"labels.jsonl:4: no label"):
        add_label(tmp_path, label("c", "right"))


def test_many_writers_lose_nothing(tmp_path):
    def write(who):
        for number in range(10):
            add_label(tmp_path, label(f"t{number}", "right", who=who))

    threads = [threading.Thread(target=write, args=(f"person {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(labels_of(tmp_path)) == 40
    assert all(json.loads(line) for line in (tmp_path / LABELS_FILE).read_text().splitlines())


def test_agreement_by_hand():
    """Four trajectories of three tasks: the score is right on t1 and t2 of one task, too mild on t3, too strict on t4."""
    place = lambda name: ("evaluate-00000000", "greedy", name)  # noqa: E731
    scores = {
        place("t1"): Scored("one", "list", 1.0, {"success": 1.0, "format": 0.0}),
        place("t2"): Scored("one", "list", 0.0, {"success": 0.0, "format": 0.0}),
        place("t3"): Scored("two", "list", 1.0, {"success": 1.0, "format": 1.0}),
        place("t4"): Scored("three", "prefix", 0.0, {"success": 0.0}),
        place("t5"): Scored("three", "prefix", None),
    }
    said = [label("t1", "right"), label("t2", "wrong"), label("t3", "grader at fault"), label("t4", "right", why="random")]
    said += [label("t5", "right"), label("gone", "right"), label("t1", "wrong", who="Bob"), label("t1", "right", who="Cy")]
    rows = {(row.grader, row.group): row for row in calibrate(said, scores)}
    score = rows["score", ""]
    assert (score.labelled, score.agreeing, score.tasks) == (4, 2, 3), "t1 by two of three people"
    assert score.rate == pytest.approx(1 / 3), "tasks one, two, three agree 1, 0, 0"
    assert (score.too_mild, score.too_strict) == (1, 1)
    assert score.interval[0] < 1 / 3 < score.interval[1]
    form = rows["format", ""]
    assert (form.labelled, form.agreeing) == (3, 1), "t4 has no such part; t2 agrees, t1 and t3 do not"
    assert rows["score", "random sample"].agreeing == 0
    assert rows["score", "family list"].agreeing == 2
    assert between_people(said) == (1, 0)
    tied = [label("t1", "right"), label("t1", "wrong", who="Bob")]
    assert calibrate(tied, scores) == []
