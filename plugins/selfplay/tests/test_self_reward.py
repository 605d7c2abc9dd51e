"""What a guard objects to is the policy that played the round: the loop ends with the one before it."""

import pytest

from tracewheel import Score, Task, Trajectory, load_config
from tracewheel_selfplay import self_reward as module
from tracewheel_selfplay.guards import Limits, Round


@pytest.fixture
def loop(monkeypatch, tmp_path):
    """The loop with rounds that are given, and no policy: `ends(agreements)` is its result, and who played each round."""

    class Sampler:
        def select(self, n, iteration):
            return ["t"]

    def ends(agreements, limits):
        played, found = [], iter(Round({}, 0.7, agree, 100, 50.0, 1.0) for agree in agreements)
        monkeypatch.setattr(module, "make_sampler", lambda *_: Sampler())
        monkeypatch.setattr(module, "load_tasks", lambda *_: [Task("t", "workspace", "f", 1, "p", {}, {}, "v", "f")])
        monkeypatch.setattr(module, "play", lambda config, state, *_: played.append(state))
        monkeypatch.setattr(module, "mark", lambda *_: None)
        monkeypatch.setattr(module, "of_tasks", lambda *_: None)
        monkeypatch.setattr(module, "learn", lambda *_: {})
        monkeypatch.setattr(module, "round_of", lambda *_: next(found))
        config = load_config("configs/tiny.yaml", [f"training.iterations={len(agreements)}"])
        result = module.self_reward(config, config, tmp_path, tmp_path / "start", tmp_path, limits=limits)
        return result, [state.relative_to(tmp_path).as_posix() for state in played]

    return ends


@pytest.mark.parametrize(
    ("agreements", "kept"),
    [([20], "start"), ([90, 20, 90], "start"), ([90, 90, 20], "001/update"), ([90, 90, 90], "003/update")],
)
def test_a_stopped_loop_keeps_the_last_policy_that_passed(loop, agreements, kept):
    result, played = loop(agreements, Limits())
    assert result["state"].endswith(kept) and bool(result["stopped"]) is (20 in agreements)
    assert played == ["start", "001/update", "002/update"][: len(result["rounds"])]
    assert kept not in played[-1:] or agreements == [20]


def test_without_guards_it_goes_on(loop):
    result, played = loop([90, 20, 20], None)
    assert result["stopped"] == "" and len(played) == 3 and result["state"].endswith("003/update")


def test_the_figures_of_a_round_by_hand(monkeypatch):
    """Two tasks of three; the majority of `a` is right twice of three, that of `b` is divided and has no score."""

    def trajectory(name, task, tokens):
        return Trajectory(name, task, task, 0, 0, 0, 1.0, [1] * tokens, [1] * tokens, [0.0] * tokens, [], {}, [], "finished")

    def score(name, task, total, answer="", **breakdown):
        status = "unscored" if total is None else "scored"
        return Score(name, task, task, status, total, breakdown, answer=answer)

    own = [
        score(f"a{n}", "a", float(n < 2), f"end{n < 2}", success=float(n < 2), **{"majority.share": 2 / 3}) for n in range(3)
    ]
    own += [score(f"b{n}", "b", None) for n in range(3)]
    true = [score(f"{task}{n}", task, float(n < 1), success=float(n < 1)) for task in "ab" for n in range(3)]
    monkeypatch.setattr(module, "trajectories_of", lambda _: [trajectory(f"{t}{n}", t, 4 + n) for t in "ab" for n in range(3)])
    monkeypatch.setattr(module, "read_scores", {"own": own, "true": true}.get)
    found = module.round_of("played", "own", "true", 0.5)
    assert found.majorities == {"a": "endTrue"} and found.share == pytest.approx(2 / 3)
    assert (found.agree, found.labelled, found.length, found.true_success) == (2, 3, 5.0, pytest.approx(1 / 3))
