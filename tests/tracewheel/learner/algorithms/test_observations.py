"""No algorithm reads what is stored at prompt and observation tokens."""


def test_logprobs_of_observations_do_not_change_the_state(settings, run, with_nonsense_at_observations, files_of):
    plain, _ = run(settings)
    spoilt, _ = run(settings, trajectories=with_nonsense_at_observations)
    before = files_of(plain)
    changed = {name for name, content in files_of(spoilt).items() if content != before.get(name)}
    assert changed <= {"buffer.parquet"}, "the buffer stores the trajectories as given"
