"""New weights under open sessions: which version sampled a token, and that it was that version's distribution."""

import gc
from pathlib import Path

import pytest
import torch

from tracewheel.config import LoraConfig, PolicyConfig
from tracewheel.core.errors import AdapterMismatchError, ConfigError
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.learner.warm_start.stage import peft_config
from tracewheel.policy.adapters import PolicyRef, write_adapter
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


def run(engine, updates, turns=2, budget=14):
    """Four sessions over some turns, weights exchanged before certain steps; (ids, generations) by session."""
    ids, said = {n: list(PROMPT) for n in range(4)}, {n: [] for n in range(4)}
    for n in ids:
        engine.submit(Request(n, list(PROMPT), budget, seed=n))
    steps = 0
    while any(len(done) < turns for done in said.values()):
        if steps in updates:
            engine.update_weights(updates[steps])
        steps += 1
        for generation in engine.step():
            n = generation.session
            said[n].append((len(ids[n]), generation))
            ids[n] += generation.token_ids
            if len(said[n]) < turns:
                ids[n] += [300, 301 + n]
                engine.submit(Request(n, [300, 301 + n], budget))
            else:
                engine.close(n)
    return ids, said


def test_each_token_is_of_the_version_that_it_carries(engine_of, policies, base):
    """Updates in the middle of turns and between them: each token has the log-probability of its version's own full pass."""
    ids, said = run(engine_of(policies[1]), {5: policies[2], 12: policies[0], 20: policies[3]})
    assert {version for done in said.values() for _, each in done for version in each.versions} >= {1, 2, 0}
    assert any(len(set(each.versions)) > 1 for done in said.values() for _, each in done)
    for n, done in said.items():
        fresh = {policy.version: own_logprobs(base, policy, ids[n]) for policy in policies}
        for start, generation in done:
            assert len(generation.versions) == len(generation.logprobs) == len(generation.token_ids)
            for t, (logprob, version) in enumerate(zip(generation.logprobs, generation.versions, strict=True), start):
                assert logprob == pytest.approx(fresh[version][t], abs=1e-4)


def test_what_was_sampled_before_an_update_is_as_without_it(engine_of, policies):
    before, _ = run(engine_of(policies[1]), {})
    after, said_after = run(engine_of(policies[1]), {6: policies[2]})
    assert all(before[n][: len(PROMPT) + 6] == after[n][: len(PROMPT) + 6] for n in before)
    assert before != after
    versions = [each.versions for done in said_after.values() for _, each in done]
    assert all(first[:6] == [1] * len(first[:6]) and set(first[6:]) <= {2} for first in versions[::2])


def test_an_update_to_the_policy_that_is_served_changes_nothing(engine_of, policies):
    engine = engine_of(policies[1])
    fed = []
    engine._model.get_input_embeddings().register_forward_pre_hook(lambda module, args: fed.append(args[0].numel()))
    ids, _ = run(engine, {3: policies[1], 9: policies[1]})
    # Of four like prompts one is read; the last token of a session is read by nobody.
    assert sum(fed) == sum(len(each) - 1 for each in ids.values()) - 3 * len(PROMPT)


def test_weights_are_those_of_a_fresh_load_after_any_others(policies, base):
    """To the bit, in whatever order policies come and however many came before."""
    weights = PolicyWeights(PolicyConfig(base=base))
    fresh = {p.version: load_for_generation(PolicyConfig(base=base), p).state_dict() for p in policies}
    for version in (1, 2, 0, 3, 3, 1, 0, 2):
        taken = weights.load(policies[version]).state_dict()
        assert taken.keys() == fresh[version].keys()
        assert all(torch.equal(taken[name], fresh[version][name]) for name in taken), version


def test_in_lower_precision_one_adapter_lies_beside_the_weights(policies, base):
    config = PolicyConfig(base=base, dtype="bfloat16")
    weights, ids = PolicyWeights(config), torch.tensor([PROMPT])
    with torch.no_grad():
        fresh = [load_for_generation(config, policy)(input_ids=ids).logits for policy in policies]
        for version in (2, 1, 0, 3, 2):
            assert torch.equal(weights.load(policies[version])(input_ids=ids).logits, fresh[version])


def test_fifty_exchanges_leave_nothing_behind(engine_of, policies):
    engine = engine_of(policies[1])
    engine.submit(Request(0, list(PROMPT), 500, seed=0))

    def exchange(count):
        for step in range(count):
            engine.update_weights(policies[1 + step % 3])
            engine.step()
        gc.collect()
        tensors = sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())
        return tensors, int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    tensors, size = exchange(8)
    more_tensors, bigger = exchange(50)
    assert more_tensors <= tensors + 4
    assert bigger < 1.02 * size + 2**22


def test_a_foreign_adapter_is_refused_and_the_engine_goes_on(engine_of, policies, other_base):
    engine = engine_of(policies[1])
    engine.submit(Request(0, list(PROMPT), 12, seed=0))
    engine.step()
    with pytest.raises(AdapterMismatchError, match="trained for the base"):
        engine.update_weights(PolicyRef(other_base, policies[2].adapter, 2))
    said = []
    while not said:
        said = engine.step()
    assert set(said[0].versions) == {1}
    alone = run(engine_of(policies[1]), {}, turns=1, budget=12)[1][0][0][1]
    assert said[0].token_ids == alone.token_ids


def test_a_session_may_ask_for_the_policy_that_is_served_and_for_no_other(engine_of, policies):
    engine = engine_of(policies[1])
    engine.submit(Request(0, list(PROMPT), 4, policy=policies[1]))
    with pytest.raises(ConfigError, match="one policy at a time"):
        engine.submit(Request(1, list(PROMPT), 4, policy=policies[2]))
    assert not engine.idle
