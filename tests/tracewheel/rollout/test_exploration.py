"""Exploration: forced tokens do not count as sampled, temperatures are recorded, and evaluation never explores."""

import itertools

import pandas as pd
import pytest
import torch

from tracewheel.config import ExplorationConfig, RetrainConfig, RolloutConfig
from tracewheel.core.errors import ConfigError
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.environments.workspace.environment import TOOLS
from tracewheel.evaluation.evaluate import evaluate
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import PolicyWeights, load_base
from tracewheel.rollout.exploration import ForcedCalls, group_temperatures, rollout_temperature
from tracewheel.rollout.rollout import RolloutPlan, rollout, run_episodes

NAMES = [tool["function"]["name"] for tool in TOOLS]


def exploring(**settings):
    return RolloutConfig(exploration=ExplorationConfig(**settings), max_tokens=600)


@pytest.fixture(scope="module")
def sampled(config, base, renderer, tasks):
    """Real episodes under each way of exploring."""

    def run(settings, *, samples=3, seed=5, some=tasks):
        load = PolicyWeights(config.policy).load
        engine = TransformersEngine(load, PolicyRef(base), renderer.end_of_turn_id, Sampling(settings.temperature), 16)
        return run_episodes(engine, renderer, settings, RolloutPlan(some, samples=samples, seed=seed))

    return run


@pytest.fixture(scope="module")
def forced(sampled):
    return sampled(exploring(epsilon=0.5, temperature_spread=0.4))


def turns_of(trajectories):
    return [(trajectory, turn) for trajectory in trajectories for turn in trajectory.turns]


@pytest.mark.parametrize(
    ("temperature", "spread", "samples", "expected"),
    [
        (1.2, 0.0, 3, [1.2, 1.2, 1.2]),
        (1.0, 0.5, 3, [0.5, 1.0, 1.5]),
        (2.0, 0.25, 2, [1.5, 2.5]),
        (1.0, 0.5, 1, [1.0]),
        (1.0, 0.3, 4, [0.7, 0.9, 1.1, 1.3]),
    ],
)
def test_temperatures_spread_evenly_over_a_group(temperature, spread, samples, expected):
    assert group_temperatures(temperature, spread, samples) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("end", "iterations", "expected"),
    [(None, 3, [1.2, 1.2, 1.2]), (0.6, 3, [1.2, 0.9, 0.6]), (1.8, 4, [1.2, 1.4, 1.6, 1.8]), (0.6, 1, [1.2])],
)
def test_the_temperature_is_interpolated_over_iterations(end, iterations, expected):
    config = RetrainConfig.model_validate(
        {
            "name": "t",
            "training": {"iterations": iterations},
            "rollout": {"temperature": 1.2, "exploration": {"temperature_end": end}},
        }
    )
    found = [rollout_temperature(config.rollout, iterations, n) for n in range(1, iterations + 1)]
    assert found == pytest.approx(expected)


def test_epsilon_is_the_share_of_forced_turns_and_tools_are_drawn_evenly():
    heads = [[n] for n in range(5)]
    drawn = [ForcedCalls(0.3, heads, seed).next_head(10) for seed in range(4000)]
    assert sum(map(bool, drawn)) / 4000 == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / 4000) ** 0.5)
    for head in heads:
        assert drawn.count(head) / sum(map(bool, drawn)) == pytest.approx(0.2, abs=4 * (0.16 / 1200) ** 0.5)


def test_a_turn_without_room_changes_no_later_turn():
    free, tight = ForcedCalls(1.0, [[1, 2], [3]], 7), ForcedCalls(1.0, [[1, 2], [3]], 7)
    assert [tight.next_head(0), *(tight.next_head(9) for _ in range(8))][1:] == [free.next_head(9) for _ in range(9)][1:]
    assert all(len(ForcedCalls(1.0, [[1, 2], [3]], seed).next_head(2)) < 2 for seed in range(50))


def test_forced_tokens_are_context(forced, renderer):
    """They have mask 0 and log-probability 0, lie outside the turn's sampled span, and begin its call."""
    heads = {tuple(renderer.call_head(tool)): tool["function"]["name"] for tool in TOOLS}
    begun = [(trajectory, turn) for trajectory, turn in turns_of(forced) if turn["forced"]]
    assert 0.3 < len(begun) / len(turns_of(forced)) < 0.7
    chosen = set()
    for trajectory, turn in begun:
        head = slice(turn["start"] - turn["forced"], turn["start"])
        chosen.add(heads[tuple(trajectory.token_ids[head])])
        assert set(trajectory.action_mask[head]) == {0}
        assert set(trajectory.logprobs[head]) == {0.0}
        assert trajectory.action_mask[turn["start"] : turn["end"]] == [1] * (turn["end"] - turn["start"])
        assert turn["start"] < turn["end"], "the policy says at least one token of its own"
    assert chosen == set(NAMES)
    for trajectory in forced:
        spans = [range(turn["start"], turn["end"]) for turn in trajectory.turns]
        assert [t for t, m in enumerate(trajectory.action_mask) if m] == [t for span in spans for t in span]


def test_a_forced_call_is_executed_and_is_in_the_assistants_message(forced, renderer):
    for trajectory in forced:
        spoken = [message for message in trajectory.messages if message["role"] == "assistant"]
        for message, turn in zip(spoken, trajectory.turns, strict=True):
            said = trajectory.token_ids[turn["start"] - turn["forced"] : turn["end"]]
            text = renderer.decode(said[:-1] if said[-1] == renderer.end_of_turn_id else said)
            assert message == renderer.assistant_message(text, renderer.parse(text), "") | (
                {"tool_calls": message["tool_calls"]} if "tool_calls" in message else {}
            )
            assert turn["calls"] == len(renderer.parse(text).calls)


def test_stored_logprobs_equal_a_full_pass_at_each_episodes_temperature(forced, config, base):
    """Checked for the policy's own tokens, given the forced tokens before them."""
    model = load_base(config.policy, base)
    worst = 0.0
    for trajectory in forced:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([trajectory.token_ids]), use_cache=False).logits[0]
        fresh = torch.log_softmax(logits / trajectory.temperature, dim=-1)
        for t, acted in enumerate(trajectory.action_mask):
            if acted:
                worst = max(worst, abs(trajectory.logprobs[t] - fresh[t - 1, trajectory.token_ids[t]].item()))
    assert worst < 1e-4
    for _, group in itertools.groupby(forced, key=lambda trajectory: trajectory.group):
        assert [trajectory.temperature for trajectory in group] == pytest.approx([0.6, 1.0, 1.4])


def test_the_caps_hold_for_forced_tokens_too(sampled, tasks):
    prompt = max(trajectory.turns[0]["start"] for trajectory in sampled(exploring(), samples=1))
    tight = RolloutConfig(exploration=ExplorationConfig(epsilon=1.0), max_tokens=prompt + 40, max_turn_tokens=4, max_turns=20)
    for trajectory in sampled(tight, samples=2, some=tasks[:4]):
        assert len(trajectory.token_ids) <= tight.max_tokens
        assert all(turn["end"] - turn["start"] + turn["forced"] <= 4 for turn in trajectory.turns)
        assert any(turn["forced"] for turn in trajectory.turns)


def test_an_episodes_exploration_depends_on_its_seed_alone(sampled, forced, tasks):
    settings = exploring(epsilon=0.5, temperature_spread=0.4)
    assert [(t.task_id, t.sample) for t in forced if t.task_id == tasks[2].id] == [(tasks[2].id, n) for n in range(3)]
    alone = sampled(settings, some=[tasks[2]])
    together = [trajectory for trajectory in forced if trajectory.task_id == tasks[2].id]
    assert [t.token_ids for t in alone] == [t.token_ids for t in together]
    assert [t.turns for t in alone] == [t.turns for t in together]
    other = sampled(settings, some=[tasks[2]], seed=6)
    assert [t.token_ids for t in other] != [t.token_ids for t in alone]


def test_only_the_named_tools_are_forced(sampled, tasks, renderer):
    trajectories = sampled(exploring(epsilon=1.0, tools=("read_file",)), some=tasks[:2])
    head = renderer.call_head(next(tool for tool in TOOLS if tool["function"]["name"] == "read_file"))
    begun = [(trajectory, turn) for trajectory, turn in turns_of(trajectories) if turn["forced"]]
    assert begun
    assert all(trajectory.token_ids[turn["start"] - turn["forced"] : turn["start"]] == head for trajectory, turn in begun)
    with pytest.raises(ConfigError, match="none of fly, swim is offered; the tools are finish, list_files"):
        sampled(exploring(epsilon=0.1, tools=("fly", "swim")), some=tasks[:1])


def test_each_request_has_its_temperature(config, base):
    """In one batch, a session at 0.01 is greedy and one at 20 is not."""
    model = load_base(config.policy, base)
    said = {}
    for greedy in (True, False):
        engine = TransformersEngine(lambda _: model, PolicyRef(base), 258, Sampling(greedy=greedy), slots=8)
        for n in range(8):
            engine.submit(Request(n, [70, 80, 90], 6, seed=n, temperature=0.01 if n % 2 else 20.0))
        turns = {}
        while len(turns) < 8:
            turns |= {generation.session: generation.token_ids for generation in engine.step()}
        said[greedy] = turns
    cold, hot = [n for n in range(8) if n % 2], [n for n in range(8) if not n % 2]
    assert [said[False][n] for n in cold] == [said[True][n] for n in cold]
    assert len({tuple(said[False][n]) for n in hot}) == len(hot)


def test_the_stage_counts_forced_turns(config, base, tasks, tmp_path):
    settings = config.rollout.model_copy(update={"exploration": ExplorationConfig(epsilon=0.5)})
    explored = config.model_copy(update={"rollout": settings})
    metrics = rollout(explored, PolicyRef(base), RolloutPlan(tasks[:3], samples=2, seed=1, temperature=0.7), tmp_path)
    table = pd.read_parquet(tmp_path / "trajectories.parquet")
    turns = [turn for text in table["turns"] for turn in pd.io.json.ujson_loads(text)]
    assert metrics["forced_turns"] == sum(turn["forced"] > 0 for turn in turns) > 0
    assert metrics["forced_tokens"] == sum(turn["forced"] for turn in turns)
    assert metrics["generated_tokens"] == sum(turn["end"] - turn["start"] for turn in turns)
    assert 0.0 <= metrics["group_diversity"] <= 1.0
    assert table["temperature"].tolist() == [0.7] * 6


def test_evaluation_never_explores(config, base, tasks, tmp_path):
    settings = {"epsilon": 1.0, "temperature_spread": 0.5, "temperature_end": 3.0}
    wild = config.model_copy(
        update={"rollout": config.rollout.model_copy(update={"exploration": ExplorationConfig(**settings)})}
    )
    for name, profile in (("plain", config), ("wild", wild)):
        evaluate(profile, PolicyRef(base), tasks[:3], tmp_path / name, samples=2, seed=3)
    for mode in ("greedy", "sampled"):
        one, other = ((tmp_path / name / mode / "trajectories.parquet").read_bytes() for name in ("plain", "wild"))
        assert one == other
