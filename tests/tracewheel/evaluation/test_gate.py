"""The gate's verdicts on hand-made and on simulated results."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from tracewheel.config import GateConfig
from tracewheel.core.errors import DataError
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.evaluation.gate import decide, held_to_fidelity, promotes, shows_gain
from tracewheel.evaluation.paired_outcomes import Outcomes, common_components, pair, read_outcomes
from tracewheel.evaluation.power import describe_power

ONCE = {"gates_per_year": 1}
NOTHING_MISSING = dict.fromkeys(("greedy_unscored", "greedy_failed", "sampled_unscored", "sampled_failed"), 0)


def results(greedy, families=("pattern", "list"), sampled=None):
    rows = [(f"task-{i}", families[i % len(families)], value) for i, value in enumerate(greedy)]
    table = pd.DataFrame(rows, columns=["task_id", "family", "greedy"])
    return table if sampled is None else table.assign(sampled_successes=sampled, sampled_attempts=4, **NOTHING_MISSING)


def verdict(new, old, **config):
    return decide(GateConfig(**ONCE | config), results(new), results(old), baseline="warm_start")


def playing(stream, chances, families=("pattern", "list"), samples=4):
    """Results of a policy that solves each task with its chance, greedily and sampled."""
    greedy = (stream.random(len(chances)) < chances).astype(float)
    return results(greedy, families, stream.binomial(samples, chances).astype(float))


def test_a_significant_gain_is_promoted():
    decision = verdict([1.0] * 90 + [0.0] * 10, [1.0] * 60 + [0.0] * 40)
    assert decision.promoted and decision.verdict == "promoted"
    assert decision.difference == decision.greedy_difference == pytest.approx(0.3)
    assert decision.interval is not None and 0.2 < decision.interval[0] < 0.3 < decision.interval[1] < 0.4
    assert decision.families == pytest.approx({"list": 0.3, "pattern": 0.3})
    assert (decision.baseline, decision.pairs, decision.gained, decision.lost) == ("warm_start", 100, 30, 0)
    assert "+0.300" in decision.reasons[0] and "95% interval" in decision.reasons[0]


def test_a_gain_that_was_trained_unfaithfully_is_refused():
    decision, config = verdict([1.0] * 90 + [0.0] * 10, [1.0] * 60 + [0.0] * 40), GateConfig(**ONCE)
    assert held_to_fidelity(config, decision, 0.99) == decision
    refused = held_to_fidelity(config, decision, 0.98)
    assert not refused.promoted and refused.difference == decision.difference
    assert "fidelity 0.980 is below 0.99" in refused.reasons[0] and len(refused.reasons) == 1


def test_an_insignificant_gain_is_refused_with_what_it_would_need():
    decision = verdict([1.0] * 10 + [0.0] * 40 + [1.0] * 50, [0.0] * 10 + [1.0] * 6 + [0.0] * 34 + [1.0] * 50)
    assert decision.verdict == "refused"
    assert decision.difference == pytest.approx(0.04)
    assert "not certain" in decision.reasons[0]
    assert "5 points need" in decision.reasons[1] and "you have 100" in decision.reasons[1]


def test_few_differing_tasks_are_tested_exactly():
    """Five gained and none lost have a one-sided chance of 1/32, six of 1/64."""
    five, six = (verdict([1.0] * n + [0.0] * (100 - n), [0.0] * 100) for n in (5, 6))
    assert (five.p_value, six.p_value) == pytest.approx((1 / 32, 1 / 64))
    assert not five.promoted and six.promoted


def test_no_change_and_a_loss_are_refused():
    same = verdict([1.0, 0.0] * 30, [1.0, 0.0] * 30)
    assert same.interval is not None and same.interval[0] < 0.0 < same.interval[1]
    assert not same.promoted and same.p_value == 1.0
    assert not verdict([0.0] * 60, [1.0] * 60).promoted


def test_a_falling_family_is_refused_despite_an_overall_gain():
    families = ("pattern", "list", "content", "prefix")
    new = results([0.0, 1.0, 1.0, 1.0] * 25, families)
    old = results([0.2, 0.2, 0.2, 0.2] * 25, families)
    decision = decide(GateConfig(family_margin=0.1), new, old)
    assert decision.verdict == "refused"
    assert decision.reasons == ["family pattern falls by 0.200, more than 0.10 (25 tasks, mean -0.200, at worst -0.276)"]
    assert decision.families["pattern"] == pytest.approx(-0.2)
    unsure = decide(GateConfig(family_margin=0.2), new, old)
    assert unsure.promoted, "a fall of just the margin is allowed, and said"
    assert unsure.reasons[1] == "not ruled out to fall by 20 points: family pattern"
    assert unsure.not_ruled_out == ["family pattern"]
    surely = decide(GateConfig(family_margin=0.3), new, old)
    assert surely.promoted and surely.reasons[1] == "ruled out for greedy success and each family to fall by 30 points"


@pytest.mark.parametrize("families", [5, 20, 40])
def test_a_gain_in_every_family_passes_however_many_families(families):
    """200 tasks, a true gain of 10 points in each; the plain rule refuses most of them at 20 families."""
    stream, promoted, nights = np.random.default_rng(20), 0, 20
    names = [f"family {number}" for number in range(families)]
    for _ in range(nights):
        chances = stream.beta(1.0, 1.0, 200) * 0.9
        old, new = playing(stream, chances, names), playing(stream, chances + 0.1, names)
        promoted += decide(GateConfig(**ONCE), new, old).promoted
    assert promoted / nights >= 0.9


def test_one_family_that_loses_much_is_seen_among_five():
    stream, refused, nights = np.random.default_rng(5), 0, 20
    names = [f"family {number}" for number in range(5)]
    for _ in range(nights):
        chances = 0.35 + stream.random(200) * 0.5
        shift = np.where(np.arange(200) % 5 == 0, -0.3, 0.15)
        decision = decide(GateConfig(**ONCE), playing(stream, chances + shift, names), playing(stream, chances, names))
        refused += any(reason.startswith("family family 0 falls") for reason in decision.reasons)
    assert refused / nights >= 0.9


def test_sampled_episodes_count_beside_greedy_ones():
    stream = np.random.default_rng(11)
    chances = stream.beta(1.0, 1.0, 200) * 0.85
    old, new = playing(stream, chances), playing(stream, chances + 0.15)
    both, greedy = (decide(GateConfig(greedy_weight=weight), new, old) for weight in (0.5, 1.0))
    assert both.promoted and both.spread < 0.8 * greedy.spread
    assert both.difference == pytest.approx((both.greedy_difference + both.sampled_difference) / 2)
    assert greedy.difference == greedy.greedy_difference == both.greedy_difference


def test_a_sampled_gain_does_not_hide_a_greedy_loss():
    new = results([1.0] * 90 + [0.0] * 10, sampled=[4.0] * 100)
    old = results([1.0] * 95 + [0.0] * 5, sampled=[1.0] * 100)
    decision = decide(GateConfig(), new, old)
    assert decision.reasons == ["greedy success falls by 0.050"]


def kill_failures(table, stream, share, mode):
    """The table without a share of the episodes that failed: the infrastructure lost them."""
    if mode == "greedy":
        lost = (table["greedy"] == 0) & (stream.random(len(table)) < share)
        return table.assign(greedy=table["greedy"].where(~lost), greedy_failed=lost.astype(int))
    lost = stream.binomial((table["sampled_attempts"] - table["sampled_successes"]).astype(int), share)
    return table.assign(sampled_attempts=table["sampled_attempts"] - lost, sampled_failed=lost)


def test_killing_the_challengers_hard_episodes_does_not_promote_it():
    """A challenger like the baseline, of whose failed episodes 30% are lost. Left out, they would promote it."""
    stream, promoted, without = np.random.default_rng(3), 0, 0
    for _ in range(12):
        chances = stream.beta(0.5, 0.5, 400)
        old, new = playing(stream, chances), playing(stream, chances)
        for mode in ("greedy", "sampled"):
            new = kill_failures(new, stream, 0.3, mode)
        decision = decide(GateConfig(), new, old)
        promoted += decision.promoted
        without += any("without the missing episodes" in reason for reason in decision.reasons)
        assert decision.missing["challenger"] > 0 == decision.missing["baseline"]
    assert promoted == 0 and without >= 3


def test_missing_episodes_widen_the_interval_by_their_worst_case():
    stream = np.random.default_rng(1)
    chances = stream.random(300)
    old, new = playing(stream, chances), playing(stream, chances)
    whole = decide(GateConfig(), new, old)
    lossy = decide(GateConfig(), kill_failures(new, stream, 0.3, "greedy"), old)
    assert lossy.interval[0] == pytest.approx(whole.interval[0], abs=1e-9), "lost failures count as failures"
    share = lossy.missing["challenger"] / 300
    assert lossy.interval[1] - whole.interval[1] == pytest.approx(share / 2, abs=0.03)


def test_tasks_that_nobody_could_score_say_nothing():
    new = [math.nan] * 10 + [1.0] * 30 + [0.0] * 20
    old = [math.nan] * 10 + [0.0] * 50
    decision, shorter = verdict(new, old), verdict(new[10:], old[10:])
    assert decision.promoted and decision.interval == shorter.interval and decision.pairs == 50


def test_unscored_episodes_are_reported():
    decision = verdict([math.nan] * 5 + [1.0] * 55, [0.0] * 55 + [math.nan] * 5)
    assert decision.pairs == 50 and decision.difference == 1.0 and decision.promoted
    assert decision.left_out == {"challenger_unscored": 5, "baseline_unscored": 5, "only_in_one": 0}
    assert decision.missing == {"challenger": 5, "baseline": 5}


def test_too_few_pairs_are_refused_with_the_reason():
    few = verdict([1.0] * 10, [0.0] * 10)
    assert not few.promoted and "only 10 tasks" in few.reasons[0]
    mostly_unscored = verdict([1.0] * 30 + [math.nan] * 70, [0.0] * 100)
    assert not mostly_unscored.promoted and "30 of 100" in mostly_unscored.reasons[0]


def test_no_pair_is_refused_and_the_verdict_is_json():
    decision = verdict([math.nan] * 4, [0.0] * 4)
    assert (decision.verdict, decision.difference, decision.interval[0] < 0) == ("refused", None, True)
    assert any("family list has no task" in reason for reason in decision.reasons)
    json.dumps(decision.to_record(), allow_nan=False)
    nothing = verdict([math.nan] * 4, [math.nan] * 4)
    assert (nothing.verdict, nothing.interval) == ("refused", None)


def test_other_held_out_tasks_are_counted():
    new, old = results([1.0] * 60), results([0.0] * 60)
    old.loc[0, "task_id"] = "another"
    decision = decide(GateConfig(), new, old)
    assert decision.pairs == 59 and decision.left_out["only_in_one"] == 2


def test_row_order_does_not_matter():
    new, old = results(([1.0] * 3 + [0.0]) * 25), results(([0.0] + [1.0] * 2 + [0.0]) * 25)
    first = decide(GateConfig(), new, old)
    assert first == decide(GateConfig(), new.sample(frac=1, random_state=1), old.sample(frac=1, random_state=2))
    assert json.loads(json.dumps(first.to_record(), allow_nan=False))["verdict"] == "promoted"


def test_a_gate_late_in_the_year_asks_for_more():
    """Eight gained and none lost: enough for a single comparison and for a first gate, not for one of 365."""
    new, old = results([1.0] * 9 + [0.0] * 91), results([0.0] * 100)
    late = Look(200, 0.02)
    assert decide(GateConfig(), new, old).promoted
    decision = decide(GateConfig(), new, old, look=late)
    assert not decision.promoted and decision.level == level_of(GateConfig(), late) and decision.look == 200


def test_a_year_of_null_nights_promotes_nothing():
    """365 challengers like the champion on the same held-out tasks. At 2.5% a night, 9 would be promoted."""
    stream, config, promoted, nightly = np.random.default_rng(365), GateConfig(), 0, 0
    chances = stream.beta(1.0, 1.0, 200)
    families = np.array(["a", "b"] * 100, dtype=object)
    old = read_outcomes(playing(stream, chances))
    spent = 0.0
    for number in range(1, 366):
        new = Outcomes((stream.random(200) < chances) * 1.0, stream.binomial(4, chances) * 1.0, old.attempts, old.offered)
        level = level_of(config, Look(number, spent))
        spent += level
        paired = pair(new, old, families, config.greedy_weight)
        promoted += promotes(config, paired, level)
        nightly += shows_gain(paired.lowest, 0.025)
    assert promoted == 0 < nightly and spent <= 0.025


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda table: table.drop(columns="family"), "lack family"),
        (lambda table: pd.concat([table, table.head(1)]), "more than once: task-0"),
        (lambda table: table.assign(greedy=2.0), "outside 0 to 1"),
        (lambda table: table.assign(sampled_successes=3.0, sampled_attempts=2.0), "outside 0 to sampled_attempts"),
    ],
)
def test_invalid_results_are_data_errors(spoil, said):
    with pytest.raises(DataError, match=said):
        decide(GateConfig(), spoil(results([1.0] * 30)), results([0.0] * 30))


def audited_verdict(new, old, share):
    return decide(GateConfig(**ONCE), results(new), results(old), baseline="warm_start", false_accepts=share)


def test_a_gain_that_false_accepts_could_explain_is_refused():
    # 50 of 100 tasks solved before, 62 now: if graders accept 30% of failures, 0.3 * (1 - 0.5) = 0.15 of the gain is none.
    new, old = [1.0] * 62 + [0.0] * 38, [1.0] * 50 + [0.0] * 50
    assert audited_verdict(new, old, None).promoted and audited_verdict(new, old, 0.0) == audited_verdict(new, old, None)
    doubtful = audited_verdict(new, old, 0.3)
    assert not doubtful.promoted and doubtful.p_value == audited_verdict(new, old, None).p_value
    assert (
        "false accepts alone could explain the gain: if graders accept 30.0% of failures, +0.150 of +0.120"
        in doubtful.reasons[0]
    )
    assert audited_verdict([1.0] * 95 + [0.0] * 5, old, 0.3).promoted, "much more than 0.15"


def test_a_challenger_that_only_fools_the_grader_is_not_promoted():
    stream = np.random.default_rng(5)
    share, refused = 0.1, 0
    for _ in range(40):
        # A challenger that is no better than its baseline, whose failures are accepted with just this probability.
        true = (stream.random(400) < 0.4).astype(float)
        shown = np.where(stream.random(400) < share, 1.0, (stream.random(400) < 0.4).astype(float))
        refused += not audited_verdict(list(shown), list(true), share).promoted
    assert refused >= 37, "at most 2.5% of such comparisons pass, in expectation one of forty"


def test_what_hangs_together_counts_as_one_and_too_few_components_are_said():
    table = results([1.0] * 60 + [0.0] * 40).assign(component=[f"user {number // 10}" for number in range(100)])
    baseline = table.assign(greedy=[1.0] * 30 + [0.0] * 70)
    alone = decide(GateConfig(), table.drop(columns="component"), baseline.drop(columns="component"))
    together = decide(GateConfig(), table, baseline)
    assert alone.promoted and (alone.components, alone.effective_components) == (100, 100.0)
    assert (together.components, together.effective_components) == (10, pytest.approx(10.0))
    assert together.p_value == pytest.approx(1 / 8), "three users of ten gain"
    assert together.spread > alone.spread and together.interval[1] > alone.interval[1]
    strict = decide(GateConfig(), table, baseline, look=Look(100, 0.0))
    assert "hang together in 10 components, and at this level no gain is shown with fewer than 15" in strict.reasons[0]
    few = decide(GateConfig(**ONCE), table.assign(component="one"), baseline)
    assert not few.promoted and few.interval == [-1.0, 1.0]


def test_that_nothing_can_be_promoted_is_known_before_anything_is_trained():
    assert "visible_gain" in describe_power(200, 1e-4) and "visible_gain" in describe_power(200, 1e-4, components=14)
    says = describe_power(200, 1e-4, components=13)["says"]
    assert says.startswith("the gate can promote nothing: the 200 held-out tasks hang together in 13 components")
    assert "no gain is shown with fewer than 14" in says
    assert "in 1 component," in describe_power(200, 1e-4, components=1)["says"]


def test_tasks_hang_together_where_either_curation_says_so():
    first = pd.DataFrame({"component": ["a", "a", "b", "c", None]})
    second = pd.DataFrame({"component": ["x", "y", "y", "z", "w"]})
    labels = common_components(first, second).tolist()
    assert labels[0] == labels[1] == labels[2] and len(set(labels)) == 3
    assert len(set(common_components(first.drop(columns="component"), second).tolist())) == 4
    assert common_components(first[[]], second[[]]).tolist() == [0, 1, 2, 3, 4]
