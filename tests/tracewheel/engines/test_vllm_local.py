"""vLLM in process against the trainer's own model: each token's log-probability, by the version that sampled it."""

import gc
import os
import random
import shutil

import pytest
import torch

from tracewheel.config import PolicyConfig, RetrainConfig
from tracewheel.core.errors import AdapterMismatchError, ConfigError
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.making import make_engine
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.adapters import PolicyRef, write_full_model
from tracewheel.policy.loading import load_base
from tracewheel.policy.probe import PROBE
from tracewheel.rollout.rollout import run_episodes

pytestmark = pytest.mark.vllm

SELDOM = 431  # the token that ends a turn here, which hot sampling draws now and then
HOT = Sampling(temperature=2.0)


@pytest.fixture(scope="module")
def profile(config):
    """The tests' profile on vLLM, with so little room that conversations are cut and blocks are used again."""

    def of(**rollout):
        engine = {"kind": "vllm", "slots": 64, "kv_cache_gib": 0.25}
        values = config.model_dump() | {"rollout": {"engine": engine, **rollout}}
        return RetrainConfig.model_validate(values)

    return of


@pytest.fixture(scope="module")
def engine_of(profile):
    """An engine over the process's one core: `engine_of(policy, sampling)`."""
    from tracewheel.engines.vllm_core import shared_core
    from tracewheel.engines.vllm_local import VllmEngine
    from tracewheel.engines.vllm_settings import VllmSettings

    settings = VllmSettings.of(profile())
    return lambda policy, sampling=HOT: VllmEngine(lambda base: shared_core(base, settings), policy, SELDOM, sampling)


@pytest.fixture(scope="module")
def core(engine_of, base):
    return engine_of(PolicyRef(base))._core


@pytest.fixture(scope="module")
def some_tasks():
    rng = random.Random(8)
    return [make_task(family, tier, rng) for family in FAMILIES for tier in (1, 2, 3, 4)]


def prompts(count, seed=4):
    rng = random.Random(seed)
    return {n: [rng.randrange(400) for _ in range(20 + rng.randrange(40))] for n in range(count)}


def finish(engine, count):
    """The turns of so many sessions, by session."""
    turns = {}
    while len(turns) < count:
        turns |= {generation.session: generation for generation in engine.step()}
    return turns


def speak(engine, openings, budget=40, policies=None):
    for n, ids in openings.items():
        engine.submit(Request(n, list(ids), budget, seed=n, policy=(policies or {}).get(n)))


def worst_difference(versions, opening, generation, temperature):
    """The largest difference of a token's log-probability from that of the version which sampled it."""
    ids = opening + generation.token_ids
    fresh = {version: versions.logprobs(version, ids, temperature) for version in set(generation.versions)}
    pairs = zip(generation.logprobs, generation.versions, strict=True)
    return max(abs(found - fresh[version][len(opening) - 1 + t]) for t, (found, version) in enumerate(pairs))


@pytest.mark.parametrize(("temperature", "top_p"), [(1.2, 1.0), (0.7, 0.9)])
def test_stored_logprobs_are_those_of_the_trainer(profile, versions, some_tasks, temperature, top_p):
    policy = versions.policy(1)
    engine, renderer = make_engine(profile(temperature=temperature, top_p=top_p), policy, greedy=False, slots=64)
    settings = profile(temperature=temperature, top_p=top_p).rollout
    trajectories = run_episodes(engine, renderer, settings, some_tasks, samples=4, seed=1)
    several_turns = [trajectory for trajectory in trajectories if len(trajectory.turns) > 1]
    assert len(several_turns) > 20
    assert {version for trajectory in several_turns for version in trajectory.token_versions()} == {-1, 1}
    worst = 0.0
    for trajectory in several_turns:
        fresh = versions.logprobs(1, trajectory.token_ids, temperature)
        for t, acted in enumerate(trajectory.action_mask):
            if acted:
                worst = max(worst, abs(trajectory.logprobs[t] - fresh[t - 1]))
    assert worst < 1e-4


@pytest.mark.parametrize("greedy", [True, False])
def test_it_says_what_the_transformers_engine_says(profile, config, versions, some_tasks, greedy):
    """The random numbers are the session's, and are used in the same way."""
    said = []
    for each in (profile(), config):
        engine, renderer = make_engine(each, versions.policy(1), greedy=greedy, slots=64)
        trajectories = run_episodes(engine, renderer, config.rollout, some_tasks, samples=2, seed=3)
        said.append([trajectory.token_ids for trajectory in trajectories])
    same = sum(one == other for one, other in zip(*said, strict=True))
    assert same >= 0.95 * len(said[0])  # rounding may tip a token


def test_turns_end_by_the_stop_token_or_the_budget(profile, versions, renderer):
    engine, _ = make_engine(profile(temperature=2.5), versions.policy(1), greedy=False, slots=64)
    speak(engine, prompts(48), budget=30)
    turns = finish(engine, 48)
    assert {turn.ended_by for turn in turns.values()} == {"stop", "length"}
    for turn in turns.values():
        stop = renderer.end_of_turn_id
        assert stop not in turn.token_ids[:-1]
        assert (turn.token_ids[-1] == stop) == (turn.ended_by == "stop")
        assert turn.ended_by == "stop" or len(turn.token_ids) == 30
        assert len(turn.token_ids) == len(turn.logprobs) == len(turn.versions)
    assert engine.idle


def test_twenty_versions_leave_no_memory_behind_and_none_is_stale(engine_of, core, versions):
    """Each version speaks right after the swap; the process's memory is looked at after the first and after the last."""
    psutil = pytest.importorskip("psutil")
    process = psutil.Process(os.getpid())
    policies = [versions.policy(version) for version in range(1, 24)]
    engine, openings, resident, memory = engine_of(policies[0]), prompts(16), [], []
    for swap, policy in enumerate(policies):
        engine.update_weights(policy)
        speak(engine, {100 * swap + n: ids for n, ids in openings.items()}, budget=24)
        for n, turn in finish(engine, len(openings)).items():
            opening = openings[n % 100]
            assert set(turn.versions) == {policy.version}
            if n % 100 < 4:
                assert worst_difference(versions, opening, turn, HOT.temperature) < 1e-4
                other = versions.logprobs(policy.version + 1, opening + turn.token_ids, HOT.temperature)
                told_apart = max(abs(a - b) for a, b in zip(turn.logprobs, other[len(opening) - 1 :], strict=True))
                assert told_apart > 1e-2
            engine.close(n)
        gc.collect()
        resident.append(len(core.resident))
        memory.append(process.memory_info().rss)
    assert max(resident) <= 3
    assert memory[20] < 1.02 * memory[0]
    assert memory[22] < 1.02 * memory[2]


def test_champion_and_challenger_together_say_what_each_says_alone(engine_of, versions):
    champion, challenger = versions.policy(1), versions.policy(2)
    openings, greedy = prompts(24), Sampling(greedy=True)
    alone = {}
    for policy, half in ((champion, 0), (challenger, 1)):
        engine = engine_of(policy, greedy)
        speak(engine, {n: ids for n, ids in openings.items() if n % 2 == half})
        alone |= finish(engine, 12)
    engine = engine_of(champion, greedy)
    speak(engine, openings, policies={n: challenger for n in openings if n % 2})
    together = finish(engine, 24)
    assert {n: turn.token_ids for n, turn in together.items()} == {n: turn.token_ids for n, turn in alone.items()}
    assert {n: set(turn.versions) for n, turn in together.items()} == {n: {n % 2 + 1} for n in openings}


def test_the_base_beside_an_adapter_says_what_it_says_alone(engine_of, base, versions):
    """Whatever adapters the engine holds."""
    bare, openings, greedy = PolicyRef(base), prompts(12), Sampling(greedy=True)
    for version in (1, 2, 3, 4):
        engine_of(versions.policy(version))
    engine = engine_of(bare, greedy)
    speak(engine, openings)
    alone = finish(engine, 12)
    engine = engine_of(versions.policy(4), greedy)
    speak(engine, openings, policies={n: bare for n in openings if n % 2})
    together = finish(engine, 12)
    assert all(together[n].token_ids == alone[n].token_ids for n in openings if n % 2)
    assert any(together[n].token_ids != alone[n].token_ids for n in openings if n % 2 == 0)


def test_new_weights_in_the_middle_of_a_turn(engine_of, versions):
    """Each token's log-probability is that of the version it carries, which never falls; others go on as they were."""
    engine, openings = engine_of(versions.policy(1)), prompts(16)
    own = {n: versions.policy(9) for n in openings if n % 4 == 3}
    speak(engine, {n: openings[n] for n in own}, budget=60, policies=own)
    speak(engine, {n: ids for n, ids in openings.items() if n not in own}, budget=60)
    turns = {}
    for version in (2, 3):
        for _ in range(15):
            turns |= {generation.session: generation for generation in engine.step()}
        engine.update_weights(versions.policy(version))
    turns |= finish(engine, len(openings) - len(turns))
    assert engine.policy_version == 3
    assert sum(set(turn.versions) == {1, 2, 3} for turn in turns.values()) >= 8
    for n, turn in turns.items():
        assert set(turn.versions) <= ({9} if n in own else {1, 2, 3})
        assert turn.versions == sorted(turn.versions)
        assert len(turn.token_ids) == len(turn.versions) == (60 if turn.ended_by == "length" else len(turn.logprobs))
        assert worst_difference(versions, openings[n], turn, HOT.temperature) < 1e-4


def test_an_interruption_changes_no_random_number(engine_of, versions):
    """Taken back and gone on with under the same weights, a turn is the one that nobody interrupted."""
    same = PolicyRef(versions.policy(1).base, versions.policy(1).adapter, 8)
    said = []
    for interrupted in (False, True):
        engine, openings = engine_of(versions.policy(1)), prompts(8)
        speak(engine, openings, budget=50)
        turns = {}
        for _ in range(20):
            turns |= {generation.session: generation for generation in engine.step()}
        assert len(turns) < 4
        if interrupted:
            engine.update_weights(same)
        turns |= finish(engine, 8 - len(turns))
        said.append({n: turn.token_ids for n, turn in turns.items()})
    assert said[0] == said[1]


def test_a_session_that_is_closed_in_the_middle_says_no_more(engine_of, versions):
    engine, openings = engine_of(versions.policy(1)), prompts(4)
    speak(engine, openings)
    assert not engine.step()
    engine.close(2)
    assert sorted(finish(engine, 3)) == [0, 1, 3]
    assert engine.idle


def test_exchanged_files_are_noticed(engine_of, versions, tmp_path):
    one, other = versions.policy(1), versions.policy(2)
    folder = tmp_path / "adapter"
    shutil.copytree(one.adapter, folder)
    shutil.copyfile(f"{other.adapter}/adapter_model.safetensors", folder / "adapter_model.safetensors")
    engine = engine_of(one)
    with pytest.raises(AdapterMismatchError, match="does not serve the weights"):
        engine.update_weights(PolicyRef(one.base, str(folder), 5))
    assert engine.policy_version == 1
    speak(engine, prompts(2))
    assert worst_difference(versions, prompts(2)[0], finish(engine, 2)[0], HOT.temperature) < 1e-4
    (folder / PROBE).unlink()
    engine.update_weights(PolicyRef(one.base, str(folder), 5))  # nothing to compare with
    assert engine.policy_version == 5


def test_an_adapter_that_changes_while_it_is_served_is_refused(engine_of, core, versions, tmp_path):
    """When it was evicted and is to come back, it is another."""
    folder = tmp_path / "adapter"
    shutil.copytree(versions.policy(1).adapter, folder)
    engine = engine_of(PolicyRef(versions.policy(1).base, str(folder), 1))
    for version in range(2, 7):
        engine_of(versions.policy(version))
    shutil.copyfile(f"{versions.policy(2).adapter}/adapter_model.safetensors", folder / "adapter_model.safetensors")
    with pytest.raises(AdapterMismatchError, match="have changed since"):
        speak(engine, prompts(1))


def test_more_adapters_at_once_than_there_is_room_for(engine_of, versions):
    engine = engine_of(versions.policy(1), Sampling(greedy=True))
    speak(engine, prompts(1), budget=300)
    with pytest.raises(ConfigError, match="max_loras"):
        for n in range(1, 6):
            engine.submit(Request(n, [1, 2, 3], 300, policy=versions.policy(n + 1)))
    for n in list(engine._sessions):
        engine.close(n)


def test_a_policy_with_all_weights_trained_gets_a_core_of_its_own(engine_of, base, versions, tmp_path):
    model = load_base(PolicyConfig(), base)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    from tracewheel.policy.probe import write_probe

    write_full_model(model, tmp_path / "model", base, version=4)
    write_probe(model, tmp_path / "model")
    whole = PolicyRef(str(tmp_path / "model"), None, 4)
    engine, openings = engine_of(versions.policy(1)), prompts(4)
    speak(engine, openings, budget=40)
    turns = {}
    for _ in range(10):
        turns |= {generation.session: generation for generation in engine.step()}
    engine.update_weights(whole)
    turns |= finish(engine, 4 - len(turns))
    assert sum(set(turn.versions) == {1, 4} for turn in turns.values()) >= 2
    for n, turn in turns.items():
        ids = openings[n] + turn.token_ids
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, :-1] / HOT.temperature
        fresh = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])[len(openings[n]) - 1 :, 0]
        for t, version in enumerate(turn.versions):
            assert version == 1 or abs(turn.logprobs[t] - fresh[t].item()) < 1e-4
