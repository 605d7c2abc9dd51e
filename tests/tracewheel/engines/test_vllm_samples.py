"""vLLM's own sampler (`draws: engine`): its log-probabilities are the trainer's, and what needs our draws is refused."""

import pytest
from pydantic import ValidationError

from tracewheel.config import EngineSections, RetrainConfig
from tracewheel.core.errors import AdapterMismatchError
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.draws import Draws
from tracewheel.engines.vllm_base import TurnRequest
from tracewheel.engines.vllm_server import command_line
from tracewheel.engines.vllm_settings import VllmSettings, environment
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

VLLM = [pytest.param(name, marks=pytest.mark.vllm) for name in ("vllm", "vllm_server")]
ENGINE = {"draws": "engine"}


def settings(base, **policy):
    profile = {"name": "test", "policy": {"base": base, **policy}, "rollout": {"engine": {"kind": "vllm", **ENGINE}}}
    return VllmSettings.of(EngineSections.of(RetrainConfig.model_validate(profile)))


def test_vllm_may_schedule_ahead_and_choose_its_runner(base):
    found = settings(base)
    assert {"async_scheduling", "logits_processors"}.isdisjoint(found.arguments(base))
    assert "VLLM_USE_V2_MODEL_RUNNER" not in environment(found, in_process=True)
    assert "--logprobs-mode=processed_logprobs" in command_line(found.arguments(base))


def test_it_is_not_called_deterministic(base):
    with pytest.raises(ValidationError, match="rollout.engine.draws is 'engine', and that vLLM draws"):
        settings(base, deterministic=True)


def test_each_turn_has_a_seed_of_its_own():
    """Else two servers that began alike would sample a group's episodes alike."""
    turns = [TurnRequest([1], Draws(seed, skip), 5) for seed in (1, 2) for skip in (0, 7)]
    assert len({turn.parameters("engine")["seed"] for turn in turns}) == 4
    assert turns[0].parameters("engine") == TurnRequest([1], Draws(1), 5).parameters("engine")
    assert TurnRequest([1], Draws(greedy=True), 5).parameters("engine")["temperature"] == 0.0


@pytest.mark.parametrize("kind", VLLM)
def test_its_logprobs_are_the_trainers(kind, kind_of, versions, some_tasks, tmp_path):
    each = kind_of(kind)
    engine, renderer = each.make(versions.policy(1), engine=ENGINE, temperature=1.2)
    assert not engine.CONSTRAINS
    config = each.profile(engine=ENGINE, temperature=1.2).rollout
    episodes = run_episodes(engine, renderer, config, RolloutPlan(some_tasks, samples=4, seed=1))
    gaps = []
    for episode in episodes:
        fresh = versions.logprobs(1, episode.token_ids, 1.2)
        gaps += [abs(episode.logprobs[t] - fresh[t - 1]) for t, acted in enumerate(episode.action_mask) if acted]
    print(f"{kind}: {len(gaps)} tokens, mean {sum(gaps) / len(gaps):.2e}, most {max(gaps):.2e}")
    assert len(gaps) > 500 and max(gaps) < 1e-4
    groups = [{tuple(e.token_ids) for e in episodes if e.task_id == task.id} for task in some_tasks]
    assert sum(map(len, groups)) > 2 * len(groups), "a group's episodes differ"

    # Canaries are scored as prompts are.
    engine.update_weights(versions.policy(2))
    wrong = PolicyRef(versions.policy(3).base, str(tmp_path / "adapter"), 3)
    import shutil

    shutil.copytree(versions.policy(3).adapter, wrong.adapter)
    shutil.copyfile(f"{versions.policy(1).adapter}/adapter_model.safetensors", f"{wrong.adapter}/adapter_model.safetensors")
    with pytest.raises(AdapterMismatchError, match="looks swapped"):
        engine.update_weights(wrong)

    # Greedy turns are those of any engine, and a turn goes on under new weights.
    transformers, greedy = kind_of("transformers"), Sampling(greedy=True)
    told = transformers.engine(versions.policy(2), greedy, stop=renderer.end_of_turn_ids)
    found = []
    for other, made in ((transformers, told), (each, engine)):
        for n, ids in each.openings(6).items():
            made.submit(Request(100 + n, list(ids), 30, seed=n, greedy=True))
        found.append({n: turn.token_ids for n, turn in other.finish(made, 6).items()})
    assert sum(found[0][n] == found[1][n] for n in found[0]) >= 5


@pytest.mark.vllm
def test_a_turn_goes_on_under_new_weights(kind_of, versions):
    each = kind_of("vllm")
    engine, _ = each.make(versions.policy(1), engine=ENGINE, temperature=2.0)
    openings = each.openings(8)
    each.submit(engine, openings, budget=40)
    turns = each.advance(engine)
    engine.update_weights(versions.policy(2))
    turns |= each.finish(engine, 8 - len(turns))
    assert any(set(turn.versions) == {1, 2} for turn in turns.values())
    assert all(versions.worst_difference(openings[n], turn) < 1e-4 for n, turn in turns.items())
