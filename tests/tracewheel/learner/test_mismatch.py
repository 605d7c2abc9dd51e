"""The mismatch of sampler and trainer: where it is measured, and the response."""

import dataclasses
import json
import math

import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from tracewheel.config import MismatchConfig, OffPolicyConfig, RetrainConfig, UpdateSections
from tracewheel.core.errors import SamplerMismatchError
from tracewheel.core.files import read_records, read_table, write_records
from tracewheel.core.types import Trajectory, Turn
from tracewheel.learner.dpo.learner import learn_dpo
from tracewheel.learner.losses.ratios import correction_shares, correction_weights
from tracewheel.learner.mismatch import (
    ACTION,
    CORRECTED,
    WARNED,
    MismatchStatistics,
    act_on,
    corrected,
    mismatch_warning,
    resolved,
)
from tracewheel.learner.policy_versions import current_tokens, staleness, staleness_figures, versions_of
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles

WEIGHTS = "adapter/adapter_model.safetensors"
VERSION = 3  # of the adapter that is updated


@pytest.fixture
def altered(trajectories, tmp_path):
    """Trajectories with log-probabilities off by some nats on tokens whose version is `chosen`; turns are aged first."""

    def alter(nats, *, age=lambda turn: turn, chosen=lambda version: True, name="altered"):
        def change(trajectory):
            trajectory = dataclasses.replace(trajectory, turns=[age(turn) for turn in trajectory.turns])
            moved = [version >= 0 and chosen(version) for version in trajectory.token_versions()]
            logprobs = [p + nats if m else p for p, m in zip(trajectory.logprobs, moved, strict=True)]
            return dataclasses.replace(trajectory, logprobs=logprobs)

        path = tmp_path / f"{name}.parquet"
        write_records(path, [change(trajectory) for trajectory in read_records(trajectories, Trajectory)])
        return path

    return alter


def half_old(turn):
    """A turn whose first token was sampled by an older version, if it has several tokens."""
    if turn["end"] - turn["start"] < 2:
        return turn
    return turn | {"policy_version": VERSION - 1, "changes": [[turn["start"] + 1, VERSION]]}


class TestVersions:
    TABLE = pd.DataFrame(
        {
            # Two turns: one by version 4, one begun by version 4 and finished by version 5; then a row by version 9.
            "turns": [
                json.dumps(
                    [dataclasses.asdict(Turn(2, 4, 1, 0, 4)), dataclasses.asdict(Turn(5, 8, 1, 0, 4, changes=[[6, 5]]))]
                ),
                json.dumps([dataclasses.asdict(Turn(1, 2, 1, 0, 9))]),
            ],
            "action_mask": [[0, 0, 1, 1, 0, 1, 1, 1], [0, 1]],
            "policy_version": [4, 9],
        }
    )

    def test_each_token_has_its_version(self):
        assert [versions.tolist() for versions in versions_of(self.TABLE)] == [[-1, -1, 4, 4, -1, 4, 5, 5], [-1, 9]]
        assert [row.tolist() for row in current_tokens(self.TABLE, 5)] == [[0, 0, 0, 0, 0, 0, 1, 1], [0, 0]]

    def test_versions_are_unknown_without_turns(self):
        assert [versions.tolist() for versions in versions_of(self.TABLE.drop(columns="turns"))] == [[-1] * 8, [-1] * 2]
        assert staleness_figures(self.TABLE.drop(columns="turns"), 5, 6) == {}

    def test_staleness_is_counted_by_token(self):
        """Version 5 is updated in iteration 6: three tokens are one behind, two are current; 9 is the run's first policy."""
        assert staleness_figures(self.TABLE, 5, 6) == {"staleness_mean": pytest.approx((3 * 1 + 5) / 6), "staleness_max": 5.0}
        assert staleness(self.TABLE, 5, 6).tolist() == [1, 5]

    def test_a_return_to_an_earlier_policy_makes_its_tokens_current(self):
        """Iteration 10 updates version 4 again: its tokens have age 0, those of version 5 age 1, of the first policy age 4."""
        table = self.TABLE.assign(turns=self.TABLE["turns"].str.replace('"policy_version": 9', '"policy_version": 12'))
        assert staleness_figures(table, 4, 10) == {"staleness_mean": pytest.approx((2 * 1 + 4) / 6), "staleness_max": 4.0}
        assert staleness(table.assign(policy_version=[4, 12]), 4, 10).tolist() == [0, 4]

    def test_the_first_update_of_a_run_is_on_policy_for_any_version(self):
        assert staleness_figures(self.TABLE.iloc[1:], 9, 1) == {"staleness_mean": 0.0, "staleness_max": 0.0}


class TestDifferences:
    def test_by_hand(self):
        found = MismatchStatistics()
        fresh, stored = torch.tensor([[-9.0, -1.0, -2.0, -3.0]]), torch.tensor([[0.0, -1.5, -2.0, -7.0]])
        found.observe(fresh, stored, torch.tensor([[0, 1, 1, 1]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]]))
        expected = {
            "sampler_mismatch_mean": 0.25,
            "sampler_mismatch_max": 0.5,
            "sampler_mismatch_trimmed": 0.0,  # the larger of two is left out
            "sampler_mismatch_effective_sample": pytest.approx((math.exp(0.5) + 1) ** 2 / (2 * (math.exp(1.0) + 1))),
            "sampler_mismatch_measured": pytest.approx(2 / 3),
        }
        assert found.figures() == expected

    def test_nothing_measured_gives_no_mean(self):
        found = MismatchStatistics()
        found.observe(torch.tensor([-1.0]), torch.tensor([-5.0]), torch.tensor([1]), torch.tensor([0.0]))
        assert found.figures() == {"sampler_mismatch_measured": 0.0}

    def test_statistics_of_processes_add_up(self):
        """One token off by 1, three by 0.2, and a process with only a filler."""
        parts = [MismatchStatistics(), MismatchStatistics(), MismatchStatistics()]
        parts[0].observe(torch.tensor([-1.0]), torch.tensor([-2.0]), torch.ones(1), torch.ones(1))
        parts[1].observe(torch.full((4,), -1.0), torch.full((4,), -1.2), torch.ones(4), torch.tensor([1.0, 1.0, 1.0, 0.0]))
        parts[2].observe(torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.zeros(2))
        figures = sum(parts, MismatchStatistics()).figures()
        assert figures["sampler_mismatch_mean"] == pytest.approx((1.0 + 3 * 0.2) / 4)
        assert figures["sampler_mismatch_max"] == 1.0 and figures["sampler_mismatch_measured"] == pytest.approx(4 / 5)

    def test_nan_propagates_to_the_maximum(self):
        parts = [MismatchStatistics(), MismatchStatistics()]
        parts[0].observe(torch.tensor([math.nan]), torch.tensor([-2.0]), torch.ones(1), torch.ones(1))
        parts[1].observe(torch.tensor([-1.0]), torch.tensor([-2.0]), torch.ones(1), torch.ones(1))
        assert math.isnan(sum(parts, MismatchStatistics()).figures()["sampler_mismatch_max"])


FIGURES = {
    "sampler_mismatch_mean": 0.03,
    "sampler_mismatch_max": 0.5,
    "sampler_mismatch_trimmed": 0.025,
    "sampler_mismatch_measured": 0.75,
}


class TestOutliers:
    """One token of 400 is 200 nats off; the others agree."""

    @pytest.fixture(params=[200.0, -200.0])
    def figures(self, request):
        found = MismatchStatistics()
        gaps = torch.zeros(400)
        gaps[7] = request.param
        found.observe(gaps, torch.zeros(400), torch.ones(400), torch.ones(400))
        return found.figures()

    @pytest.mark.parametrize("action", ["warn", "correct", "stop"])
    def test_one_outlier_is_seen_and_ends_no_run(self, figures, action):
        config = MismatchConfig(action=action)
        metrics = figures | act_on(config, figures)
        assert metrics["sampler_mismatch_mean"] == 0.5 and metrics["sampler_mismatch_trimmed"] == 0.0
        assert ("200 at most" in mismatch_warning(config, metrics)) == (action != "stop" or metrics[ACTION] == WARNED)

    def test_another_model_ends_a_correction(self):
        config = MismatchConfig(action="correct")
        beyond = FIGURES | {"sampler_mismatch_trimmed": 1.01}
        with pytest.raises(SamplerMismatchError, match="another model shows"):
            act_on(config, beyond)
        assert act_on(config, FIGURES | {"sampler_mismatch_trimmed": 0.99}) == {ACTION: CORRECTED}
        assert act_on(MismatchConfig(action="warn"), beyond) == {ACTION: WARNED}


class TestActing:
    @pytest.mark.parametrize(("action", "metric"), [("warn", 1.0), ("correct", 2.0)])
    def test_above_the_threshold_the_action_is_taken(self, action, metric):
        config = MismatchConfig(action=action)
        assert act_on(config, FIGURES) == {"sampler_mismatch_action": metric}
        below = 2.0 if action == "correct" else 0.0
        assert act_on(MismatchConfig(action=action, threshold=0.03), FIGURES) == {"sampler_mismatch_action": below}
        assert mismatch_warning(MismatchConfig(action=action, threshold=0.03), FIGURES | {ACTION: below}) == ""
        unmeasured = {ACTION: CORRECTED} if action == "correct" else {}
        assert act_on(config, {"sampler_mismatch_measured": 0.0}) == unmeasured
        said = mismatch_warning(config, FIGURES | {"sampler_mismatch_action": metric, "corrected_share": 0.5})
        assert "0.03 nats a token on average (0.025 without the largest 1%), 0.5 at most, over 75.0%" in said
        assert "rollout.engine" in said
        assert mismatch_warning(config, FIGURES | {"sampler_mismatch_action": 0.0}) == mismatch_warning(config, {}) == ""

    def test_the_stop_error_names_the_difference_and_the_settings(self):
        with pytest.raises(SamplerMismatchError, match=r"0\.03 nats .*threshold is 0\.02.*rollout\.engine.*written"):
            act_on(MismatchConfig(action="stop"), FIGURES)

    def test_a_nan_difference_stops_a_correction(self):
        broken = FIGURES | {"sampler_mismatch_mean": math.nan, "sampler_mismatch_trimmed": math.nan}
        assert act_on(MismatchConfig(action="warn"), broken) == {"sampler_mismatch_action": 1.0}
        with pytest.raises(SamplerMismatchError, match="nan nats"):
            act_on(MismatchConfig(action="correct"), broken)

    def test_a_profile_with_a_correction_keeps_it(self):
        own = OffPolicyConfig(proximal="recompute", correction="mask", level="sequence")
        assert corrected(own) == own
        assert corrected(OffPolicyConfig(cap=3.0)) == OffPolicyConfig(proximal="recompute", correction="truncate", cap=3.0)

    def test_dpo_refuses_a_correction(self):
        with pytest.raises(ValidationError, match="set mismatch.action to 'warn' or 'stop'"):
            RetrainConfig.model_validate({"name": "test", "learner": {"kind": "dpo", "mismatch": {"action": "correct"}}})


def test_correction_shares_by_hand():
    """Ratios 1, 1.5, 4 and 0.25, and one off the mask: three are corrected; a cap of 2 cuts one, or two with `mask`."""
    ratio = torch.tensor([[1.0, 1.5, 4.0, 0.25, 8.0]])
    mask = torch.tensor([[1, 1, 1, 1, 0]])
    for correction, cut in (("truncate", 1), ("mask", 2)):
        config = OffPolicyConfig(proximal="recompute", correction=correction)
        weights = correction_weights(config, ratio.log(), torch.zeros_like(ratio), mask)
        assert correction_shares(config, weights, mask) == (3, cut)
    plain = OffPolicyConfig(proximal="recompute")
    assert correction_shares(plain, torch.ones_like(ratio), mask) == (0, 0)


def test_the_sampling_engine_has_no_mismatch(run):
    _, metrics = run()
    assert metrics["sampler_mismatch_mean"] < 1e-5 and metrics["sampler_mismatch_measured"] == 1.0
    assert metrics["sampler_mismatch_action"] == metrics["corrected_share"] == 0.0
    assert metrics["staleness_mean"] == metrics["staleness_max"] == 0.0


def test_a_warning_does_not_change_the_update(run, altered, same_weights):
    off = altered(0.05)
    out, metrics = run(trajectories=off)
    assert metrics["sampler_mismatch_mean"] == pytest.approx(0.05, abs=1e-4)
    assert metrics["sampler_mismatch_action"] == 1.0 and metrics["corrected_share"] == 0.0
    careless, metrics = run({"mismatch": {"threshold": 0.1}}, trajectories=off)
    assert metrics["sampler_mismatch_action"] == 0.0 and same_weights(out, careless)


def test_a_correction_equals_truncated_importance_sampling(run, altered, files_of, same_weights):
    """The same update, to the bit, as with recomputed log-probabilities and truncated weights in the profile."""
    off = altered(0.05)
    one, metrics = run({"mismatch": {"action": "correct"}}, trajectories=off)
    assert metrics["sampler_mismatch_action"] == 2.0 and metrics["sampler_mismatch_mean"] == pytest.approx(0.05, abs=1e-5)
    assert metrics["corrected_share"] == pytest.approx(1.0) and metrics["correction_cut_share"] == 0.0
    assert metrics["correction_weight_mean"] == pytest.approx(math.exp(-0.05), rel=1e-4)
    chosen = {"off_policy": {"proximal": "recompute", "correction": "truncate"}, "surrogate": {"dual": 3.0}}
    throughout, _ = run(chosen, trajectories=off)
    assert same_weights(one, throughout)
    assert not same_weights(one, run(trajectories=off)[0])
    again, _ = run({"mismatch": {"action": "correct"}}, trajectories=off)
    assert files_of(one) == files_of(again)


def weights_of(out):
    return torch.cat([tensor.flatten() for tensor in load_file(out / WEIGHTS).values()])


def test_without_a_mismatch_a_correction_changes_only_rounding(run, adapter):
    plain, _ = run()
    one, metrics = run({"mismatch": {"action": "correct"}})
    assert metrics["sampler_mismatch_action"] == CORRECTED and metrics["corrected_share"] == 0.0
    moved = weights_of(plain) - weights_of(adapter.parent)
    assert torch.nn.functional.cosine_similarity(weights_of(one) - weights_of(adapter.parent), moved, dim=0) > 0.999


class TestTheDefault:
    ENGINES = ("transformers", "vllm", "vllm_server")

    @pytest.mark.parametrize(
        ("learner", "actions"),
        [
            ({}, ("warn", "correct", "correct")),
            ({"kind": "rejection_sampling"}, ("warn", "warn", "warn")),
            ({"kind": "dpo"}, ("warn", "warn", "warn")),
            ({"mismatch": {"action": "stop"}}, ("stop", "stop", "stop")),
        ],
    )
    def test_every_engine_but_our_own_is_corrected(self, learner, actions):
        profiles = [
            RetrainConfig.model_validate({"name": "test", "learner": learner, "rollout": {"engine": {"kind": kind}}})
            for kind in self.ENGINES
        ]
        assert tuple(resolved(UpdateSections.of(profile)).action for profile in profiles) == actions

    def test_tokens_of_another_engine_are_corrected_with_the_dual_clip(self, run, altered, same_weights):
        off = altered(0.05)
        found, metrics = run(trajectories=off, rollout={"engine": {"kind": "vllm"}})
        assert metrics[ACTION] == CORRECTED and metrics["corrected_share"] == pytest.approx(1.0)
        chosen = {"mismatch": {"action": "correct"}, "surrogate": {"dual": 3.0}}
        assert same_weights(found, run(chosen, trajectories=off)[0])


@pytest.mark.parametrize("wild", [200.0, -200.0, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_one_wild_log_probability_of_the_sampler_ends_no_update(run, altered, trajectories, tmp_path, kind, wild):
    """The first token that the policy sampled in the first episode; the others are the true ones."""
    first, *others = read_records(trajectories, Trajectory)
    logprobs = list(first.logprobs)
    logprobs[first.action_mask.index(1)] = wild
    path = tmp_path / "wild.parquet"
    write_records(path, [dataclasses.replace(first, logprobs=logprobs), *others])
    out, metrics = run({"kind": kind}, trajectories=path, rollout={"engine": {"kind": "vllm"}})
    assert metrics["steps"] > 0 and math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])
    assert torch.isfinite(weights_of(out)).all()
    assert metrics["not_finite_share"] == (0.0 if math.isfinite(wild) else 1 / (1 + len(others)))
    assert metrics["correction_weight_mean"] <= 2.0


def test_a_stop_writes_nothing(run, altered, adapter, profile_with, score_file, rewards, tmp_path):
    off = altered(0.05)
    scores = score_file(tmp_path / "scores.parquet", off, rewards)
    config = profile_with({"mismatch": {"action": "stop"}})
    with pytest.raises(SamplerMismatchError, match="rollout.engine"):
        update(config, UpdateFiles([off], [scores], adapter.parent, adapter, tmp_path / "out"), iteration=1)
    assert not (tmp_path / "out").exists()
    _, metrics = run({"mismatch": {"action": "stop"}})
    assert metrics["sampler_mismatch_action"] == 0.0


def test_tokens_of_older_versions_are_not_measured(run, altered):
    """The first token of each turn is of the previous version and far off: only staleness shows it."""
    off = altered(0.4, age=half_old, chosen=lambda version: version < VERSION)
    for action in ("warn", "correct", "stop"):
        _, metrics = run({"mismatch": {"action": action}}, trajectories=off, iteration=VERSION + 1)
        assert metrics["sampler_mismatch_mean"] < 1e-5
        assert metrics["sampler_mismatch_action"] == (CORRECTED if action == "correct" else 0.0)
        assert 0.5 < metrics["sampler_mismatch_measured"] < 1.0
    assert metrics["staleness_max"] == 1.0 and 0.0 < metrics["staleness_mean"] < 0.5
    _, metrics = run(trajectories=altered(0.4, age=half_old, chosen=lambda version: version == VERSION))
    assert metrics["sampler_mismatch_mean"] == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize("action", ["warn", "correct", "stop"])
def test_without_tokens_of_the_current_version_nothing_is_measured(run, altered, action):
    old = altered(0.4, age=lambda turn: turn | {"policy_version": VERSION - 2})
    _, metrics = run({"mismatch": {"action": action}}, trajectories=old, iteration=VERSION + 1)
    assert metrics["sampler_mismatch_measured"] == 0.0
    assert not metrics.keys() & {"sampler_mismatch_mean", "sampler_mismatch_max"}
    assert metrics.get(ACTION) == (CORRECTED if action == "correct" else None)
    assert metrics["staleness_mean"] == metrics["staleness_max"] == 2.0


def test_a_correction_with_a_critic(run, altered):
    ppo = {"kind": "ppo", "advantage": {"critic": {"kind": "light", "warmup_iterations": 0}}}
    _, metrics = run(ppo | {"mismatch": {"action": "correct"}}, trajectories=altered(0.05))
    assert metrics["sampler_mismatch_action"] == 2.0 and metrics["corrected_share"] == pytest.approx(1.0)


def test_dpo_measures_the_mismatch_and_stops(config, altered, adapter, rewards, tmp_path):
    learner = {"kind": "dpo", "minibatches": 2, "replay_path": config.learner.replay_path, "replay_rows": 2}

    def learn(table, out, **mismatch):
        changed = RetrainConfig.model_validate(config.model_dump() | {"learner": learner | {"mismatch": mismatch}})
        files = UpdateFiles([], [], adapter.parent, adapter, tmp_path / out)
        return learn_dpo(changed, table.assign(total=rewards), files, 1)

    true, off = read_table(altered(0.0)), read_table(altered(0.05, name="off"))
    figures = learn(true, "true", action="stop")
    assert figures["pairs"] > 0 and figures["sampler_mismatch_mean"] < 1e-4 and figures["sampler_mismatch_action"] == 0.0
    figures = learn(off, "warned")
    assert figures["sampler_mismatch_mean"] == pytest.approx(0.05, abs=1e-3) and figures["sampler_mismatch_action"] == 1.0
    with pytest.raises(SamplerMismatchError):
        learn(off, "stopped", action="stop")
    assert not (tmp_path / "stopped").exists()
