"""The transformers engine's change of weights under open sessions, at exact steps."""

import gc
from pathlib import Path

import pytest
import torch

from tracewheel.config import LoraConfig, PolicyConfig
from tracewheel.core.errors import AdapterMismatchError, ConfigError
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.policy.adapters import PolicyRef, peft_config, write_adapter
from tracewheel.policy.loading import PolicyWeights, load_base, load_for_generation

STOP, PROMPT = 258, [260, 40, 50, 60, 70]


@pytest.fixture(scope="module")
def policies(base, tmp_path_factory):
    """Three adapters that differ, as versions 1 to 3, and the base as version 0."""
    from peft import get_peft_model

    found = [PolicyRef(base, None, 0)]
    for version in (1, 2, 3):
        torch.manual_seed(version)
        model = get_peft_model(load_base(PolicyConfig(), base), peft_config(LoraConfig(rank=4, alpha=8)))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(0.0, 0.03)
        folder = tmp_path_factory.mktemp("state") / "adapter"
        write_adapter(model, folder, "default", base, version=version)
        found.append(PolicyRef(base, str(folder), version))
    return found


@pytest.fixture
def engine_of(base):
    def make(policy):
        return TransformersEngine(PolicyWeights(PolicyConfig(base=base)).load, policy, STOP, Sampling(1.1), slots=8)

    return make


@torch.no_grad()
def own_logprobs(base, policy, ids):
    """[T]: of each token after the first, by a full pass of the policy's own model."""
    model = load_for_generation(PolicyConfig(base=base), policy)
    logprobs = torch.log_softmax(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0] / 1.1, dim=-1)
    return [0.0, *logprobs[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()]


def run(engine, updates, count=2, budget=14):
    """Four sessions over some turns, with updates before given steps; ids, and (start, generation) of each turn, by session."""
    ids, turns = {n: list(PROMPT) for n in range(4)}, {n: [] for n in range(4)}
    for n in ids:
        engine.submit(Request(n, list(PROMPT), budget, seed=n))
    steps = 0
    while any(len(done) < count for done in turns.values()):
        if steps in updates:
            engine.update_weights(updates[steps])
        steps += 1
        for generation in engine.step():
            n = generation.session
            turns[n].append((len(ids[n]), generation))
            ids[n] += generation.token_ids
            if len(turns[n]) < count:
                ids[n] += [300, 301 + n]
                engine.submit(Request(n, [300, 301 + n], budget))
            else:
                engine.close(n)
    return ids, turns


def test_each_token_has_the_logprob_of_its_version(engine_of, policies, base):
    """Updates in the middle of turns and between them, against a full pass of each version."""
    ids, turns = run(engine_of(policies[1]), {5: policies[2], 12: policies[0], 20: policies[3]})
    assert {version for done in turns.values() for _, each in done for version in each.versions} >= {1, 2, 0}
    assert any(len(set(each.versions)) > 1 for done in turns.values() for _, each in done)
    for n, done in turns.items():
        fresh = {policy.version: own_logprobs(base, policy, ids[n]) for policy in policies}
        for start, generation in done:
            assert len(generation.versions) == len(generation.logprobs) == len(generation.token_ids)
            for t, (logprob, version) in enumerate(zip(generation.logprobs, generation.versions, strict=True), start):
                assert logprob == pytest.approx(fresh[version][t], abs=1e-4)


def test_tokens_before_an_update_are_those_without_it(engine_of, policies):
    before, _ = run(engine_of(policies[1]), {})
    after, turns_after = run(engine_of(policies[1]), {6: policies[2]})
    assert all(before[n][: len(PROMPT) + 6] == after[n][: len(PROMPT) + 6] for n in before)
    assert before != after
    versions = [each.versions for done in turns_after.values() for _, each in done]
    assert all(first[:6] == [1] * len(first[:6]) and set(first[6:]) <= {2} for first in versions[::2])


def test_an_update_to_the_current_policy_reads_nothing_again(policies, base):
    model, fed = load_for_generation(PolicyConfig(base=base), policies[1]), []
    engine = TransformersEngine(lambda _: model, policies[1], STOP, Sampling(1.1), slots=8)
    model.get_input_embeddings().register_forward_pre_hook(lambda module, args: fed.append(args[0].numel()))
    ids, _ = run(engine, {3: policies[1], 9: policies[1]})
    # What sessions begin with alike is read once; a session's last token is never read.
    assert sum(fed) == len({tuple(each[:stop]) for each in ids.values() for stop in range(1, len(each))})


def test_weights_equal_those_of_a_fresh_load_after_any_others(policies, base):
    """Bit for bit, in any order of policies."""
    weights = PolicyWeights(PolicyConfig(base=base))
    fresh = {p.version: load_for_generation(PolicyConfig(base=base), p).state_dict() for p in policies}
    for version in (1, 2, 0, 3, 3, 1, 0, 2):
        taken = weights.load(policies[version]).state_dict()
        assert taken.keys() == fresh[version].keys()
        assert all(torch.equal(taken[name], fresh[version][name]) for name in taken), version


def test_in_lower_precision_one_adapter_stays_unmerged(policies, base):
    config = PolicyConfig(base=base, dtype="bfloat16")
    weights, ids = PolicyWeights(config), torch.tensor([PROMPT])
    with torch.no_grad():
        fresh = [load_for_generation(config, policy)(input_ids=ids).logits for policy in policies]
        for version in (2, 1, 0, 3, 2):
            assert torch.equal(weights.load(policies[version])(input_ids=ids).logits, fresh[version])


@pytest.mark.slow
def test_fifty_updates_leave_no_memory_behind(engine_of, policies):
    engine = engine_of(policies[1])
    engine.submit(Request(0, list(PROMPT), 500, seed=0))

    def update(count):
        for step in range(count):
            engine.update_weights(policies[1 + step % 3])
            engine.step()
        gc.collect()
        tensors = sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())
        return tensors, int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    tensors, size = update(8)
    more_tensors, bigger = update(50)
    assert more_tensors <= tensors + 4
    assert bigger < 1.02 * size + 2**22


def test_after_a_refused_adapter_the_tokens_are_unchanged(engine_of, policies, other_base):
    engine = engine_of(policies[1])
    engine.submit(Request(0, list(PROMPT), 12, seed=0))
    engine.step()
    with pytest.raises(AdapterMismatchError, match="trained for the base"):
        engine.update_weights(PolicyRef(other_base, policies[2].adapter, 2))
    turns = []
    while not turns:
        turns = engine.step()
    assert set(turns[0].versions) == {1}
    alone = run(engine_of(policies[1]), {}, count=1, budget=12)[1][0][0][1]
    assert turns[0].token_ids == alone.token_ids


def test_a_session_may_name_only_the_current_policy(engine_of, policies):
    engine = engine_of(policies[1])
    engine.submit(Request(0, list(PROMPT), 4, policy=policies[1]))
    with pytest.raises(ConfigError, match="one policy at a time"):
        engine.submit(Request(1, list(PROMPT), 4, policy=policies[2]))
    assert not engine.idle
