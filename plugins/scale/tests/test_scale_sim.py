"""The scale simulation against cases worked by hand, and what holds for any cluster."""

import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(Path(__file__).parents[3] / "benchmarks")]  # its own, and `measuring`

from scale_cluster import MODELS, Costs, Pools, Rates  # noqa: E402
from scale_events import Clock, Replica, Servers  # noqa: E402
from scale_modes import MODES, WARM_UP, Plant, simulate  # noqa: E402
from scale_sim import plant_of, point, splits  # noqa: E402
from scale_workload import Spread, Turn, Workload  # noqa: E402

ONE = [Turn(new=0, said=10, tool_s=1.0, cpu_s=0.0)]
RATES = BENCHMARKS / "scale_rates.json"


def plant(**changes):
    """One replica whose step takes 0.1 s plus 0.05 s per sequence; driver 0.5 s, update 4 s, publishing 0.25 s."""
    values = {
        "replicas": 1,
        "sessions": 2,
        "batch": 2,
        "first_s": 0.1,
        "each_s": 0.05,
        "prefill_s": 0.01,
        "turn_s": 0.0,
        "cores": None,
        "core_turn_s": 0.0,
        "tool_share": 1.0,
        "update_s": lambda tokens: 4.0,
        "driver_s": lambda tokens: 0.5,
        "publish_s": 0.25,
        "swap_s": 0.0,
    }
    return Plant(**values | changes)


def replica(clock, **changes):
    return Replica(clock, **{"first_s": 0.1, "each_s": 0.05, "prefill_s": 0.01} | changes)


def ends(clock, engine, arrivals):
    """When each of (time, new, said) is done."""
    found = {}
    for number, (time, new, said) in enumerate(arrivals):
        clock.at(time, engine.generate, new, said, lambda number=number: found.setdefault(number, clock.now))
    clock.run()
    return [found[number] for number in range(len(arrivals))]


def test_a_batch_steps_together():
    clock = Clock()
    assert ends(clock, replica(clock), [(0, 0, 10)]) == pytest.approx([1.5])
    clock = Clock()
    assert ends(clock, replica(clock), [(0, 0, 10), (0, 0, 10)]) == pytest.approx([2.0, 2.0])
    clock = Clock()
    # At 0.75 s the first has 5 tokens; the next 5 take 0.2 s each with both, then the second's last 5 take 0.15 s.
    assert ends(clock, replica(clock), [(0, 0, 10), (0.75, 0, 10)]) == pytest.approx([1.75, 2.5])


def test_reading_new_tokens_stops_the_batch():
    clock = Clock()
    assert ends(clock, replica(clock), [(0, 0, 10), (0.75, 100, 10)]) == pytest.approx([2.75, 3.5])


def test_sequences_wait_for_a_place_in_a_full_batch():
    clock = Clock()
    assert ends(clock, replica(clock, batch=1), [(0, 0, 10), (0, 0, 10)]) == pytest.approx([1.5, 3.0])


def test_a_replica_stands_still_while_weights_are_exchanged():
    clock = Clock()
    engine = replica(clock)
    clock.at(0.75, engine.stall, 2.0)
    assert ends(clock, engine, [(0, 0, 10)]) == pytest.approx([3.5])


def test_jobs_queue_for_servers():
    clock, found = Clock(), []
    servers = Servers(clock, 2)
    for seconds in (1.0, 2.0, 1.0):
        servers.serve(seconds, lambda: found.append(clock.now))
    clock.run()
    assert found == [1.0, 2.0, 2.0]
    assert servers.busy_s == 4.0


def iteration_s(mode, plant, workload, **options):
    tally = simulate(mode, plant, workload, **options)
    return tally.seconds / tally.iterations


def test_iterations_of_each_mode_match_times_worked_by_hand():
    two = Workload(tasks=2, group=1, recorded=[ONE])
    # Rollouts take 10 steps of 0.2 s and the tool's second; sync adds driver, update and publishing.
    assert iteration_s("sync", plant(), two) == pytest.approx(3.0 + 0.5 + 4.0 + 0.25)
    assert iteration_s("sync", plant(swap_s=0.125), two) == pytest.approx(7.75 + 0.125)
    assert iteration_s("sync", plant(start_s=2.0), two) == pytest.approx(7.75 + 2.0)
    # Groups wait for a learner that is slow.
    assert iteration_s("async", plant(), two) == pytest.approx(4.75)
    # A learner that costs nothing waits for groups: each place gives one every 2 s of steps and 1 s of the tool.
    free = plant(update_s=lambda tokens: 0.0, driver_s=lambda tokens: 0.0, publish_s=0.0)
    assert iteration_s("async", free, two, iterations=8) == pytest.approx(3.0, rel=0.05)


def test_a_straggler_delays_sync_but_not_async():
    slow = [Turn(0, 10, 30.0, 0.0)]
    some = Workload(tasks=8, group=1, recorded=[ONE] * 7 + [slow])
    quick = plant(sessions=8, batch=8, update_s=lambda tokens: 1.0)
    options = {"iterations": 12, "staleness": 8}
    assert iteration_s("async", quick, some, **options) < 0.6 * iteration_s("sync", quick, some, **options)


@pytest.mark.parametrize("staleness", [1, 2, 4])
def test_staleness_stays_within_its_bound_and_stale_groups_are_sampled_again(staleness):
    rng = random.Random(3)
    episodes = [[Turn(0, 10, rng.choice([0.1, 1.0, 40.0]), 0.0)] for _ in range(50)]
    workload = Workload(tasks=8, group=2, recorded=episodes)
    tally = simulate("async", plant(sessions=32, batch=32), workload, iterations=10, staleness=staleness)
    assert max(tally.staleness) <= staleness
    assert tally.iterations == 10 - WARM_UP
    assert tally.episodes == tally.iterations * workload.episodes
    if staleness == 1:
        assert tally.stale_groups > 0


@pytest.mark.parametrize("mode", MODES)
def test_utilisation_is_at_most_1(mode):
    workload = Workload(tasks=6, group=4)
    tally = simulate(mode, plant(replicas=2, sessions=6, batch=6, cores=3), workload, iterations=5)
    assert 0 < tally.engine_busy_s <= 2 * tally.seconds * 1.001
    assert 0 < tally.core_busy_s <= 3 * tally.seconds
    assert 0 < tally.learner_busy_s <= tally.seconds
    assert tally.sampled < tally.tokens


def test_equal_seeds_give_equal_figures():
    play = partial(simulate, "async", plant(sessions=8), Workload(tasks=4, group=2), iterations=4)
    assert play(seed=1) == play(seed=1)
    assert play(seed=1) != play(seed=2)


def test_a_distribution_has_the_given_mean():
    rng = random.Random(0)
    draws = [Spread(3.0, 0.8).draw(rng) for _ in range(20_000)]
    assert sum(draws) / len(draws) == pytest.approx(3.0, rel=0.03)
    assert Spread(3.0).draw(rng) == 3.0
    assert Spread(3.0, 5.0, 2.0, 4.0).draw(rng) in (pytest.approx(2.0, abs=2), 4.0)


@pytest.fixture
def costs():
    return Costs(Rates.read(RATES), MODELS["7B"])


def test_seconds_and_bytes_match_values_worked_by_hand(costs):
    rates = costs.rates
    assert costs.policy_bytes == 40.4e6 * 4
    assert replace(costs, full=True).policy_bytes == 7.615e9 * 4
    first_s, each_s = costs.decode(0)
    assert first_s == pytest.approx(15.23e9 / (4.8e12 * 0.6) + rates["gpu.step_s"])
    assert each_s == pytest.approx(2 * 7.615e9 / (989e12 * 0.4))
    assert costs.decode(1000)[1] - each_s == pytest.approx(57_344_000 / (4.8e12 * 0.6))
    # The memory less the weights, in whole sessions.
    assert costs.sessions(8000) == int((141e9 * 0.9 - 15.23e9) / (57_344 * 8000))
    # One GPU, four steps of 2^18 tokens in 16 micro-batches each; nothing to exchange.
    alone = costs.update_s(4 * 2**18, 1) - costs.start_s(1)
    assert alone == pytest.approx(6 * 7.615e9 * 4 * 2**18 / (989e12 * 0.35))
    assert costs.update_s(4 * 2**18, 16) - costs.start_s(16) == pytest.approx(alone / 16)
    # More GPUs than micro-batches do not help.
    assert costs.update_s(4 * 2**18, 64) - costs.start_s(64) == pytest.approx(alone / 16)
    # Nine machines read an adapter from the store together.
    assert replace(costs, full=True).publish_s(72) == pytest.approx(9 * 30.46e9 / 10e9)
    assert costs.publish_s(8) == pytest.approx(161.6e6 / 5e9)


@pytest.mark.parametrize("gpus", [2, 9, 64, 1000])
def test_every_division_uses_whole_replicas(gpus):
    for mode in MODES:
        for pools in splits(gpus, mode, MODELS["32B"], cores=8):
            assert pools.gpus == gpus
            assert pools.generation % 2 == 0 or mode == "sync"


def test_a_faster_part_never_slows_a_run(costs):
    pools, workload = Pools(4, 4, 128), Workload(tasks=16)
    rates = {}
    for part in Rates.PARTS:
        quicker = replace(costs, rates=costs.rates.with_faster(part, 2.0))
        tally = simulate("sync", plant_of(quicker, pools, workload), workload, iterations=4)
        rates[part] = tally.seconds
    usual = simulate("sync", plant_of(costs, pools, workload), workload, iterations=4).seconds
    assert all(seconds <= usual * 1.001 for seconds in rates.values())
    assert rates["decode"] < 0.9 * usual


def test_a_slow_environment_is_reported_as_the_bottleneck(costs):
    slow = replace(Workload(tasks=16), cpu_s=30.0)
    found = point(costs, 8, "async", slow, {"iterations": 4, "staleness": 2, "seed": 0})
    assert found["bottleneck"] == "cores"
    assert found["utilisation"]["cores"] > 0.8
    assert found["staleness_max"] <= 2


def test_a_model_that_does_not_fit_is_reported(costs):
    small = Costs(Rates.read(RATES, {"gpu.memory": 10e9}), MODELS["32B"])
    assert point(small, 8, "sync", Workload(), {})["does_not_fit"]


def test_every_rate_has_its_source():
    import json

    for name, entry in json.loads(RATES.read_text()).items():
        assert entry["source"] in ("measured", "assumed"), name
        assert entry["basis"] and entry["unit"], name
