"""A full set's window of tasks that were seen recently; test_split_keeping.py has it with sides, records and cut logs."""

from tracewheel.curation.split_keeping import filled


def test_the_window_moves_in_steps_and_keeps_what_was_seen_last():
    """A set of 20: ten places stay, and the other ten move when two tasks wait."""
    candidates = [f"t{number:02}" for number in range(30)]
    first, window = candidates[:10], candidates[10:20]
    assert filled(candidates, 20, 0.5, []) == candidates[:20]
    assert filled(candidates, 20, 0.5, ["t25", "t25", "t00", "elsewhere"]) == candidates[:20]  # one waits
    assert filled(candidates, 20, 0.5, ["t25", "t26"]) == [*first, *window[2:], "t25", "t26"]
    # What is asked again stays, and the task that was seen longest ago leaves.
    assert filled(candidates, 20, 0.5, ["t10", "t25", "t26"]) == [*first, *window[3:], "t10", "t25", "t26"]
    assert filled(candidates, 20, 0.0, ["t25", "t26"]) == candidates[:20]
    assert filled(candidates, 40, 0.5, ["t25", "t26"]) == candidates
