"""A judge's figures on labels: by hand, against scikit-learn where it is installed, and end to end over HTTP."""

import json

import pytest

from flows.cli import main
from tracewheel.core.errors import DataError
from tracewheel_graders.judges.calibration import Judged, calibration, kappa, read_labelled


def judged(*pairs):
    """(label, said) pairs, each a task of its own; the length grows."""
    return [Judged(f"t{number}", label, said, number) for number, (label, said) in enumerate(pairs)]


def test_figures_by_hand():
    """20 + 15 of 50 agree: 0.7; chance 0.5 x 0.6 + 0.5 x 0.4 = 0.5; kappa 0.4 (the usual textbook table)."""
    told = judged(*[(True, True)] * 20, *[(True, False)] * 5, *[(False, True)] * 10, *[(False, False)] * 15)
    found = calibration([*told, Judged("x", True, None, 1)])
    assert found["agreement"]["rate"] == 0.7 and found["kappa"]["value"] == pytest.approx(0.4)
    assert found["kappa"]["interval"][0] < 0.4 < found["kappa"]["interval"][1]
    assert found["false_accept"]["rate"] == 0.4 and found["false_reject"]["rate"] == 0.2
    assert (found["labelled"], found["without_verdict"]) == (51, 1)


def test_episodes_of_one_task_are_one_word_on_the_judge():
    """Ten tasks with the same ten episodes each are no more than ten episodes."""
    alone = judged(*[(True, number < 7) for number in range(10)])
    same = [Judged(item.task, item.passes, item.said, item.length) for item in alone for _ in range(10)]
    (low, high), (low_alone, high_alone) = (calibration(items)["agreement"]["interval"] for items in (same, alone))
    assert high - low > 0.9 * (high_alone - low_alone)
    assert calibration(same[:10])["agreement"]["interval"] == [0.0, 1.0], "one task says nothing of the next"


def test_kappa_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    told = judged((True, True), (True, False), (False, False), (False, True), (True, True), (False, False), (True, True))
    expected = metrics.cohen_kappa_score([item.passes for item in told], [item.said for item in told])
    assert kappa(told) == pytest.approx(expected)
    assert kappa(judged((True, True))) is None


def test_a_judge_that_passes_what_is_long_is_seen():
    found = calibration(judged(*[(False, number >= 10) for number in range(20)]))
    assert found["length_bias"]["correlation"] > 0.8 and found["length_bias"]["p_value"] < 0.001
    assert calibration(judged((True, True), (False, False)))["length_bias"] is None


def test_a_file_that_is_no_labels(tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hi"}], "label": "good"}\n')
    with pytest.raises(DataError, match=r"labels.jsonl:1.*neither 'pass' nor 'fail'"):
        read_labelled(path)


def test_the_command(chat_server, tmp_path, capsys, monkeypatch):
    """A judge that passes whatever says "done"; one label disagrees, one reply is broken, one episode is an attack."""
    monkeypatch.chdir(tmp_path)

    def answer(body, number):
        shown = body["messages"][1]["content"]
        if "broken" in shown:
            return {"content": "?"}
        return {"content": json.dumps({"criteria": {"ok": {"reason": "", "verdict": "met" if "done" in shown else "not_met"}}})}

    server = chat_server(answer)
    args = {"models": [{"endpoint": server.url, "model": "m"}], "criteria": [{"name": "ok", "ask": "Is it?"}]}
    profile = {"name": "p", "policy": {"base": "b"}, "environment": {"kind": "workspace"}, "ingest": {"paths": ["x"]}}
    (tmp_path / "p.yaml").write_text(json.dumps({**profile, "rubric": {"verifiers": [{"kind": "judge", "args": args}]}}))
    said = [("done a", "pass"), ("done b", "fail"), ("nothing c", "fail"), ("broken d", "pass"), ("Solution", "fail")]
    rows = [
        {"label": label, "messages": [{"role": "user", "content": text[-1]}, {"role": "assistant", "content": text}]}
        for text, label in said
    ]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["audit", "p.yaml", "--labelled", "labels.jsonl", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert shown["agreement"]["rate"] == 0.75 and (shown["without_verdict"], shown["flagged"]) == (1, 1)
    assert shown["false_accept"]["rate"] == pytest.approx(1 / 3)
