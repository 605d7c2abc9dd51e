"""One planted fault for each check: it is found, where it was planted, and a run without it raises no alarm."""

import json
import random

import numpy as np
import pandas as pd
import pytest

from tracewheel.config import DoctorConfig
from tracewheel.report.doctor import CHECKS, GUARD_FILE, RunRecords, examine

LATE = (5, 6)
ALL = tuple(range(1, 7))


def found(run, config):
    findings = {item.check: item for item in examine(run.read(config))}
    assert not [item for item in findings.values() if "itself failed" in item.advice]
    return findings


def results(success, tasks=60):
    """A validation whose first tasks succeed, greedy and sampled."""
    rows = [
        {"task_id": f"v{n}", "family": "list", "tier": 2, "greedy": float(n < success), "sampled_successes": int(n < success),
         "sampled_attempts": 1}
        for n in range(tasks)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_three_healthy_runs_raise_no_alarm_at_any_iteration(make_run, config, seed):
    records = make_run(seed).read(config)
    for number in ALL:
        until = {at: table for at, table in records.validations.items() if at <= number}
        sofar = RunRecords(config, records.iterations[:number], until, records.start_version, guard=[])
        for item in examine(sofar):
            assert item.severity in ("healthy", "not_checked"), (number, item)
    # No curation made these tasks (test_held_out_use.py plants ledgers), and no call is recorded here:
    # tests/tracewheel/environments/recorded/test_doctor.py plants unrecorded calls.
    assert {item.check for item in examine(records) if item.severity == "healthy"} == set(CHECKS) - {
        "unrecorded_calls",
        "fidelity",  # test_fidelity_check.py
        "broken_programs",  # test_fidelity_check.py
        "held_out_use",
        "judge_drift",
        "held_batches",  # test_intake_checks.py plants these two
        "unread_logs",
        "sandbox_findings",  # test_sandbox_findings.py
    }
    (unrecorded,) = [item for item in examine(records) if item.check == "unrecorded_calls"]
    assert (unrecorded.severity, unrecorded.advice) == ("not_checked", "The environment is not a recorded one.")


@pytest.mark.parametrize(("actions", "severity"), [(["go_back"], "warning"), (["go_back", "go_back", "stop"], "severe")])
def test_what_the_guard_did_is_a_finding(make_run, config, actions, severity):
    run = make_run()
    events = [
        {"iteration": at, "action": action, "sentence": f"{action} at {at}"} for at, action in enumerate(actions, start=3)
    ]
    (run.record / GUARD_FILE).write_text(json.dumps(events))
    finding = found(run, config)["guard"]
    assert (finding.severity, finding.iterations) == (severity, tuple(range(3, 3 + len(actions))))
    assert finding.evidence["events"] == [f"{action} at {at}" for at, action in enumerate(actions, start=3)]
    (run.record / GUARD_FILE).unlink()
    assert found(run, config)["guard"].severity == "not_checked"


def widen(row, *, stretch):
    """The action mask over the first observation too; with `stretch`, the turn's span covers it too."""
    turns = json.loads(row["turns"])
    mask = np.array(row["action_mask"])
    if len(turns) > 1:
        mask[turns[0]["end"] : turns[1]["start"]] = 1
        if stretch:
            turns[0]["end"] = turns[1]["start"]
    return row | {"action_mask": mask.tolist(), "turns": json.dumps(turns)}


@pytest.mark.parametrize("stretch", [False, True], ids=["outside the turns", "within a turn"])
def test_observation_tokens_in_the_mask_are_found(make_run, config, stretch):
    run = make_run()
    run.alter("rollout", [4], "trajectories.parquet", lambda row: widen(row, stretch=stretch))
    finding = found(run, config)["observation_loss"]
    assert (finding.severity, finding.iterations) == ("severe", (4,))
    assert finding.evidence["after a turn's end"] > 0
    assert (finding.evidence["outside any turn"] > 0) is not stretch


def test_a_learner_that_counts_more_tokens_than_sampled_is_found(make_run, config):
    run = make_run()
    run.alter("update", LATE, "metrics.json", lambda metrics: metrics | {"generated_tokens": metrics["generated_tokens"] * 2})
    finding = found(run, config)["observation_loss"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)


@pytest.mark.parametrize(("value", "severity"), [(0.05, "warning"), (0.4, "severe"), (float("nan"), "severe")])
def test_sampler_mismatch_is_found(make_run, config, value, severity):
    run = make_run()
    run.alter("update", ALL, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_mean": value})
    finding = found(run, config)["sampler_mismatch"]
    assert (finding.severity, finding.iterations) == (severity, ALL)


def with_learner(config, **changes):
    return config.model_copy(update={"learner": config.learner.model_copy(update=changes)})


def test_the_mismatch_limits_follow_the_learners_threshold(make_run, config):
    run = make_run()
    run.alter("update", ALL, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_mean": 0.3})
    for threshold, severity in ((0.05, "severe"), (0.1, "warning"), (0.4, "healthy")):
        changed = with_learner(config, mismatch=config.learner.mismatch.model_copy(update={"threshold": threshold}))
        assert found(run, changed)["sampler_mismatch"].severity == severity
    own = config.model_copy(update={"doctor": DoctorConfig(limits={"sampler_mismatch": (0.25, 0.35)})})
    assert found(run, own)["sampler_mismatch"].severity == "warning"


def test_a_corrected_mismatch_is_a_warning(make_run, config):
    run = make_run()
    sick = {"sampler_mismatch_mean": 0.4, "sampler_mismatch_measured": 1.0}
    run.alter("update", ALL, "metrics.json", lambda metrics: metrics | sick | {"sampler_mismatch_action": 2.0})
    assert found(run, config)["sampler_mismatch"].severity == "warning"
    run.alter("update", LATE, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_action": 1.0})
    assert found(run, config)["sampler_mismatch"].severity == "severe"


def test_a_stale_adapter_is_found(make_run, config):
    run = make_run()

    def old(row):
        turns = [turn | {"policy_version": 3} for turn in json.loads(row["turns"])]
        return row | {"turns": json.dumps(turns), "policy_version": 3}

    run.alter("rollout", LATE, "trajectories.parquet", old)
    finding = found(run, config)["stale_adapter"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)
    assert finding.evidence["versions behind"] == 2


def test_an_update_without_a_change_is_found(make_run, config):
    run = make_run()
    weights = run.file("update", 3, "adapter") / "adapter_model.safetensors"
    (run.file("update", 4, "adapter") / "adapter_model.safetensors").write_bytes(weights.read_bytes())
    finding = found(run, config)["stale_adapter"]
    assert (finding.severity, finding.iterations) == ("severe", (4,))


def test_old_weights_under_a_new_version_are_found(make_run, config):
    run = make_run()
    run.alter("update", LATE, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_mean": 0.3})
    assert found(run, config)["stale_adapter"].iterations == LATE


def test_an_allowed_lag_is_healthy(make_run, config):
    run = make_run()
    run.alter(
        "rollout",
        LATE,
        "trajectories.parquet",
        lambda row: row | {"turns": json.dumps([turn | {"policy_version": 3} for turn in json.loads(row["turns"])])},
    )
    off_policy = config.learner.off_policy.model_copy(update={"max_staleness": 2})
    allowed = config.model_copy(update={"learner": config.learner.model_copy(update={"off_policy": off_policy})})
    assert found(run, allowed)["stale_adapter"].severity == "healthy"


def test_a_weak_start_is_found(make_run, config, words):
    run = make_run(late=ALL, say=lambda task, solves, rng: words(task, False, rng))
    finding = found(run, config)["weak_start"]
    assert finding.severity == "severe"
    assert finding.evidence["pass@k"] == 0.0
    assert "distil" in finding.advice


def test_a_weak_start_is_found_before_the_first_iteration(config):
    (weak,) = [item for item in examine(RunRecords(config, validations={0: results(0)})) if item.check == "weak_start"]
    (strong,) = [item for item in examine(RunRecords(config, validations={0: results(30)})) if item.check == "weak_start"]
    assert (weak.severity, weak.evidence["k"], weak.iterations) == ("severe", 2, (0,))
    assert strong.severity == "healthy"


def test_reward_up_and_validation_down_is_reward_hacking(make_run, config):
    run = make_run()
    for number, solved in ((0, 40), (2, 42), (4, 30), (6, 22)):
        run.validate(number, results(solved))
    run.write()
    finding = found(run, config)["reward_hacking"]
    assert (finding.severity, finding.iterations) == ("severe", (6,))  # up to 4 the rise of the reward is not significant
    assert finding.evidence["falls"][-1] == "validation success from 0.700 to 0.367"


def test_forgetting_untrained_families_is_not_reward_hacking(make_run, config):
    run = make_run()
    for number, solved in ((0, 40), (2, 42), (4, 30), (6, 22)):
        own = results(30).assign(task_id=lambda table: "own-" + table["task_id"])
        run.validate(number, pd.concat([own, results(solved).assign(family="another")]))
    run.write()
    assert found(run, config)["reward_hacking"].severity == "healthy"


def test_reward_and_validation_down_is_not_reward_hacking(make_run, config, words):
    run = make_run(late=(4, 5, 6), say=lambda task, solves, rng: words(task, rng.random() < 0.2, rng))
    for number, solved in ((0, 40), (2, 42), (4, 30), (6, 22)):
        run.validate(number, results(solved))
    run.write()
    assert found(run, config)["reward_hacking"].severity == "healthy"


def test_reward_up_and_a_second_grader_down_is_reward_hacking(make_run, config):
    run = make_run()
    rng = random.Random(0)

    def graded(level):
        def change(row):
            breakdown = json.loads(row["breakdown"])
            breakdown["house.graders:Polite"] = min(1.0, max(0.0, level + rng.uniform(-0.1, 0.1)))
            return row | {"breakdown": json.dumps(breakdown)}

        return change

    for number in ALL:
        run.alter("score", [number], "scores.parquet", graded(0.9 - 0.08 * number))
    finding = found(run, config)["reward_hacking"]
    assert finding.severity == "severe"
    assert finding.evidence["graders"] == ["workspace", "house.graders:Polite"]
    assert any("house.graders:Polite" in fall for fall in finding.evidence["falls"])


def test_reward_up_and_success_down_is_reward_hacking(make_run, config, words):
    run = make_run(late=(4, 5, 6), say=lambda task, solves, rng: words(task, rng.random() < 0.1, rng))
    for number in ALL:
        cheap = number / 6
        run.alter("score", [number], "scores.parquet", lambda row, cheap=cheap: row | {"total": cheap})
    finding = found(run, config)["reward_hacking"]
    assert finding.severity == "severe"
    assert any("grader success" in fall for fall in finding.evidence["falls"])


def test_objectives_are_not_graders(make_run, config):
    run = make_run()

    def costly(row):
        return row | {"breakdown": json.dumps(json.loads(row["breakdown"]) | {"objective.cost": 0.1})}

    run.alter("score", ALL, "scores.parquet", costly)
    findings = found(run, config)
    assert findings["flawed_success"].severity == findings["reward_hacking"].severity == "healthy"


def test_flawed_successes_are_found(make_run, config, words):
    """A malformed call and an unknown tool, although the task is solved."""

    def clumsy(task, solves, rng):
        return [
            "<tool_call>{oops</tool_call>",
            '<tool_call>\n{"name": "guess", "arguments": {}}\n</tool_call>',
            *words(task, True, rng),
        ]

    finding = found(make_run(say=clumsy), config)["flawed_success"]
    assert finding.severity == "severe"
    assert set(LATE) <= set(finding.iterations)
    assert finding.evidence["in all, malformed calls"] == 64


def test_success_with_negative_turn_rewards_is_flawed(make_run, config):
    run = make_run()
    run.alter("score", ALL, "scores.parquet", lambda row: row | {"turn_rewards": [0.5, -0.5, 1.0]})
    finding = found(run, config)["flawed_success"]
    assert finding.severity == "severe"
    assert finding.evidence["in all, a step back"] > 0


def test_a_recovered_error_is_not_a_flaw(make_run, config, words, call_text):
    run = make_run(say=lambda task, solves, rng: [call_text("read_file", path="/no"), *words(task, solves, rng)])
    assert found(run, config)["flawed_success"].severity == "healthy"


def test_groups_without_variance_are_found(make_run, config, words):
    finding = found(make_run(late=(4, 5, 6), say=lambda task, solves, rng: words(task, False, rng)), config)["zero_variance"]
    assert (finding.severity, finding.iterations) == ("severe", (5, 6))
    assert "easier tasks" in finding.advice


def test_solved_groups_give_a_different_warning(make_run, config, words, monkeypatch):
    monkeypatch.setattr("tracewheel.report.doctor.checks.episodes.WINDOW", 6)  # as many groups as the warning needs
    run = make_run(late=ALL, say=lambda task, solves, rng: words(task, True, rng), iterations=6)
    finding = found(run, config)["zero_variance"]
    assert finding.severity == "warning"
    assert "mastered" in finding.advice


def test_entropy_collapse_before_mastery_is_found(make_run, config):
    run = make_run()
    run.alter("update", (4, 5, 6), "metrics.json", lambda metrics: metrics | {"entropy": 0.0006})
    finding = found(run, config)["entropy_collapse"]
    assert finding.severity == "severe"
    assert finding.iterations == (5, 6)  # the median of three


def test_entropy_may_fall_once_the_tasks_are_solved(make_run, config, words):
    run = make_run(late=(3, 4, 5, 6), say=lambda task, solves, rng: words(task, True, rng))
    run.alter("update", (5, 6), "metrics.json", lambda metrics: metrics | {"entropy": 0.0006})
    assert found(run, config)["entropy_collapse"].severity == "healthy"


def test_identical_failures_are_found(make_run, config, call_text):
    run = make_run(late=(4, 5, 6), say=lambda *_: [call_text("list_files", path="/inbox"), call_text("finish")])
    finding = found(run, config)["entropy_collapse"]
    assert finding.severity == "severe"
    assert finding.evidence["groups of equal failures"] == 1.0


def test_an_outage_is_no_fault_of_the_policy(make_run, config, call_text):
    """Episodes that the infrastructure failed are alike, short and without success, and say nothing."""
    late = (4, 5, 6)
    run = make_run(late=late, say=lambda *_: [call_text("list_files", path="/inbox"), call_text("finish")])
    assert found(run, config)["entropy_collapse"].severity == "severe", "as failures they would be found"
    run.alter("rollout", late, "trajectories.parquet", lambda row: row | {"stop_reason": "infrastructure_failed"})
    failed = {"status": "infrastructure_failed", "total": float("nan"), "breakdown": "{}"}
    run.alter("score", late, "scores.parquet", lambda row: row | failed)
    assert [name for name, item in found(run, config).items() if item.severity in ("warning", "severe")] == []


def test_without_the_metric_entropy_comes_from_sampled_log_probabilities(make_run, config):
    run = make_run()
    run.alter("update", ALL, "metrics.json", lambda metrics: {key: value for key, value in metrics.items() if key != "entropy"})
    assert found(run, config)["entropy_collapse"].severity == "healthy"
    run.alter("rollout", (4, 5, 6), "trajectories.parquet", lambda row: row | {"logprobs": row["logprobs"] * 0.01})
    assert found(run, config)["entropy_collapse"].severity == "severe"


@pytest.mark.parametrize("metric", ["kl", "behaviour_kl"])
def test_kl_explosion_is_found(make_run, config, metric):
    run = make_run()
    run.alter("update", LATE, "metrics.json", lambda metrics: metrics | {metric: 4.0})
    finding = found(run, config)["kl_explosion"]
    assert (finding.severity, finding.iterations) == ("severe", (6,))


def test_one_outlier_is_not_a_kl_explosion(make_run, config):
    run = make_run()
    run.alter("update", [4], "metrics.json", lambda metrics: metrics | {"kl": 4.0})
    assert found(run, config)["kl_explosion"].severity == "healthy"


def test_a_policy_that_does_not_move_is_found(make_run, config):
    run = make_run()
    run.alter("update", ALL, "metrics.json", lambda metrics: metrics | {"kl": 0.0})
    finding = found(run, config)["kl_explosion"]
    assert (finding.severity, finding.iterations) == ("warning", ALL[1:])
    no_reference = config.learner.model_copy(update={"kl": config.learner.kl.model_copy(update={"weight": 0.0})})
    assert found(run, config.model_copy(update={"learner": no_reference}))["kl_explosion"].severity == "healthy"


def wordy(words, call_text, *, solves_more):
    """Looks at places it has seen, between all steps."""

    def say(task, solves, rng):
        spoken = words(task, solves or solves_more, rng)
        idle = [call_text("list_files", path=task.goal[place]) for place in ("source", "destination", "source", "destination")]
        return [line for step in spoken for line in [*idle[: rng.randrange(3, 5)], step]]

    return say


def test_length_explosion_is_found(make_run, config, words, call_text):
    def same_as_at_first(task, solves, rng):
        return wordy(words, call_text, solves_more=False)(task, rng.random() < 0.5, rng)

    finding = found(make_run(late=(4, 5, 6), say=same_as_at_first, max_turns=99, max_tokens=4000), config)["length_explosion"]
    assert finding.severity == "severe"
    assert finding.iterations == (6,)  # the first window without iterations of the starting one
    assert finding.evidence["factor"] > 2.5


def test_growth_with_more_success_is_a_warning(make_run, config, words, call_text):
    run = make_run(late=(4, 5, 6), say=wordy(words, call_text, solves_more=True), max_turns=99, max_tokens=4000)
    assert found(run, config)["length_explosion"].severity == "warning"


def test_truncation_is_found(make_run, config):
    finding = found(make_run(max_tokens=75), config)["truncation"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)
    assert finding.evidence["in all, by max_tokens"] > 0


def test_invented_tools_are_found(make_run, config, words, call_text):
    finding = found(
        make_run(say=lambda task, solves, rng: [call_text("search_web", query="x"), *words(task, solves, rng)]), config
    )["invented_tools"]
    assert finding.severity == "severe"
    assert finding.iterations == LATE
    assert finding.evidence["in all, names"] == ["search_web"]


def test_unknown_tool_lists_are_not_checked(make_run, config):
    records = make_run().read(config)
    unknown = RunRecords(config, records.iterations, records.validations, 0, tools=False)
    (finding,) = [item for item in examine(unknown) if item.check == "invented_tools"]
    assert finding.severity == "not_checked"


@pytest.mark.parametrize("cycle", [("/inbox",), ("/inbox", "/no"), ("/inbox", "/no", "/yes")], ids=["one", "two", "three"])
def test_loops_are_found(make_run, config, call_text, cycle):
    looping = [call_text("list_files", path=path) for path in cycle] * 4
    finding = found(make_run(say=lambda *_: [*looping, call_text("finish")]), config)["repetition"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)
    assert finding.evidence["in all, with a loop of calls"] == 64


def test_repetitive_turns_are_found(make_run, config):
    finding = found(make_run(say=lambda *_: ["and then and " * 20], max_turn_tokens=48), config)["repetition"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)
    assert finding.evidence["in all, with a repeating turn"] == 64


class TestNotChecked:
    def test_a_run_without_records_is_not_checked(self, config):
        assert {item.severity for item in examine(RunRecords(config))} == {"not_checked"}

    @pytest.mark.parametrize(
        ("metric", "check"),
        [("sampler_mismatch_mean", "sampler_mismatch"), ("kl", "kl_explosion")],
    )
    def test_a_missing_metric_is_not_checked(self, make_run, config, metric, check):
        run = make_run(iterations=2)
        gone = {metric, "behaviour_kl"}
        run.alter("update", (1, 2), "metrics.json", lambda metrics: {k: v for k, v in metrics.items() if k not in gone})
        finding = found(run, config)[check]
        assert finding.severity == "not_checked"
        assert metric in finding.advice

    def test_one_grader_without_validations_is_not_checked(self, make_run, config):
        records = make_run(iterations=2).read(config)
        lone = RunRecords(config, records.iterations, {0: records.validations[0]}, 0)
        (finding,) = [item for item in examine(lone) if item.check == "reward_hacking"]
        assert finding.severity == "not_checked"

    def test_a_failing_check_is_not_checked(self, make_run, config, monkeypatch):
        def broken(records):
            raise KeyError("surprise")

        monkeypatch.setitem(CHECKS, "truncation", broken)
        finding = {item.check: item for item in examine(RunRecords(config))}["truncation"]
        assert finding.severity == "not_checked"
        assert "KeyError: 'surprise'" in finding.advice


@pytest.mark.parametrize(("after", "severity"), [((0.9, 0.4), "severe"), ((0.9, 0.7), "healthy"), ((0.5, 0.4), "healthy")])
def test_a_training_judge_that_climbs_while_the_held_back_one_falls_is_judge_drift(config, after, severity):
    def marks(training, held_back):
        wobble = [0.05 * (-1) ** number for number in range(20)]
        columns = {"training": [training + by for by in wobble], "held_back": [held_back + by for by in wobble[::-1]]}
        return pd.DataFrame(columns, index=[f"t{number}" for number in range(20)])

    records = RunRecords(config, judges={0: marks(0.5, 0.7), 4: marks(*after)})
    (finding,) = [item for item in examine(records) if item.check == "judge_drift"]
    assert finding.severity == severity
    assert finding.iterations == ((4,) if severity == "severe" else ())
