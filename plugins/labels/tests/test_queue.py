"""What of a run is worth a look: figures against the files themselves."""

from types import SimpleNamespace

from tracewheel.core.files import read_json
from tracewheel.core.types import Score
from tracewheel.scoring.score import write_scores
from tracewheel_labels.queue import judged_apart, queue_of


def scored(name, explanation="judge: so and so", **breakdown):
    return Score(name, "t", "g", "scored", 0.5, breakdown, family="f", explanation=explanation)


def test_the_widest_apart_come_first(tmp_path):
    rows = [
        scored("agree", **{"judge": 1.0, "judge.disagreement": 0.0, "success": 1.0}),
        scored("apart", **{"judge": 1.0, "judge.disagreement": 0.5, "success": 1.0}),
        scored("against", **{"judge": 1.0, "judge.disagreement": 0.0, "success": 0.0}),
        scored("ranked", **{"relative_judge": 0.5, "relative_judge.disagreement": 0.3, "success": 1.0}),
        scored("second", **{"judge": 1.0, "judge#2": 1.0, "judge#2.disagreement": 0.4, "success": 1.0}),
    ]
    write_scores(tmp_path / "a.parquet", rows)
    write_scores(tmp_path / "plain.parquet", [scored("other", explanation="", success=1.0)])
    judged, plain = (SimpleNamespace(scores=tmp_path / name) for name in ("a.parquet", "plain.parquet"))
    found = judged_apart([judged, plain], 9)
    assert [row["trajectory_id"] for row in found] == ["against", "apart", "second", "ranked"]
    assert found[0]["detail"] == "judge: so and so"
    assert judged_apart([plain], 9) == [] == judged_apart([], 9)


def test_the_queue_names_the_lost_tasks_and_a_sample_that_stays(library, run_ids):
    run = library.run("demo", run_ids[0])
    queue = queue_of(run)
    lost = [one["task_id"] for one in read_json(run.record.path / "changes.json") if one["change"] == "lost"]
    assert [one.task for one in queue["lost"]] == lost[:20]
    assert all(one.rival for one in queue["lost"])
    assert 0 < len(queue["random"]) <= 20 and queue_of(run) == queue
    assert all(one.status == "scored" and 0 < one.total < 1 for one in queue["borderline"])
