"""The rubric's mode `outcome_first`: by hand, and that no failure is ever worth a success."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.config import RubricConfig
from tracewheel.core.types import Trajectory
from tracewheel.environments.workspace.tasks import workspace_task
from tracewheel.scoring.adjustments import MARGIN, Weighed, outcome_first, verifier_marks
from tracewheel.scoring.rubric import Rubric
from tracewheel.scoring.verifiers import VERIFIERS, Verdict

TASK = workspace_task(
    prompt="Move it.",
    initial_state={"folders": ["", "/a", "/b"], "files": {"/a/x.log": "1"}},
    goal={"selector": {"kind": "pattern", "value": ".log"}, "source": "/a", "destination": "/b", "manifest": "/b/m.json"},
)


class Given:
    """Gives what the final state says, by name."""

    name = ""

    def verify(self, task, final_state):
        return final_state[self.name], {"part": final_state[self.name]}


def named(name):
    return type(name.title(), (Given,), {"kind": name, "name": name})


@pytest.fixture(autouse=True, scope="module")
def verifiers():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("solved", "also", "polite", "brief"):
            patch.setitem(VERIFIERS, name, named(name))
        yield


def scored(marks, process=0.0, malformed=0, tokens=1, **config):
    turns = [{"start": 0, "end": 1, "calls": 1, "malformed": malformed, "policy_version": 0, "reward": process}]
    row = Trajectory("t", TASK.id, "g", 0, 0, 0, 1.0, [1] * tokens, [1] * tokens, [-0.1] * tokens, turns, marks, [], "finished")
    return Rubric(RubricConfig.model_validate({"mode": "outcome_first", **config}), [TASK]).score(TASK, row)


TERMS = [
    {"kind": "solved", "weight": 2},
    {"kind": "also", "weight": 1},
    {"kind": "polite", "weight": 1, "role": "shaping", "cap": 0.5},
    {"kind": "brief", "weight": 1, "role": "shaping"},
]

OBJECTIVE = {"kind": "part", "name": "o", "part": "success"}


def test_a_success_and_a_failure_by_hand():
    """O = 3/5. Success: 0.6 + 0.4 x (0.5 + 0.8) / 2. Failure: 0.6 x (0.6 x (2 x 1 + 0.4) / 3 + 0.4 x 0.65)."""
    won = scored({"solved": 1.0, "also": 1.0, "polite": 1.0, "brief": 0.8}, verifiers=TERMS)
    lost = scored({"solved": 1.0, "also": 0.4, "polite": 1.0, "brief": 0.8}, verifiers=TERMS)
    assert (won.total, lost.total) == pytest.approx((0.6 + 0.4 * 0.65, 0.6 * (0.6 * 0.8 + 0.4 * 0.65)))
    assert (won.breakdown["success"], lost.breakdown["success"]) == (1.0, 0.0)
    assert lost.breakdown == pytest.approx(
        {
            "solved": 1.0, "solved.part": 1.0, "also": 0.4, "also.part": 0.4, "polite": 1.0, "polite.part": 1.0,
            "capped.polite": 0.5, "brief": 0.8, "brief.part": 0.8, "success": 0.0, "outcome": 0.8, "shaping": 0.65,
            "process_reward": 0.0, "held_back": 0.0,
        }
    )  # fmt: skip
    assert {name.partition(".")[0] for name in verifier_marks(lost.breakdown)} == {"solved", "also", "polite", "brief"}


def test_only_full_completion_gets_the_full_reward():
    terms = [{"kind": "solved"}, {"kind": "brief", "role": "shaping"}]
    assert scored({"solved": 1.0, "brief": 1.0}, verifiers=terms).total == 1.0
    assert scored({"solved": 1.0, "brief": 0.9}, verifiers=terms).total == pytest.approx(0.95)
    assert scored({"solved": 0.9999999, "brief": 1.0}, verifiers=terms).total == pytest.approx(0.5 * (1 - MARGIN))
    assert scored({"solved": 0.0, "brief": 1.0}, verifiers=terms).total == pytest.approx(0.25)


def test_penalties_and_process_rewards_stay_on_their_side():
    terms = [{"kind": "solved"}, {"kind": "brief", "role": "shaping"}]
    rich = scored({"solved": 0.0, "brief": 1.0}, process=7.0, verifiers=terms)
    assert rich.total == pytest.approx(0.495)
    assert rich.breakdown["held_back"] == pytest.approx(7.25 - 0.495)
    poor = scored({"solved": 1.0, "brief": 1.0}, malformed=5, malformed_penalty=0.3, verifiers=terms)
    assert (poor.total, poor.breakdown["held_back"]) == pytest.approx((0.5, -0.5))


share = st.floats(0.0, 1.0)
rubrics = st.fixed_dictionaries(
    {
        "weights": st.lists(st.floats(0.01, 10.0), min_size=4, max_size=4),
        "cap": st.one_of(st.none(), st.floats(0.01, 1.0)),
        "malformed_penalty": share,
        "flawed_penalty": share,
        "process_weight": st.floats(0.0, 5.0),
        "overlong": st.one_of(st.none(), st.just({"max_tokens": 4, "cache": 2, "weight": 3.0})),
    }
)
episodes = st.fixed_dictionaries(
    {
        "polite": share,
        "brief": share,
        "process": st.floats(-10, 10),
        "malformed": st.integers(0, 9),
        "tokens": st.integers(1, 9),
    }
)
nearly = st.one_of(share, st.just(math.nextafter(1.0, 0.0)))


@given(rubrics, episodes, episodes, nearly, nearly)
def test_every_success_is_worth_more_than_every_failure(rubric, success, failure, solved, also):
    first, second, third, fourth = rubric.pop("weights")
    shaping = min(1.0, (first + second) / (third + fourth))  # at most as heavy as the outcome
    terms = [
        {"kind": "solved", "weight": first},
        {"kind": "also", "weight": second},
        {"kind": "polite", "weight": third * shaping * 0.999, "role": "shaping", "cap": rubric.pop("cap")},
        {"kind": "brief", "weight": fourth * shaping * 0.999, "role": "shaping"},
    ]

    def total(given, solved, also):
        given = dict(given)
        facts = {name: given.pop(name) for name in ("process", "malformed", "tokens")}
        return scored({"solved": solved, "also": also, **given}, **facts, verifiers=terms, **rubric)

    won, lost = total(success, 1.0, 1.0), total(failure, solved, also if solved < 1.0 or also < 1.0 else 0.5)
    assert (won.breakdown["success"], lost.breakdown["success"]) == (1.0, 0.0)
    assert 0.5 <= won.total <= 1.0 and won.total > lost.total


@given(st.lists(st.tuples(share, st.floats(0.01, 10.0), st.booleans()), min_size=1, max_size=6), share, st.data())
def test_the_reward_never_falls_when_a_part_rises(parts, higher, data):
    terms = [Weighed(1.0, 1.0, False), *(Weighed(*part) for part in parts)]
    place = data.draw(st.integers(0, len(terms) - 1))
    raised = [*terms[:place], terms[place]._replace(value=max(terms[place].value, higher)), *terms[place + 1 :]]
    assert outcome_first(raised).total >= outcome_first(terms).total - 1e-12


@pytest.mark.parametrize("mark", [math.nan, math.inf, -0.1, None])
def test_a_part_that_is_not_finite_or_missing_masks_the_episode(mark):
    marks = {"solved": 1.0, "brief": mark} if mark is not None else {"solved": 1.0}
    found = scored(marks, verifiers=[{"kind": "solved"}, {"kind": "brief", "role": "shaping"}])
    assert (found.status, found.total, found.breakdown) == ("unscored", None, {})


def test_terms_for_other_environments_do_not_apply():
    terms = [{"kind": "solved"}, {"kind": "brief", "role": "shaping", "only": ["order_desk"]}]
    assert scored({"solved": 1.0}, verifiers=terms).total == 1.0
    here = [*terms, {"kind": "polite", "role": "shaping", "only": ["workspace"]}]
    assert scored({"solved": 1.0, "polite": 0.5}, verifiers=here).total == pytest.approx(0.75)
    none = scored({"solved": 1.0}, verifiers=[{"kind": "solved", "only": ["maths"]}])
    assert none.status == "unscored" and "no outcome term is for environment 'workspace', family 'pattern'" in none.detail
    elsewhere = [{"kind": "solved", "only": ["x"]}, {"kind": "also"}]
    first = scored({"solved": 0.0, "also": 1.0}, mode="weighted", verifiers=elsewhere)
    assert (first.total, first.breakdown["success"]) == (1.0, 1.0)


def test_a_cap_in_the_weighted_mode():
    terms = [{"kind": "solved"}, {"kind": "brief", "cap": 0.25}]
    assert scored({"solved": 1.0, "brief": 1.0}, mode="weighted", verifiers=terms).total == pytest.approx(0.625)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"verifiers": [{"kind": "a"}, {"kind": "b", "weight": 2, "role": "shaping"}]}, "verifiers.weight: the outcome terms"),
        ({"verifiers": [{"kind": "a"}, {"kind": "b", "weight": 2, "role": "shaping", "only": ["x"]}]}, "for 'x'"),
        ({"verifiers": [{"kind": "a", "cap": 0.5}]}, "verifiers.0.cap"),
        (
            {"verifiers": [{"kind": "a"}], "objectives": [OBJECTIVE]},
            "objectives: they replace",
        ),
        ({"mode": "weighted", "verifiers": [{"kind": "b", "role": "shaping"}, {"kind": "a"}]}, "verifiers.0.role"),
        ({"verifiers": [{"kind": "a", "role": "shaping"}]}, "the outcome terms weigh 0"),
    ],
)
def test_a_rubric_that_makes_no_sense_names_the_field(config, said):
    with pytest.raises(ValueError, match=said):
        RubricConfig.model_validate({"mode": "outcome_first", **config})


def test_turn_rewards_follow_the_outcome_alone():
    """A shaping verifier of whole episodes knows no progress of a state; it does not stand in the way."""

    class Words:
        kind = "words"

        def verify_episode(self, task, episode):
            return Verdict(1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(VERIFIERS, "words", Words)
        rubric = Rubric(
            RubricConfig.model_validate(
                {"mode": "outcome_first", "verifiers": [{}, {"kind": "words", "role": "shaping"}], "turn_rewards": True}
            ),
            [TASK],
        )
        state = TASK.initial_state
        assert rubric._potential(TASK, state) == pytest.approx(0.0)
