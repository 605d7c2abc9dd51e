"""Seeds derived from a run's seed."""

from tracewheel.sampling.seeds import evaluation_seed, rollout_seed


def test_seeds_differ_by_purpose_and_are_reproducible():
    seeds = [rollout_seed(seed, iteration) for seed in (0, 1) for iteration in (1, 2)]
    seeds += [evaluation_seed(seed, split) for seed in (0, 1) for split in ("validation", "held_out")]
    assert len(set(seeds)) == 8
    assert rollout_seed(1, 2) == seeds[3]
