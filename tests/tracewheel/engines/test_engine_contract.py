"""What every engine must do, against the trainer's own model: transformers, vLLM in process, and vLLM's server."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tracewheel.config import PolicyConfig
from tracewheel.core.errors import AdapterMismatchError
from tracewheel.engines.base import Sampling
from tracewheel.policy.adapters import PolicyRef, write_adapter, write_full_model
from tracewheel.policy.loading import load_base
from tracewheel.policy.probe import PROBE, write_probe
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

VLLM = [pytest.param(name, marks=pytest.mark.vllm) for name in ("vllm", "vllm_server")]
GREEDY = Sampling(greedy=True)

several_policies = pytest.mark.parametrize("kind", VLLM, indirect=True)
in_this_process = pytest.mark.parametrize("kind", ["transformers", VLLM[0]], indirect=True)


@pytest.fixture(scope="module", params=["transformers", *VLLM])
def kind(request, kind_of):
    return kind_of(request.param)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.2, 1.0), (0.7, 0.9)])
def test_logprobs_of_rollouts_are_those_of_the_trainer(kind, versions, some_tasks, temperature, top_p):
    policy = versions.policy(1)
    engine, renderer = kind.make(policy, temperature=temperature, top_p=top_p)
    settings = kind.profile(temperature=temperature, top_p=top_p).rollout
    trajectories = run_episodes(engine, renderer, settings, RolloutPlan(some_tasks, samples=4, seed=1))
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
def test_tokens_are_those_of_the_transformers_engine(kind, kind_of, versions, some_tasks, greedy):
    """Random numbers belong to the session: neither the engine nor its batches change their use."""
    sampled = []
    for each, slots in ((kind_of("transformers"), 64), (kind, 5)):
        engine, renderer = each.make(versions.policy(1), greedy=greedy, slots=slots)
        trajectories = run_episodes(engine, renderer, each.profile().rollout, RolloutPlan(some_tasks, samples=2, seed=3))
        sampled.append([trajectory.token_ids for trajectory in trajectories])
    same = sum(one == other for one, other in zip(*sampled, strict=True))
    assert same >= 0.95 * len(sampled[0])  # rounding may tip a token


def test_greedy_sessions_among_sampled_ones(kind, versions, some_tasks):
    """As ReMax plays them: they are greedy, and the others stay as they were."""
    found = []
    for greedy, plan in (
        (False, RolloutPlan(some_tasks, samples=2, seed=3, greedy_baseline=True)),
        (False, RolloutPlan(some_tasks, samples=2, seed=3)),
        (True, RolloutPlan(some_tasks, samples=1, seed=9, greedy=True)),
    ):
        engine, renderer = kind.make(versions.policy(1), greedy=greedy)
        found.append([each.token_ids for each in run_episodes(engine, renderer, kind.profile().rollout, plan)])
    mixed, sampled, greedy = found
    assert len(mixed) == len(sampled) + len(greedy)
    same = sum(one == other for one, other in zip(mixed, sampled + greedy, strict=True))
    assert same >= 0.95 * len(mixed)  # rounding may tip a token


def test_turns_end_by_the_stop_token_or_the_budget(kind, versions, renderer):
    engine, _ = kind.make(versions.policy(1), temperature=2.5)
    stop = renderer.end_of_turn_id
    kind.submit(engine, kind.openings(48), budget=30)
    turns = kind.finish(engine, 48)
    assert {turn.ended_by for turn in turns.values()} == {"stop", "length"}
    for turn in turns.values():
        assert stop not in turn.token_ids[:-1]
        assert (turn.token_ids[-1] == stop) == (turn.ended_by == "stop")
        assert turn.ended_by == "stop" or len(turn.token_ids) == 30
        assert len(turn.token_ids) == len(turn.logprobs) == len(turn.versions)
    assert engine.idle


def test_a_turn_ends_with_any_of_several_tokens(kind, versions):
    stops = frozenset(range(100, 300, 2))
    engine = kind.engine(versions.policy(1), Sampling(2.5), stop=stops)
    kind.submit(engine, kind.openings(24), budget=30)
    turns = kind.finish(engine, 24).values()
    ends = {turn.token_ids[-1] for turn in turns if turn.ended_by == "stop"}
    assert len(ends) > 1 and ends <= stops
    assert all(stops.isdisjoint(turn.token_ids[:-1]) for turn in turns)


def test_successive_versions_are_never_stale(kind, versions):
    """Each version generates right after the change, and differs from its neighbour."""
    engine, openings = kind.engine(versions.policy(1)), kind.openings(3)
    for version in range(2, 9):
        engine.update_weights(versions.policy(version))
        assert engine.policy_version == version
        kind.submit(engine, {10 * version + n: ids for n, ids in openings.items()}, budget=16)
        for session, turn in kind.finish(engine, 3).items():
            opening = openings[session % 10]
            assert set(turn.versions) == {version}
            assert versions.worst_difference(opening, turn) < 1e-4
            neighbour = versions.logprobs(version + 1, opening + turn.token_ids, 2.0)[len(opening) - 1 :]
            assert max(abs(a - b) for a, b in zip(turn.logprobs, neighbour, strict=True)) > 1e-2
            engine.close(session)


def test_new_weights_within_a_turn_sample_its_later_tokens(kind, versions):
    """Each log-probability is of the version that its token carries; sessions with a policy of their own keep it."""
    engine, openings = kind.engine(versions.policy(1)), kind.openings(16)
    own = {} if kind.name == "transformers" else {n: versions.policy(9) for n in openings if n % 4 == 3}
    budget = 200 if kind.name == "vllm_server" else 60
    kind.submit(engine, {n: openings[n] for n in own}, budget, policies=own)
    kind.submit(engine, {n: ids for n, ids in openings.items() if n not in own}, budget)
    turns = {}
    for version in (2, 3):
        turns |= kind.advance(engine)
        engine.update_weights(versions.policy(version))
    turns |= kind.finish(engine, len(openings) - len(turns))
    assert engine.policy_version == 3 and engine.idle
    spread = [len(set(turn.versions)) for turn in turns.values()]
    assert sum(count > 1 for count in spread) >= 4
    assert kind.name == "vllm_server" or spread.count(3) >= 8
    for n, turn in turns.items():
        assert set(turn.versions) <= ({9} if n in own else {1, 2, 3})
        assert turn.versions == sorted(turn.versions)
        assert len(turn.token_ids) == len(turn.versions) == len(turn.logprobs)
        assert len(turn.token_ids) == budget or turn.ended_by == "stop"
        assert versions.worst_difference(openings[n], turn) < 1e-4


def test_an_interruption_changes_no_random_number(kind, versions):
    """A turn interrupted and resumed with the same weights has the tokens of an uninterrupted one."""
    same = PolicyRef(versions.policy(1).base, versions.policy(1).adapter, 8)
    # A fast machine's server ends turns of 50 tokens before it can be interrupted.
    budget = 300 if kind.name == "vllm_server" else 50
    sampled = []
    for interrupted in (False, True):
        engine = kind.engine(versions.policy(1))
        kind.submit(engine, kind.openings(8), budget=budget)
        turns = kind.advance(engine) if interrupted else {}
        if interrupted:
            assert len(turns) < 8
            engine.update_weights(same)
        turns |= kind.finish(engine, 8 - len(turns))
        sampled.append({n: turn.token_ids for n, turn in sorted(turns.items())})
    assert sampled[0] == sampled[1]


def test_a_foreign_adapter_is_refused_and_turns_continue(kind, versions, other_base, tmp_path):
    policy = versions.policy(1)
    write_adapter(versions.model, tmp_path / "adapter", "default", other_base, version=2)
    engine, openings = kind.engine(policy), kind.openings(2)
    kind.submit(engine, openings)
    turns = {generation.session: generation for generation in engine.step()}
    with pytest.raises(AdapterMismatchError, match="trained for the base"):
        engine.update_weights(PolicyRef(policy.base, str(tmp_path / "adapter"), 2))
    turns |= kind.finish(engine, 2 - len(turns))
    assert engine.policy_version == 1
    for n, turn in turns.items():
        assert set(turn.versions) == {1}
        assert versions.worst_difference(openings[n], turn) < 1e-4


@several_policies
def test_champion_and_challenger_generate_the_same_tokens_together_and_alone(kind, versions):
    champion, challenger = versions.policy(1), versions.policy(2)
    openings, alone = kind.openings(24), {}
    for policy, half in ((champion, 0), (challenger, 1)):
        engine = kind.engine(policy, GREEDY)
        kind.submit(engine, {n: ids for n, ids in openings.items() if n % 2 == half})
        alone |= kind.finish(engine, 12)
    engine = kind.engine(champion, GREEDY)
    kind.submit(engine, openings, policies={n: challenger for n in openings if n % 2})
    together = kind.finish(engine, 24)
    assert {n: turn.token_ids for n, turn in together.items()} == {n: turn.token_ids for n, turn in alone.items()}
    assert {n: set(turn.versions) for n, turn in together.items()} == {n: {n % 2 + 1} for n in openings}


@several_policies
def test_the_base_generates_the_same_tokens_in_a_batch_with_adapters_and_alone(kind, base, versions):
    bare, openings = PolicyRef(base), kind.openings(12)
    for version in (1, 2, 3, 4):
        kind.engine(versions.policy(version))
    engine = kind.engine(bare, GREEDY)
    kind.submit(engine, openings)
    alone = kind.finish(engine, 12)
    engine = kind.engine(versions.policy(4), GREEDY)
    kind.submit(engine, openings, policies={n: bare for n in openings if n % 2})
    together = kind.finish(engine, 12)
    assert all(together[n].token_ids == alone[n].token_ids for n in openings if n % 2)
    assert any(together[n].token_ids != alone[n].token_ids for n in openings if n % 2 == 0)


@several_policies
def test_a_session_closed_in_the_middle_of_its_turn_returns_none(kind, versions):
    engine = kind.engine(versions.policy(1))
    kind.submit(engine, kind.openings(4))
    assert not engine.step()
    engine.close(2)
    assert sorted(kind.finish(engine, 3)) == [0, 1, 3]
    assert engine.idle


FAULTS = {"stale": "looks stale", "missing": "looks missing", "swapped": "looks swapped", "mis-scaled": "looks mis-scaled"}


def with_fault(versions, fault, folder):
    """The adapter of version 3, as an engine serves it that has been asked for it and has this fault."""
    shutil.copytree(versions.policy(3).adapter, folder)
    weights, form = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    if fault in ("stale", "swapped"):  # the engine still has the adapter before it, or has another one
        shutil.copyfile(f"{versions.policy(2 if fault == 'stale' else 1).adapter}/adapter_model.safetensors", weights)
    elif fault == "missing":
        tensors = {name: torch.zeros_like(tensor) for name, tensor in load_file(weights).items()}
        save_file(tensors, weights, metadata={"format": "pt"})
    else:
        settings = json.loads(form.read_text())
        form.write_text(json.dumps(settings | {"lora_alpha": settings["lora_alpha"] / 2}))
    return PolicyRef(versions.policy(3).base, str(folder), 3)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_canary_stops_what_is_not_served_as_trained(kind, versions, tmp_path, fault):
    engine, openings = kind.engine(versions.policy(1)), kind.openings(2)
    engine.update_weights(versions.policy(2))
    with pytest.raises(AdapterMismatchError, match=f"does not serve the weights.*{FAULTS[fault]}"):
        engine.update_weights(with_fault(versions, fault, tmp_path / "adapter"))
    assert engine.policy_version == 2  # the old policy goes on
    kind.submit(engine, openings)
    assert versions.worst_difference(openings[0], kind.finish(engine, 2)[0]) < 1e-4


def test_an_adapter_without_a_probe_is_not_checked(kind, versions, tmp_path):
    engine = kind.engine(versions.policy(1))
    policy = with_fault(versions, "swapped", tmp_path / "adapter")
    (tmp_path / "adapter" / PROBE).unlink()
    engine.update_weights(policy)
    assert engine.policy_version == 3


@several_policies
def test_an_adapter_whose_files_change_while_it_is_in_use_is_refused(kind, versions, tmp_path):
    """It was evicted and has to be loaded again."""
    folder = tmp_path / "adapter"
    shutil.copytree(versions.policy(1).adapter, folder)
    engine = kind.engine(PolicyRef(versions.policy(1).base, str(folder), 1))
    for version in range(2, 7):
        kind.engine(versions.policy(version))
    shutil.copyfile(f"{versions.policy(2).adapter}/adapter_model.safetensors", folder / "adapter_model.safetensors")
    with pytest.raises(AdapterMismatchError, match="have changed since"):
        kind.submit(engine, kind.openings(1))
        kind.finish(engine, 1)


@in_this_process
def test_a_policy_with_all_weights_trained_replaces_the_base(kind, base, versions, tmp_path):
    """The last test here, because vLLM is restarted for each base."""
    model = load_base(PolicyConfig(), base)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    write_full_model(model, tmp_path / "model", base, version=4)
    write_probe(model, tmp_path / "model")
    engine, openings = kind.engine(versions.policy(1)), kind.openings(4)
    kind.submit(engine, openings, budget=40)
    turns = kind.advance(engine)
    engine.update_weights(PolicyRef(str(tmp_path / "model"), None, 4))
    turns |= kind.finish(engine, 4 - len(turns))
    assert sum(set(turn.versions) == {1, 4} for turn in turns.values()) >= 2
    for n, turn in turns.items():
        ids = openings[n] + turn.token_ids
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, :-1] / 2.0
        fresh = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])[len(openings[n]) - 1 :, 0]
        for t, version in enumerate(turn.versions):
            assert version == 1 or abs(turn.logprobs[t] - fresh[t].item()) < 1e-4
