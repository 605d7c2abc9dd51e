"""Exact match of answers, against the official scripts' results and cases of other projects (`answer_match_cases.json`)."""

import json
from pathlib import Path

import pytest

from tracewheel.core.errors import ConfigError
from tracewheel.core.types import Task
from tracewheel.scoring.verifiers import make_verifier, state_progress
from tracewheel.scoring.verifiers.exact_match import exact_match, normalised, overlap

CASES = json.loads((Path(__file__).parent / "answer_match_cases.json").read_text())
PUBLISHED = [(case["source"].split(",")[0], case) for case in CASES["published"]]


def task(*answers):
    return Task("t1", "retrieval", "fact", 1, "Who?", {}, {"answers": list(answers)}, "answer_match", "t1")


def verify(answer, *accepted, kind="answer_match"):
    return make_verifier(kind).verify(task(*accepted), {"answer": answer})


def test_the_official_scripts_agree():
    """Their functions were run on these pairs; the table names the versions."""
    assert len(CASES["rows"]) >= 150 and {row[3] for row in CASES["rows"]} == {True, False}
    for answer, accepted, normal, same, hotpotqa, squad_v1, squad_v2 in CASES["rows"]:
        assert normalised(answer) == normal, answer
        assert (normalised(answer) == normalised(accepted)) is same, (answer, accepted)
        # On purpose stricter where the normalisation leaves nothing: an empty answer is not "A".
        assert exact_match(answer, accepted) is (same and bool(normalised(answer))), (answer, accepted)
        assert overlap(answer, accepted) == pytest.approx(hotpotqa), (answer, accepted)
        assert overlap(answer, accepted, "squad_v1")[0] == pytest.approx(squad_v1), (answer, accepted)
        assert overlap(answer, accepted, "squad_v2")[0] == pytest.approx(squad_v2), (answer, accepted)


@pytest.mark.parametrize(("source", "case"), PUBLISHED, ids=[source for source, _ in PUBLISHED])
def test_published_cases(source, case):
    for answer, normal in case.get("normalised", ()):
        assert normalised(answer) == normal
    for answer, accepted, same, f1 in case.get("scores", ()):
        total, parts = verify(answer, *accepted)
        assert total == float(same)
        assert f1 is None or parts["f1"] == pytest.approx(f1)


@pytest.mark.parametrize(
    ("answer", "accepted", "total", "f1"),
    [
        ("G. Stanley Hall", ["Stanley Hall", "G. Stanley Hall"], 1.0, 1.0),
        ("stanley hall", ["G. Stanley Hall", "Stanley Hall"], 1.0, 1.0),
        ("the Paris", ["Paris"], 1.0, 1.0),
        ("Paris, France", ["Paris"], 0.0, 2 / 3),
        ("yes", ["Yes"], 1.0, 1.0),
        ("yes it is", ["yes"], 0.0, 0.0),
        ("", ["Paris"], 0.0, 0.0),
        ("the", ["A"], 0.0, 0.0),
        ("a ", ["A"], 1.0, 0.0),
        (None, ["Paris"], 0.0, 0.0),
        (["Paris"], ["Paris"], 0.0, 0.0),
    ],
)
def test_the_total_is_exact_match_alone(answer, accepted, total, f1):
    got, parts = verify(answer, *accepted)
    assert (got, parts["exact_match"], parts["answered"]) == (total, total, float(isinstance(answer, str)))
    assert parts["f1"] == pytest.approx(f1)
    assert state_progress(make_verifier("answer_match"), task(*accepted), {"answer": answer}) == total


def test_a_goal_that_an_empty_answer_would_solve_is_not_scored():
    for accepted in ([], [""], ["Paris", " "]):
        with pytest.raises(ValueError, match="accepted answers"):
            verify("", *accepted)


def test_the_script_of_the_parts_is_an_argument():
    kind = '{"kind": "answer_match", "args": {"script": "squad_v1"}}'
    assert verify("yes it is", "yes", kind=kind)[1]["f1"] == 0.5
    with pytest.raises(ConfigError, match="script"):
        make_verifier('{"kind": "answer_match", "args": {"script": "bleu"}}')
