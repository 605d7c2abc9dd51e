"""One planted fault for each check: it is found, where it was planted, and a run without it raises no alarm."""

import json
import random

import numpy as np
import pandas as pd
import pytest

from tracewheel.config import Ceiling, DoctorConfig
from tracewheel.report.doctor import CHECKS, RunRecords, examine

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
        sofar = RunRecords(config, records.iterations[:number], until, records.start_version)
        for item in examine(sofar):
            assert item.severity in ("healthy", "not_checked"), (number, item)
    # Nothing is recorded here, so nothing can be unrecorded: tests/tracewheel/environments/test_recorded_doctor.py plants that.
    assert {item.check for item in examine(records) if item.severity == "healthy"} == set(CHECKS) - {"unrecorded_calls"}
    (unrecorded,) = [item for item in examine(records) if item.check == "unrecorded_calls"]
    assert (unrecorded.severity, unrecorded.advice) == ("not_checked", "The environment is not a recorded one.")


def widen(row, *, stretch):
    """The action mask over the first observation too; with `stretch`, the turn says it sampled it."""
    turns = json.loads(row["turns"])
    mask = np.array(row["action_mask"])
    if len(turns) > 1:
        mask[turns[0]["end"] : turns[1]["start"]] = 1
        if stretch:
            turns[0]["end"] = turns[1]["start"]
    return row | {"action_mask": mask.tolist(), "turns": json.dumps(turns)}


@pytest.mark.parametrize("stretch", [False, True], ids=["outside the turns", "within a turn"])
def test_observation_tokens_in_the_mask(make_run, config, stretch):
    run = make_run()
    run.alter("rollout", [4], "trajectories.parquet", lambda row: widen(row, stretch=stretch))
    finding = found(run, config)["observation_loss"]
    assert (finding.severity, finding.iterations) == ("severe", (4,))
    assert finding.evidence["after a turn's end"] > 0
    assert (finding.evidence["outside any turn"] > 0) is not stretch


def test_a_learner_that_learns_from_more_than_was_sampled(make_run, config):
    run = make_run()
    run.alter("update", LATE, "metrics.json", lambda metrics: metrics | {"generated_tokens": metrics["generated_tokens"] * 2})
    finding = found(run, config)["observation_loss"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)


@pytest.mark.parametrize(("value", "severity"), [(0.05, "warning"), (0.4, "severe"), (float("nan"), "severe")])
def test_sampler_and_trainer_disagree(make_run, config, value, severity):
    run = make_run()
    run.alter("update", ALL, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_mean": value})
    finding = found(run, config)["sampler_mismatch"]
    assert (finding.severity, finding.iterations) == (severity, ALL)


def with_learner(config, **changes):
    return config.model_copy(update={"learner": config.learner.model_copy(update=changes)})


def test_what_counts_as_a_mismatch_is_the_learners_threshold(make_run, config):
    run = make_run()
    run.alter("update", ALL, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_mean": 0.3})
    for threshold, severity in ((0.05, "severe"), (0.1, "warning"), (0.4, "healthy")):
        changed = with_learner(config, mismatch=config.learner.mismatch.model_copy(update={"threshold": threshold}))
        assert found(run, changed)["sampler_mismatch"].severity == severity
    own = config.model_copy(update={"doctor": DoctorConfig(sampler_mismatch=Ceiling(warn=0.25, severe=0.35))})
    assert found(run, own)["sampler_mismatch"].severity == "warning"


def test_a_mismatch_that_every_update_was_corrected_for_is_a_warning(make_run, config):
    run = make_run()
    sick = {"sampler_mismatch_mean": 0.4, "sampler_mismatch_measured": 1.0}
    run.alter("update", ALL, "metrics.json", lambda metrics: metrics | sick | {"sampler_mismatch_action": 2.0})
    assert found(run, config)["sampler_mismatch"].severity == "warning"
    run.alter("update", LATE, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_action": 1.0})
    assert found(run, config)["sampler_mismatch"].severity == "severe"


def test_a_buffer_is_no_excuse_where_only_own_tokens_were_compared(make_run, config):
    run = make_run()
    sick = {"sampler_mismatch_mean": 0.4, "sampler_mismatch_measured": 0.5}
    run.alter("update", ALL, "metrics.json", lambda metrics: metrics | sick)
    buffer = config.learner.buffer.model_copy(update={"kind": "fifo"})
    assert found(run, with_learner(config, buffer=buffer))["sampler_mismatch"].severity == "severe"


def test_with_a_replay_buffer_older_policies_are_expected(make_run, config):
    run = make_run()
    run.alter(
        "update", LATE, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_mean": 0.4, "generated_tokens": 900.0}
    )
    buffer = config.learner.buffer.model_copy(update={"kind": "fifo"})
    findings = found(run, config.model_copy(update={"learner": config.learner.model_copy(update={"buffer": buffer})}))
    assert findings["sampler_mismatch"].severity == "warning"
    assert findings["stale_adapter"].severity == findings["observation_loss"].severity == "healthy"


def test_an_old_adapter_is_served(make_run, config):
    run = make_run()

    def old(row):
        turns = [turn | {"policy_version": 3} for turn in json.loads(row["turns"])]
        return row | {"turns": json.dumps(turns), "policy_version": 3}

    run.alter("rollout", LATE, "trajectories.parquet", old)
    finding = found(run, config)["stale_adapter"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)
    assert finding.evidence["versions behind"] == 2


def test_an_update_that_leaves_the_weights_as_they_were(make_run, config):
    run = make_run()
    weights = run.file("update", 3, "adapter") / "adapter_model.safetensors"
    (run.file("update", 4, "adapter") / "adapter_model.safetensors").write_bytes(weights.read_bytes())
    finding = found(run, config)["stale_adapter"]
    assert (finding.severity, finding.iterations) == ("severe", (4,))


def test_old_weights_under_a_new_number(make_run, config):
    run = make_run()
    run.alter("update", LATE, "metrics.json", lambda metrics: metrics | {"sampler_mismatch_mean": 0.3})
    assert found(run, config)["stale_adapter"].iterations == LATE


def test_a_lag_that_the_profile_allows_is_none(make_run, config):
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


def test_a_start_that_never_succeeds(make_run, config, words):
    run = make_run(late=ALL, say=lambda task, solves, rng: words(task, False, rng))
    finding = found(run, config)["weak_start"]
    assert finding.severity == "severe"
    assert finding.evidence["pass@k"] == 0.0
    assert "distil" in finding.advice


def test_the_preflight_says_so_before_the_first_iteration(config):
    (weak,) = [item for item in examine(RunRecords(config, validations={0: results(0)})) if item.check == "weak_start"]
    (strong,) = [item for item in examine(RunRecords(config, validations={0: results(30)})) if item.check == "weak_start"]
    assert (weak.severity, weak.evidence["k"], weak.iterations) == ("severe", 2, (0,))
    assert strong.severity == "healthy"


def test_reward_up_and_validation_down(make_run, config):
    run = make_run()
    for number, solved in ((0, 40), (2, 42), (4, 30), (6, 22)):
        run.validate(number, results(solved))
    run.write()
    finding = found(run, config)["reward_hacking"]
    assert (finding.severity, finding.iterations) == ("severe", (6,))  # up to 4 the reward has not surely risen
    assert finding.evidence["falls"][-1] == "validation success from 0.700 to 0.367"


def test_what_a_specialist_forgets_of_other_families_is_none(make_run, config):
    run = make_run()
    for number, solved in ((0, 40), (2, 42), (4, 30), (6, 22)):
        own = results(30).assign(task_id=lambda table: "own-" + table["task_id"])
        run.validate(number, pd.concat([own, results(solved).assign(family="another")]))
    run.write()
    assert found(run, config)["reward_hacking"].severity == "healthy"


def test_both_down_is_not_called_hacking(make_run, config, words):
    run = make_run(late=(4, 5, 6), say=lambda task, solves, rng: words(task, rng.random() < 0.2, rng))
    for number, solved in ((0, 40), (2, 42), (4, 30), (6, 22)):
        run.validate(number, results(solved))
    run.write()
    assert found(run, config)["reward_hacking"].severity == "healthy"


def test_reward_up_and_a_second_grader_down(make_run, config):
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


def test_reward_for_something_else_up_and_success_down(make_run, config, words):
    run = make_run(late=(4, 5, 6), say=lambda task, solves, rng: words(task, rng.random() < 0.1, rng))
    for number in ALL:
        cheap = number / 6
        run.alter("score", [number], "scores.parquet", lambda row, cheap=cheap: row | {"total": cheap})
    finding = found(run, config)["reward_hacking"]
    assert finding.severity == "severe"
    assert any("grader success" in fall for fall in finding.evidence["falls"])


def test_the_objectives_of_a_rubric_are_no_graders(make_run, config):
    run = make_run()

    def costly(row):
        return row | {"breakdown": json.dumps(json.loads(row["breakdown"]) | {"objective.cost": 0.1})}

    run.alter("score", ALL, "scores.parquet", costly)
    findings = found(run, config)
    assert findings["flawed_success"].severity == findings["reward_hacking"].severity == "healthy"


def test_successes_by_flawed_steps(make_run, config, words):
    """A malformed call and a tool that does not exist, and the task is solved all the same."""

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


def test_success_by_steps_back(make_run, config):
    run = make_run()
    run.alter("score", ALL, "scores.parquet", lambda row: row | {"turn_rewards": [0.5, -0.5, 1.0]})
    finding = found(run, config)["flawed_success"]
    assert finding.severity == "severe"
    assert finding.evidence["in all, a step back"] > 0


def test_an_error_that_was_recovered_from_is_no_flaw(make_run, config, words, call_text):
    run = make_run(say=lambda task, solves, rng: [call_text("read_file", path="/no"), *words(task, solves, rng)])
    assert found(run, config)["flawed_success"].severity == "healthy"


def test_groups_that_fail_as_one(make_run, config, words):
    finding = found(make_run(late=(4, 5, 6), say=lambda task, solves, rng: words(task, False, rng)), config)["zero_variance"]
    assert (finding.severity, finding.iterations) == ("severe", (5, 6))
    assert "easier tasks" in finding.advice


def test_groups_that_all_succeed_are_a_warning_of_another_kind(make_run, config, words):
    run = make_run(late=ALL, say=lambda task, solves, rng: words(task, True, rng), iterations=6)
    finding = found(run, config.model_copy(update={"doctor": config.doctor.model_copy(update={"window": 6})}))["zero_variance"]
    assert finding.severity == "warning"
    assert "mastered" in finding.advice


def test_entropy_falls_while_there_is_much_to_learn(make_run, config):
    run = make_run()
    run.alter("update", (4, 5, 6), "metrics.json", lambda metrics: metrics | {"entropy": 0.0006})
    finding = found(run, config)["entropy_collapse"]
    assert finding.severity == "severe"
    assert finding.iterations == (5, 6)  # the median of three


def test_entropy_may_fall_once_the_tasks_are_solved(make_run, config, words):
    run = make_run(late=(3, 4, 5, 6), say=lambda task, solves, rng: words(task, True, rng))
    run.alter("update", (5, 6), "metrics.json", lambda metrics: metrics | {"entropy": 0.0006})
    assert found(run, config)["entropy_collapse"].severity == "healthy"


def test_failures_word_for_word_alike(make_run, config, call_text):
    run = make_run(late=(4, 5, 6), say=lambda *_: [call_text("list_files", path="/inbox"), call_text("finish")])
    finding = found(run, config)["entropy_collapse"]
    assert finding.severity == "severe"
    assert finding.evidence["groups of equal failures"] == 1.0


def test_without_the_metric_the_sampled_log_probabilities_speak(make_run, config):
    run = make_run()
    run.alter("update", ALL, "metrics.json", lambda metrics: {key: value for key, value in metrics.items() if key != "entropy"})
    assert found(run, config)["entropy_collapse"].severity == "healthy"
    run.alter("rollout", (4, 5, 6), "trajectories.parquet", lambda row: row | {"logprobs": row["logprobs"] * 0.01})
    assert found(run, config)["entropy_collapse"].severity == "severe"


@pytest.mark.parametrize("metric", ["kl", "behaviour_kl"])
def test_the_policy_runs_away(make_run, config, metric):
    run = make_run()
    run.alter("update", LATE, "metrics.json", lambda metrics: metrics | {metric: 4.0})
    finding = found(run, config)["kl_explosion"]
    assert (finding.severity, finding.iterations) == ("severe", (6,))


def test_one_wild_batch_is_no_explosion(make_run, config):
    run = make_run()
    run.alter("update", [4], "metrics.json", lambda metrics: metrics | {"kl": 4.0})
    assert found(run, config)["kl_explosion"].severity == "healthy"


def test_a_policy_that_does_not_move(make_run, config):
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


def test_episodes_grow_and_gain_nothing(make_run, config, words, call_text):
    def same_as_at_first(task, solves, rng):
        return wordy(words, call_text, solves_more=False)(task, rng.random() < 0.5, rng)

    finding = found(make_run(late=(4, 5, 6), say=same_as_at_first, max_turns=99, max_tokens=4000), config)["length_explosion"]
    assert finding.severity == "severe"
    assert finding.iterations == (6,)  # the first window that has nothing in common with the one at the start
    assert finding.evidence["factor"] > 2.5


def test_growth_that_success_came_with_is_a_warning(make_run, config, words, call_text):
    run = make_run(late=(4, 5, 6), say=wordy(words, call_text, solves_more=True), max_turns=99, max_tokens=4000)
    assert found(run, config)["length_explosion"].severity == "warning"


def test_episodes_cut_off(make_run, config):
    finding = found(make_run(max_tokens=75), config)["truncation"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)
    assert finding.evidence["in all, by max_tokens"] > 0


def test_tools_that_were_never_offered(make_run, config, words, call_text):
    finding = found(
        make_run(say=lambda task, solves, rng: [call_text("search_web", query="x"), *words(task, solves, rng)]), config
    )["invented_tools"]
    assert finding.severity == "severe"
    assert finding.iterations == LATE
    assert finding.evidence["in all, names"] == ["search_web"]


def test_tools_that_are_not_known_are_not_checked(make_run, config):
    records = make_run().read(config)
    unknown = RunRecords(config, records.iterations, records.validations, 0, tools=False)
    (finding,) = [item for item in examine(unknown) if item.check == "invented_tools"]
    assert finding.severity == "not_checked"


@pytest.mark.parametrize("cycle", [("/inbox",), ("/inbox", "/no"), ("/inbox", "/no", "/yes")], ids=["one", "two", "three"])
def test_going_round_in_circles(make_run, config, call_text, cycle):
    looping = [call_text("list_files", path=path) for path in cycle] * 4
    finding = found(make_run(say=lambda *_: [*looping, call_text("finish")]), config)["repetition"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)
    assert finding.evidence["in all, with a loop of calls"] == 64


def test_a_turn_that_says_one_phrase_again_and_again(make_run, config):
    finding = found(make_run(say=lambda *_: ["and then and " * 20], max_turn_tokens=48), config)["repetition"]
    assert (finding.severity, finding.iterations) == ("severe", LATE)
    assert finding.evidence["in all, with a repeating turn"] == 64


class TestNotChecked:
    def test_a_run_without_records_is_nowhere_healthy(self, config):
        assert {item.severity for item in examine(RunRecords(config))} == {"not_checked"}

    @pytest.mark.parametrize(
        ("metric", "check"),
        [("sampler_mismatch_mean", "sampler_mismatch"), ("kl", "kl_explosion")],
    )
    def test_a_missing_metric(self, make_run, config, metric, check):
        run = make_run(iterations=2)
        gone = {metric, "behaviour_kl"}
        run.alter("update", (1, 2), "metrics.json", lambda metrics: {k: v for k, v in metrics.items() if k not in gone})
        finding = found(run, config)[check]
        assert finding.severity == "not_checked"
        assert metric in finding.advice

    def test_one_grader_and_no_second_validation(self, make_run, config):
        records = make_run(iterations=2).read(config)
        lone = RunRecords(config, records.iterations, {0: records.validations[0]}, 0)
        (finding,) = [item for item in examine(lone) if item.check == "reward_hacking"]
        assert finding.severity == "not_checked"

    def test_a_check_that_fails_itself(self, make_run, config, monkeypatch):
        def broken(records):
            raise KeyError("surprise")

        monkeypatch.setitem(CHECKS, "truncation", broken)
        finding = {item.check: item for item in examine(RunRecords(config))}["truncation"]
        assert finding.severity == "not_checked"
        assert "KeyError: 'surprise'" in finding.advice
