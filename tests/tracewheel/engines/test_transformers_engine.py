"""The transformers engine against plain full forward passes of the same model."""

import itertools
import random
from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from tracewheel.config import RolloutConfig
from tracewheel.engines import ragged_session
from tracewheel.engines import transformers as transformers_engine
from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import load_base, load_for_generation
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

VOCABULARY, STOP = 64, 5
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3, "eos_token_id": STOP,
}  # fmt: skip
ARCHITECTURES = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def random_model(request):
    torch.manual_seed(2)
    return AutoModelForCausalLM.from_config(ARCHITECTURES[request.param], attn_implementation="sdpa").eval()


@pytest.fixture(scope="module")
def many_tasks():
    rng = random.Random(8)
    return [make_task(family, tier, rng) for family in FAMILIES for tier in (1, 2, 3, 4) for _ in range(5)]


@torch.no_grad()
def full_logprobs(model, ids, temperature):
    """[T, V]: row t is the distribution that token t + 1 is drawn from, by one pass over the whole sequence."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits / temperature, dim=-1)


def converse(engine, opening, *, turns=3, budget=6, longest_observation=4):
    """Drive sessions for some turns; all ids, and the log-probabilities of sampled tokens by position."""
    rng = random.Random(3)
    lengths = {n: [1 + rng.randrange(longest_observation) for _ in range(turns)] for n in opening}
    observed = {n: [[rng.randrange(VOCABULARY) for _ in range(length)] for length in lengths[n]] for n in opening}
    ids = {n: list(first) for n, first in opening.items()}
    sampled = {n: {} for n in opening}
    endings = Counter()
    for n, first in opening.items():
        engine.submit(Request(n, list(first), budget, seed=n))
    left = dict.fromkeys(opening, turns)
    while left:
        for generation in engine.step():
            n = generation.session
            endings[generation.ended_by] += 1
            sampled[n].update(zip(itertools.count(len(ids[n])), generation.logprobs))
            ids[n] += generation.token_ids
            left[n] -= 1
            if not left[n]:
                engine.close(n)
                del left[n]
            else:
                new = observed[n][left[n]]
                ids[n] += new
                engine.submit(Request(n, new, budget))
    return ids, sampled, endings


def engine_on(model, stop_id, sampling, slots):
    return TransformersEngine(lambda _: model, PolicyRef("a model"), stop_id, sampling, slots)


def openings(count):
    rng = random.Random(4)
    return {n: [rng.randrange(VOCABULARY) for _ in range(1 + rng.randrange(12))] for n in range(count)}


@pytest.mark.parametrize(("adapted", "temperature", "top_p"), [(False, 1.0, 1.0), (True, 0.7, 0.9)], ids=["base", "adapter"])
def test_stored_logprobs_are_those_of_a_full_pass(config, base, adapter, renderer, many_tasks, adapted, temperature, top_p):
    """Every token of 50 multi-turn trajectories, with more sessions than slots."""
    policy = PolicyRef(base, str(adapter) if adapted else None)
    settings = RolloutConfig(temperature=temperature, top_p=top_p)
    engine = engine_on(
        load_for_generation(config.policy, policy), renderer.end_of_turn_id, Sampling(temperature, top_p), slots=24
    )
    trajectories = run_episodes(engine, renderer, settings, RolloutPlan(many_tasks[::4], samples=3, seed=1))
    several_turns = [trajectory for trajectory in trajectories if len(trajectory.turns) > 1][:50]
    assert len(several_turns) == 50
    model = load_base(config.policy, base)
    if adapted:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter).eval()
    worst = 0.0
    for trajectory in several_turns:
        fresh = full_logprobs(model, trajectory.token_ids, temperature)
        for t, (token, acted) in enumerate(zip(trajectory.token_ids, trajectory.action_mask, strict=True)):
            if acted:
                worst = max(worst, abs(trajectory.logprobs[t] - fresh[t - 1, token].item()))
    assert worst < 1e-4


def read_alone(conversations):
    """The beginnings of conversations, each counted once: what a model must read at least. Nobody reads their last tokens."""
    return len({tuple(ids[:stop]) for ids in conversations for stop in range(1, len(ids))})


@pytest.mark.parametrize("samples", [1, 4])
def test_no_token_is_read_twice(config, base, renderer, many_tasks, samples):
    """Of a conversation; those that begin alike share what they read, prompts in blocks. Token 0 is padding here and
    appears in no conversation.
    """
    model = load_base(config.policy, base)
    engine = engine_on(model, renderer.end_of_turn_id, Sampling(), slots=16 if samples == 1 else 160)
    fed = []
    model.get_input_embeddings().register_forward_pre_hook(lambda module, args: fed.append(int((args[0] != 0).sum())))
    trajectories = run_episodes(engine, renderer, RolloutConfig(), RolloutPlan(many_tasks[::2], samples=samples, seed=2))
    assert not any(0 in trajectory.token_ids for trajectory in trajectories)
    assert max(len(trajectory.turns) for trajectory in trajectories) > 3
    conversations = [trajectory.token_ids for trajectory in trajectories]
    apart = sum(map(len, conversations)) - len(conversations)
    least = read_alone(conversations)
    assert least < apart
    blocks = ragged_session.BLOCK * len(many_tasks[::2])
    assert least <= sum(fed) <= (least + blocks if samples > 1 else apart)


def watch(model):
    """The number of tokens in each of the model's passes from now on."""
    fed = []
    model.get_input_embeddings().register_forward_pre_hook(lambda module, args: fed.append(args[0].numel()))
    return fed


def finish(engine):
    """Step until all turns have ended; generations by session."""
    turns = {}
    while not engine.idle:
        turns |= {generation.session: generation for generation in engine.step()}
    return turns


def test_sessions_are_one_row_for_as_long_as_they_agree(random_model):
    """Each session then has the tokens that it would have alone, with its own random numbers, budget and temperature."""
    prompt, other = [7, 8, 9, 10, 11, 12], [7, 8, 9, 10, 11, 13]
    requests = [Request(n, list(other if n == 3 else prompt), 8 + n, seed=n, temperature=0.2 + n / 10) for n in range(6)]
    alone = {}
    for request in requests:
        engine = engine_on(random_model, STOP, Sampling(), slots=1)
        engine.submit(request)
        alone |= finish(engine)
    engine = engine_on(random_model, STOP, Sampling(), slots=6)
    fed = watch(random_model)
    for request in requests:
        engine.submit(request)
    together = finish(engine)
    assert fed[0] == len(prompt) + len(other)
    conversations = [requests[n].new_ids + alone[n].token_ids for n in alone]
    apart = read_alone([conversations[3]]) + read_alone(conversations[:3] + conversations[4:])
    assert sum(fed) == apart < sum(map(len, conversations)) - len(conversations) - 4 * len(prompt)
    for n in alone:
        assert together[n].token_ids == alone[n].token_ids
        assert together[n].logprobs == pytest.approx(alone[n].logprobs, abs=1e-4)
        fresh = full_logprobs(random_model, conversations[n], 0.2 + n / 10)
        own = [fresh[5 + t, token].item() for t, token in enumerate(alone[n].token_ids)]
        assert together[n].logprobs == pytest.approx(own, abs=1e-4)


def test_sessions_that_agree_go_on_as_one_after_their_tools(random_model):
    """Greedy sessions with equal replies; one of them gets another reply, and one keeps only a part."""
    prompt, replies = list(range(6, 30)), {0: [9, 9, 9], 1: [9, 9, 9], 2: [9, 9, 9], 3: [9, 9, 8], 4: [9, 9, 9]}
    engine = engine_on(random_model, STOP, Sampling(greedy=True), slots=5)
    for n in replies:
        engine.submit(Request(n, list(prompt), 4))
    first = finish(engine)
    fed = watch(random_model)
    for n, reply in replies.items():
        engine.submit(Request(n, list(reply), 4, keep=3 if n == 4 else None))
    second = finish(engine)
    ids = {n: (prompt[:3] if n == 4 else prompt + first[n].token_ids) + reply for n, reply in replies.items()}
    last = len(first[0].token_ids[-1:])  # the turn's last token was not read yet
    assert fed[0] == 2 * (last + 3) + 3
    for n, turn in second.items():
        fresh = full_logprobs(random_model, ids[n] + turn.token_ids, 1.0)
        own = [fresh[len(ids[n]) + t - 1, token].item() for t, token in enumerate(turn.token_ids)]
        assert turn.logprobs == pytest.approx(own, abs=1e-4)


def test_a_prompts_beginning_is_read_once(random_model, monkeypatch):
    """Prompts of several lengths with common beginnings: together, in chunks, and of sessions that are closed meanwhile."""
    rng = random.Random(2)
    stem = [rng.randrange(6, VOCABULARY) for _ in range(70)]
    prompts = {n: stem[: 10 * n] + [rng.randrange(6, VOCABULARY) for _ in range(5)] for n in range(8)}
    for chunk in (1024, 20):
        monkeypatch.setattr(transformers_engine, "READ_CHUNK", chunk)
        engine = engine_on(random_model, VOCABULARY, Sampling(), slots=8)
        fed = watch(random_model)
        for n in range(8):
            engine.submit(Request(n, list(prompts[n]), 3, seed=n))
        turns = finish(engine)
        assert sum(fed) < sum(map(len, prompts.values()))
        engine.close(7)
        for n in range(8, 16):
            prompts[n] = [*stem, n]
            engine.submit(Request(n, list(prompts[n]), 3, seed=n))
        turns |= finish(engine)
        for n, turn in turns.items():
            fresh = full_logprobs(random_model, prompts[n] + turn.token_ids, 1.0)
            own = [fresh[len(prompts[n]) + t - 1, token].item() for t, token in enumerate(turn.token_ids)]
            assert turn.logprobs == pytest.approx(own, abs=1e-4)
        for n in range(16):
            if n != 7:
                engine.close(n)
        assert not engine._prompts._owners and not engine._prompts._digests


def test_a_session_waiting_for_its_tool_frees_its_slot(random_model):
    """Two slots, twelve sessions with two turns each: all start before any comes back."""
    engine = engine_on(random_model, STOP, Sampling(), slots=2)
    starts = openings(12)
    for n in range(8):
        engine.submit(Request(n, starts[n], 6, seed=n))
    first = finish(engine)
    assert set(first) == set(range(8))
    for n in range(8, 12):
        engine.submit(Request(n, starts[n], 6, seed=n))
    assert engine.idle, "at most four rows per slot"
    for n in range(8):
        engine.submit(Request(n, [3, 4], 6))
    assert not engine.idle
    second = finish(engine)
    assert set(second) == set(range(8)), "returning sessions go before new ones"
    for n in range(8):
        ids = [*starts[n], *first[n].token_ids, 3, 4, *second[n].token_ids]
        fresh = full_logprobs(random_model, ids, 1.0)
        start = len(ids) - len(second[n].token_ids)
        own = [fresh[t - 1, ids[t]].item() for t in range(start, len(ids))]
        assert second[n].logprobs == pytest.approx(own, abs=1e-4)
        engine.close(n)
    assert set(finish(engine)) == set(range(8, 12))


def test_long_prompts_are_read_in_chunks(random_model, monkeypatch):
    monkeypatch.setattr(transformers_engine, "READ_CHUNK", 5)
    monkeypatch.setattr(transformers_engine, "READ_TOKENS", 12)
    engine = engine_on(random_model, STOP, Sampling(1.3), slots=8)
    fed = watch(random_model)
    ids, sampled, _ = converse(engine, openings(8), longest_observation=40)
    assert 12 < max(fed) <= 12 + 8
    for n, tokens in ids.items():
        fresh = full_logprobs(random_model, tokens, 1.3)
        for t, logprob in sampled[n].items():
            assert logprob == pytest.approx(fresh[t - 1, tokens[t]].item(), abs=1e-4)


def test_the_models_own_passes_are_unchanged(random_model):
    """With or without padding, passes outside the engine give what sdpa gives."""
    ids, mask = torch.randint(0, VOCABULARY, (3, 11)), torch.ones(3, 11, dtype=torch.long)
    mask[0, :4] = 0
    with torch.no_grad():
        before = [random_model(input_ids=ids).logits, random_model(input_ids=ids, attention_mask=mask).logits]
        engine_on(random_model, STOP, Sampling(), slots=1)
        after = [random_model(input_ids=ids).logits, random_model(input_ids=ids, attention_mask=mask).logits]
    assert all(map(torch.equal, before, after))


def test_the_number_of_slots_changes_no_greedy_token(config, base, renderer, many_tasks):
    model = load_base(config.policy, base)
    sampled = []
    for slots in (3, 40):
        engine = engine_on(model, renderer.end_of_turn_id, Sampling(greedy=True), slots)
        trajectories = run_episodes(engine, renderer, RolloutConfig(), RolloutPlan(many_tasks[::2], samples=1, seed=0))
        sampled.append([trajectory.token_ids for trajectory in trajectories])
    assert sampled[0] == sampled[1]


def test_greedy_takes_the_most_likely_token(random_model):
    ids, sampled, _ = converse(engine_on(random_model, STOP, Sampling(greedy=True), slots=3), openings(8))
    for n, tokens in ids.items():
        fresh = full_logprobs(random_model, tokens, 1.0)
        assert all(fresh[t - 1].argmax() == tokens[t] for t in sampled[n])


@pytest.mark.parametrize("slots", [2, 5, 24])
def test_logprobs_over_several_turns_for_each_architecture(random_model, slots):
    """Turns that end by the stop token or the budget, sessions of different lengths, reused slots."""
    ids, sampled, endings = converse(engine_on(random_model, STOP, Sampling(1.3), slots), openings(24), budget=9)
    assert set(endings) == {"stop", "length"}
    for n, tokens in ids.items():
        fresh = full_logprobs(random_model, tokens, 1.3)
        for t, logprob in sampled[n].items():
            assert logprob == pytest.approx(fresh[t - 1, tokens[t]].item(), abs=1e-4)


def test_a_sessions_seed_fixes_its_tokens(random_model):
    def run():
        return converse(engine_on(random_model, STOP, Sampling(), slots=7), openings(12))

    assert run() == run()

    def first_turns(seeds):
        engine = engine_on(random_model, STOP, Sampling(), slots=len(seeds))
        for n, seed in enumerate(seeds):
            engine.submit(Request(n, [1, 2, 3], 12, seed))
        turns = {}
        while len(turns) < len(seeds):
            turns |= {generation.session: generation.token_ids for generation in engine.step()}
        return [turns[n] for n in range(len(seeds))]

    one, two, three, again = first_turns([1, 2, 3, 1])
    assert one == again
    assert one != two and two != three


def test_turns_end_by_the_stop_token_or_the_budget(random_model):
    engine = engine_on(random_model, STOP, Sampling(2.0), slots=64)
    for n in range(64):
        engine.submit(Request(n, [1, 2], 10, seed=n))
    generations = [generation for _ in range(10) for generation in engine.step()]
    assert len(generations) == 64
    for generation in generations:
        assert STOP not in generation.token_ids[:-1]
        assert (generation.token_ids[-1] == STOP) == (generation.ended_by == "stop")
        assert generation.ended_by == "stop" or len(generation.token_ids) == 10
        assert len(generation.logprobs) == len(generation.token_ids)


def first_tokens(model, prompt, sampling, count):
    engine = engine_on(model, STOP, sampling, slots=count)
    for n in range(count):
        engine.submit(Request(n, prompt, 1, seed=n))
    return Counter(generation.token_ids[0] for generation in engine.step())


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_token_frequencies_match_their_probabilities(random_model, temperature):
    """Pearson's chi-square over the tokens with 5 or more expected draws, and the rest as one."""
    count, prompt = 4000, [7, 8, 9]
    drawn = first_tokens(random_model, prompt, Sampling(temperature), count)
    expected = full_logprobs(random_model, prompt, temperature)[-1].double().exp() * count
    common = [token for token in range(VOCABULARY) if expected[token] >= 5]
    pairs = [(drawn[token], expected[token].item()) for token in common]
    pairs.append((count - sum(seen for seen, _ in pairs), max(count - sum(wanted for _, wanted in pairs), 1e-9)))
    assert len(common) > 10
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in pairs if wanted >= 1)
    degrees = len(pairs) - 1
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5


@pytest.mark.parametrize("top_p", [0.6, 0.9])
def test_top_p_draws_only_from_the_nucleus(random_model, top_p):
    count, prompt = 3000, [7, 8, 9]
    drawn = first_tokens(random_model, prompt, Sampling(top_p=top_p), count)
    probabilities = full_logprobs(random_model, prompt, 1.0)[-1].double().exp()
    nucleus, held = [], 0.0
    for token in probabilities.argsort(descending=True).tolist():
        if held >= top_p:
            break
        nucleus.append(token)
        held += probabilities[token].item()
    assert len(nucleus) < VOCABULARY
    assert set(drawn) <= set(nucleus)
    for token in nucleus[:3]:
        share = probabilities[token].item() / held
        assert drawn[token] / count == pytest.approx(share, abs=4 * (share * (1 - share) / count) ** 0.5)


@pytest.mark.parametrize("slots", [2, 8])
def test_a_session_that_keeps_a_part_goes_on_as_one_with_the_same_ids(random_model, slots):
    """Every turn of several sessions drops a part of what they have; the log-probabilities are those of a fresh pass."""
    rng = random.Random(6)
    engine = engine_on(random_model, VOCABULARY, Sampling(), slots)
    ids = {n: list(first) for n, first in openings(5).items()}
    for n, first in ids.items():
        engine.submit(Request(n, list(first), 7, seed=n))
    dropped, worst = Counter(), 0.0
    for _ in range(5):
        turns = finish(engine)
        assert turns.keys() == ids.keys()
        for n, turn in turns.items():
            start = len(ids[n])
            ids[n] += turn.token_ids
            fresh = full_logprobs(random_model, ids[n], 1.0)
            stored = zip(turn.token_ids, turn.logprobs, strict=True)
            gaps = [abs(logprob - fresh[start + t - 1, token].item()) for t, (token, logprob) in enumerate(stored)]
            worst = max(worst, *gaps)
            keep = rng.choice([None, 0, 1, rng.randrange(len(ids[n])), len(ids[n]) - 1, len(ids[n])])
            new = [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 70))]
            ids[n] = ids[n][:keep] + new
            dropped["all" if keep == 0 else "none" if keep is None else "some"] += 1
            engine.submit(Request(n, new, 7, keep=keep))
    assert len(dropped) == 3 and worst < 1e-4


def test_random_numbers_go_on_where_a_session_keeps_a_part(random_model):
    def drawn(keep, new):
        engine = engine_on(random_model, VOCABULARY, Sampling(), 2)
        engine.submit(Request(0, [1, 2, 3], 4, seed=9))
        first = finish(engine)[0].token_ids
        engine.submit(Request(0, new(first), 6, keep=keep))
        return finish(engine)[0].token_ids

    assert drawn(3, lambda first: [*first, 8]) == drawn(None, lambda first: [8])
