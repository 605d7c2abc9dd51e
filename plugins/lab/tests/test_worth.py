"""The worth of the next run: room by hand and by simulation, the regression by hand, and the records of a work folder."""

import json
import shutil

import numpy as np
import pytest

from flows.cli import BAD_INPUT, DONE, main
from tracewheel_lab.worth import PastRun, expected_gain, room_of


def past(gain, room=0.5, new=0.0):
    return PastRun(gain, room, new)


def test_room_is_what_groups_can_still_teach():
    """A flat posterior, groups of two: E[p^2] = E[(1-p)^2] = 1/3, so both outcomes with chance 1/3, and half is left."""
    assert room_of([(1, 1)], 2) == pytest.approx(1 / 6)
    assert room_of([(1, 1), (5000, 1)], 2) == pytest.approx(1 / 12, rel=0.01), "a mastered task leaves none"
    assert room_of([(1, 5000)], 8) < 0.01 and room_of([], 8) == 0.0
    p = np.random.default_rng(0).beta(3, 2, 400_000)
    chance = (1 - p**4 - (1 - p) ** 4).mean()
    assert room_of([(3, 2)], 4) == pytest.approx(chance * 2 / 5, rel=0.01)


def test_without_past_runs_the_interval_is_wide_and_it_narrows_with_them():
    first = expected_gain(0.5, 0.0, [])
    assert first.mean == pytest.approx(0.075) and first.low < 0 < first.high and first.runs == 0
    known = expected_gain(0.5, 0.0, [past(0.1)] * 12)
    assert known.mean == pytest.approx(0.5 * (0.15 + 12 * 0.2) / 13)
    assert known.high - known.low < (first.high - first.low) / 2
    assert expected_gain(0.01, 0.0, [past(0.1)] * 12).high < 0.01, "little room, little gain"
    assert expected_gain(0.5, 0.0, [past(None), past(0.1, room=None), past(0.1, room=0.0)]) == first


def test_gains_follow_new_evidence():
    runs = [past(0.05 + 0.2 * new, new=new) for new in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9) * 3]
    assert expected_gain(0.5, 0.9, runs).mean > expected_gain(0.5, 0.0, runs).mean + 0.05


def test_four_fifths_of_the_gains_that_follow_the_prior_lie_in_the_interval():
    """Runs drawn from the model itself: the noise's variance inverse-gamma, the coefficients normal."""
    stream, inside = np.random.default_rng(5), []
    for _ in range(600):
        variance = 0.02 / stream.gamma(1.0)
        base = 0.15 + np.sqrt(variance) * stream.standard_normal()
        slope = np.sqrt(variance / 4) * stream.standard_normal()
        news = stream.random(6)
        gains = 0.2 * (base + slope * news + np.sqrt(variance) * stream.standard_normal(6))
        found = expected_gain(
            0.2, news[-1], [past(gain, room=0.2, new=new) for gain, new in zip(gains[:-1], news[:-1], strict=True)]
        )
        inside.append(found.low <= gains[-1] <= found.high)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.05)


@pytest.fixture
def work(shown, tmp_path):
    """A copy of the shipped runs."""
    return shutil.copytree(shown, tmp_path / "work", ignore=shutil.ignore_patterns(".dashboard*"))


def asked(capsys, *arguments):
    assert main(["runs", "worth", *map(str, arguments), "--json"]) == DONE
    return json.loads(capsys.readouterr().out)


def test_the_next_run_is_estimated_from_the_records_of_complete_ones(work, run_ids, capsys):
    found = asked(capsys, work)
    assert [one["run"] for one in found["past"]] == run_ids
    assert [one["gain"] for one in found["past"]] == [
        json.loads((work / name / "gate.json").read_text())["difference"] for name in run_ids
    ]
    assert 0 < found["room"] < 1 and found["interval"][0] < found["gain"] < found["interval"][1]
    seconds = [one["cost"]["seconds"] for one in found["past"]]
    assert found["cost"]["seconds"] == pytest.approx(sum(seconds) / len(seconds))
    assert main(["runs", "worth", str(work)]) == DONE
    assert "expected gain" in capsys.readouterr().out


def test_tasks_that_a_skipped_night_brought_count_as_new_and_those_of_a_begun_run_do_not(work, capsys):
    line = {"starts": False, "evidence": {"new_tasks": 3, "moved_tasks": 1}}
    (work / "decisions.jsonl").write_text(json.dumps(line) + "\n")
    assert asked(capsys, work)["new"] == asked(capsys, work, "--new-tasks", 4)["new"] > 0
    (work / "decisions.jsonl").write_text(json.dumps(line | {"starts": True}) + "\n")
    assert asked(capsys, work)["new"] == 0


def test_mastered_tasks_leave_no_room(work, capsys):
    before = asked(capsys, work)["room"]
    counts = json.loads((work / "sampler.json").read_text())
    counts["evidence"] = {task: [5000.0, 0.0] for task in _training_tasks(work)}
    (work / "sampler.json").write_text(json.dumps(counts))
    assert asked(capsys, work)["room"] < 0.001 < before


def _training_tasks(work):
    import pandas

    for file in work.glob("store/curate-*/tasks.parquet"):
        tasks = pandas.read_parquet(file)
        yield from tasks.loc[tasks["split"] == "train", "id"]


def test_a_folder_without_a_complete_run_is_said(tmp_path, capsys):
    assert main(["runs", "worth", str(tmp_path)]) == BAD_INPUT
    assert "no complete run" in capsys.readouterr().err
