"""The names of figures, and the note on a run."""

from typing import get_args

from tracewheel.core.types import BranchReason
from tracewheel.report.doctor.finding import Finding
from tracewheel.report.glossary import glossary_rows, iteration_name, knows
from tracewheel.report.run_note import run_note, spark


def test_each_figure_is_in_a_group():
    groups = list(dict.fromkeys(name.partition("/")[0] for name, _, _ in glossary_rows()))
    assert groups == ["rollout", "train", "eval", "cost", "gate", "audit", "splits"]
    assert iteration_name("reward") == "rollout/reward" and iteration_name("kl") == "train/kl"
    assert all(knows(f"rollout/branches_{reason}") for reason in get_args(BranchReason) if reason)
    assert iteration_name("a figure of tomorrow") == "train/a figure of tomorrow" and not knows("train/a figure of tomorrow")


def test_a_curve_as_a_line_of_bars():
    assert spark([0.0, 0.5, None, 1.0]) == "▁▅·█"


def test_a_note_says_what_was_lost_and_what_the_doctor_found():
    summary = {
        "gate": {"verdict": "refused", "baseline": "champion", "reasons": ["not certain"]},
        "success": {"champion": 0.5, "rl": None},
        "sampled": {},
        "intervals": {"success": {"champion": [0.4, 0.6]}},
        "validation": {"10": {"sampled": 0.8}, "2": {"sampled": 0.1}},
        "report": "runs/abc/report.html",
    }
    lost = [{"task_id": f"task-{number}", "family": "list", "change": "lost"} for number in range(7)]
    alarm = Finding("entropy", "warning", {"share": 0.1}, "Raise the temperature.", (3,))
    note = run_note(
        summary, [*lost, {"task_id": "won", "family": "list", "change": "gained"}], [alarm, Finding("kl", "healthy")]
    )
    assert note.startswith("- Not promoted: not certain.\n")
    assert "| champion | 50.0% (40.0% to 60.0%) |  |  |" in note and "| rl |  |  |  |" in note
    assert "iterations 2 to 10: `▁▇` 10.0% to 80.0%" in note
    assert "1 gained, 7 lost (`task-0` (list)" in note and "and 2 more" in note
    assert "doctor, warning: entropy (iteration 3)" in note and "kl" not in note
    assert "tracewheel dashboard runs/abc" in note
