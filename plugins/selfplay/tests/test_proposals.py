"""A proposal is one call in the generator's language; what it is worth, by hand; what is refused before it is played."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from tracewheel import ConfigError, DataError, Task, kind_text, load_config, make_environment, make_verifier
from tracewheel.core.kind_table import give
from tracewheel_selfplay.learnable import identities, why_not, worth_of
from tracewheel_selfplay.proposals import maker_of, proposal_tasks, task_of
from tracewheel_selfplay.self_play import OUTSIDE, SelfPlay

GOOD = {"family": "pattern", "tier": 2, "seed": 7}


@pytest.fixture
def desk():
    (task,) = proposal_tasks("workspace", "learnable", 1)
    give(task.environment)
    made = make_environment(task.environment)
    made.reset(task)
    return made


def test_one_call_ends_the_episode(desk):
    assert desk.snapshot() == {"proposal": None}
    found = desk.step("propose_task", GOOD)
    assert (found.done, found.error, desk.snapshot()) == (True, False, {"proposal": GOOD})


@pytest.mark.parametrize(
    "change", [{"family": "harmful"}, {"tier": 9}, {"tier": "2"}, {"tier": True}, {"seed": 1000}, {"seed": -1}, {"more": 1}]
)
def test_what_is_not_of_the_language_is_an_observation(desk, change):
    found = desk.step("propose_task", GOOD | change)
    assert found.error and not found.done and desk.snapshot() == {"proposal": None}


def test_an_environment_without_a_generator_is_refused():
    with pytest.raises(ConfigError, match="a generator needs make_tasks, families, tiers"):
        maker_of(give("examples.form_environment:Form"))


def test_a_generator_is_told_what_it_lacks(monkeypatch):
    monkeypatch.setattr("examples.form_environment.Form.make_tasks", lambda self, n, seed: [], raising=False)
    with pytest.raises(ConfigError, match="a generator needs families, tiers$"):
        maker_of(give("examples.form_environment:Form"))


def test_the_same_proposal_is_the_same_task():
    maker = maker_of("workspace")
    one, again, other = (task_of(maker, GOOD | {"seed": seed}) for seed in (7, 7, 8))
    assert one == again != other and (one.family, one.tier) == ("pattern", 2)


def test_the_worth_of_a_proposal_by_hand(tmp_path):
    """P = 1/4: 4 x 1/4 x 3/4 = 0.75, less 0.5 x 2/3 for two of three in a cluster; p = 1/2 alone: 1 - 0.5 / 3."""
    texts = [GOOD, GOOD | {"seed": 8}, GOOD | {"tier": 3}]
    named = [json.dumps(each, sort_keys=True, separators=(",", ":")) for each in texts]
    outcomes = {named[0]: [True, False, False, False], named[2]: [True, False]}
    (tmp_path / "worth.json").write_text(json.dumps(worth_of(texts, {named[1]: "no"}, outcomes)))
    judge = make_verifier(give(kind_text("learnable", {"table": str(tmp_path / "worth.json")})))
    task = Task("t", "proposals", "propose", 0, "Propose.", {}, {}, "learnable", "f")
    total, parts = judge.verify(task, {"proposal": texts[0]})
    assert total == pytest.approx(0.75 - 0.5 * 2 / 3) and parts["pass_rate"] == 0.25
    assert judge.verify(task, {"proposal": texts[2]})[0] == pytest.approx(1 - 0.5 / 3)
    assert judge.verify(task, {"proposal": texts[1]})[0] == 0.0 and judge.verify(task, {"proposal": None})[0] == 0.0
    with pytest.raises(DataError, match="no result"):
        judge.verify(task, {"proposal": GOOD | {"seed": 9}})


def test_solved_or_unsolvable_is_worth_nothing_and_without_scores_it_is_unscored(tmp_path):
    table = worth_of([GOOD], {}, {})
    for outcomes, total in (([True] * 4, 0.0), ([False] * 4, 0.0)):
        path = tmp_path / f"{outcomes[0]}.json"
        path.write_text(json.dumps(worth_of([GOOD], {}, {next(iter(table)): outcomes})))
        assert make_verifier(give(kind_text("learnable", {"table": str(path)}))).verify(None, {"proposal": GOOD})[0] == total
    (tmp_path / "none.json").write_text(json.dumps(table))
    with pytest.raises(DataError, match="no scores"):
        make_verifier(give(kind_text("learnable", {"table": str(tmp_path / "none.json")}))).verify(None, {"proposal": GOOD})


class Gaps:
    """A generator that has not every tier of every family."""

    families, tiers = ("list", "pattern"), (1, 2)

    def make_tasks(self, n, seed):
        made = maker_of("workspace").make_tasks(40, seed)
        return [task for task in made if (task.family, task.tier) in {("list", 1), ("pattern", 2)}][:n]


class TestWhatIsNotPlayed:
    def test_one_that_the_generator_does_not_make(self):
        assert task_of(Gaps(), GOOD) and task_of(Gaps(), GOOD | {"tier": 1}) is None
        assert why_not(None, frozenset()) == "the generator makes no such task"

    def test_a_task_that_is_held_out_under_any_name(self):
        task = task_of(maker_of("workspace"), GOOD)
        assert why_not(task, frozenset()) == ""
        for other in (replace(task, id="x", prompt="Otherwise."), replace(task, id="x", fingerprint="y")):
            assert why_not(task, identities(other)) == "it is a task outside training"
        assert why_not(task, identities(task_of(maker_of("workspace"), GOOD | {"seed": 8}))) == ""

    def test_one_outside_training_in_any_split_or_the_reserve(self, tmp_path):
        tasks = {split: task_of(maker_of("workspace"), GOOD | {"seed": seed}) for seed, split in enumerate(("train", *OUTSIDE))}
        frame = pd.DataFrame([task.to_record() | {"split": split} for split, task in tasks.items()])
        frame[frame["split"] != "reserve"].to_parquet(tmp_path / "tasks.parquet")
        frame[frame["split"] == "reserve"].to_parquet(tmp_path / "reserve.parquet")
        loop = SelfPlay(load_config("configs/tiny.yaml"), tmp_path, tmp_path / "out", None)
        assert {split for split, task in tasks.items() if why_not(task, loop.kept_apart)} == set(OUTSIDE)

    @pytest.mark.parametrize(("verifier", "why"), [("Lenient", "doing nothing scores 1"), ("Broken", "ZeroDivisionError")])
    def test_one_that_needs_no_work_or_cannot_be_judged(self, verifier, why):
        kind = give(f"plugins.selfplay.tests.test_proposals:{verifier}")
        assert why in why_not(replace(task_of(maker_of("workspace"), GOOD), verifier=kind), frozenset())


class Lenient:
    kind = "plugins.selfplay.tests.test_proposals:Lenient"

    def verify(self, task, state):
        return 1.0, {}


class Broken(Lenient):
    kind = "plugins.selfplay.tests.test_proposals:Broken"

    def verify(self, task, state):
        return 1 / 0, {}
