"""A proposal is one call in the generator's language; what it is worth, by hand; what is refused before it is played."""

import json

import pytest

from tracewheel import ConfigError, DataError, Task, kind_text, make_environment, make_verifier
from tracewheel.core.kind_table import give
from tracewheel_selfplay.learnable import why_not, worth_of
from tracewheel_selfplay.proposals import maker_of, proposal_tasks, task_of

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
    with pytest.raises(ConfigError, match="generates no tasks"):
        maker_of("examples.form_environment:Form" if give("examples.form_environment:Form") else "")


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


class TestWhatIsNotPlayed:
    def test_a_task_that_is_held_out(self):
        maker = maker_of("workspace")
        assert why_not(maker, GOOD, frozenset()) == ""
        assert "outside training" in why_not(maker, GOOD, frozenset([task_of(maker, GOOD).fingerprint]))

    def test_one_that_begins_otherwise_each_time_or_needs_no_work(self, monkeypatch):
        maker = maker_of("workspace")
        counts = iter(range(9))
        reset = type(maker).reset
        monkeypatch.setattr(type(maker), "snapshot", lambda self: {"files": {}, "n": next(counts)})
        assert "otherwise each time" in why_not(maker, GOOD, frozenset())
        monkeypatch.undo()
        assert type(maker).reset is reset
        monkeypatch.setattr("tracewheel_selfplay.learnable.make_verifier", lambda spec: Lenient())
        assert "doing nothing" in why_not(maker, GOOD, frozenset())
        monkeypatch.setattr("tracewheel_selfplay.learnable.make_verifier", lambda spec: Broken())
        assert "ZeroDivisionError" in why_not(maker, GOOD, frozenset())


class Lenient:
    kind = "lenient"

    def verify(self, task, state):
        return 1.0, {}


class Broken(Lenient):
    def verify(self, task, state):
        return 1 / 0, {}
