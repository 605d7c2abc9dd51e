"""Our scoring of action tokens against the plain path over all logits, on tiny random models."""

import weakref
from dataclasses import replace

import pandas as pd
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tracewheel.learner.batch import Batch, micro_batches
from tracewheel.learner.kernels import fused_logprobs, token_logprobs
from tracewheel.learner.kernels.fused_logprobs import target_logprobs
from tracewheel.learner.kernels.language_model import checkpoint_activations
from tracewheel.learner.kernels.packing import rows_at
from tracewheel.learner.kernels.token_logprobs import action_logprobs, hidden_states

VOCABULARY = 61
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False)),
    "gemma2 (soft cap)": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, final_logit_softcapping=0.5)),
    "granite (scale)": lambda: GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=3.0)),
    "cohere (scale)": lambda: CohereForCausalLM(CohereConfig(**SIZES, logit_scale=0.25)),
}


def sharpened(name):
    """A model whose weights are large enough for a distribution that is far from uniform."""
    torch.manual_seed(0)
    model = MODELS[name]().double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0)
    return model


def with_lora(model, targets="all-linear"):
    """LoRA whose second factor is not zero, so that the adapter changes the output."""
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules=targets, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return adapted.double()


@pytest.fixture
def batch() -> Batch:
    generator = torch.Generator().manual_seed(3)
    rows = []
    for length in (23, 9, 17):
        mask = (torch.rand(length, generator=generator) < 0.5).long()
        mask[0], mask[-1] = 0, 1
        rows.append(
            {
                "token_ids": torch.randint(3, VOCABULARY, (length,), generator=generator).tolist(),
                "action_mask": mask.tolist(),
                "logprobs": [0.0] * length,
            }
        )
    (only,) = micro_batches(pd.DataFrame(rows), [1.0, -1.0, 0.5], micro_batch_tokens=1000)
    return only


def heated(batch, temperature):
    """The batch, sampled at another temperature."""
    return replace(batch, temperature=torch.full((len(batch.token_ids),), temperature, dtype=torch.float64))


def full_logits_path(model, batch, temperature):
    """The plain way: all logits [B, T, V], log-softmax, gather, shift by one."""
    logits = model(input_ids=batch.token_ids, attention_mask=batch.attention_mask).logits / temperature
    everything = torch.log_softmax(logits, dim=-1)
    shifted = everything[:, :-1].gather(-1, batch.token_ids[:, 1:, None]).squeeze(-1)
    logprobs = torch.nn.functional.pad(shifted, (1, 0)) * batch.action_mask
    entropy = torch.nn.functional.pad(-(everything.exp() * everything).sum(-1)[:, :-1], (1, 0)) * batch.action_mask
    return logprobs, entropy


def gradients(model, logprobs):
    model.zero_grad()
    weights = torch.linspace(-1.0, 1.0, logprobs.numel(), dtype=logprobs.dtype).view_as(logprobs)
    (logprobs * weights).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("chunk", [4, 1000])
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_equal_those_of_all_logits(name, lora, chunk, batch):
    model = with_lora(sharpened(name)) if lora else sharpened(name)
    logprobs, entropy = action_logprobs(model, heated(batch, 0.7), chunk=chunk)
    expected, expected_entropy = full_logits_path(model, batch, temperature=0.7)
    assert expected.abs().max() > 1.0
    torch.testing.assert_close(logprobs, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(entropy, expected_entropy.detach(), rtol=0, atol=1e-9)
    ours, theirs = gradients(model, logprobs), gradients(model, expected)
    assert ours.keys() == theirs.keys()
    assert any(gradient.abs().max() > 0.1 for gradient in ours.values())
    for parameter in ours:
        torch.testing.assert_close(ours[parameter], theirs[parameter], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_float32_is_within_a_millionth(name, batch):
    model = with_lora(sharpened(name)).float()
    logprobs, _ = action_logprobs(model, batch, chunk=5)
    expected, _ = full_logits_path(model, batch, temperature=1.0)
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, expected, rtol=1e-6, atol=1e-6)
    ours, theirs = gradients(model, logprobs), gradients(model, expected)
    for parameter in ours:
        scale = theirs[parameter].abs().max().clamp(min=1.0)
        assert (ours[parameter] - theirs[parameter]).abs().max() <= 3e-6 * scale


def test_an_adapted_output_embedding_is_used(batch):
    model = with_lora(sharpened("llama"), targets=["q_proj", "lm_head"])
    logprobs, _ = action_logprobs(model, batch, chunk=4)
    expected, _ = full_logits_path(model, batch, temperature=1.0)
    torch.testing.assert_close(logprobs, expected, rtol=0, atol=1e-9)
    assert any("lm_head" in name for name in gradients(model, logprobs))


def test_adapter_switches_take_effect(batch):
    model = with_lora(sharpened("qwen3"))
    model.add_adapter("reference", LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.double()
    trained, _ = action_logprobs(model, batch)
    model.set_adapter("reference")
    reference, _ = action_logprobs(model, batch)
    with model.disable_adapter():
        base, _ = action_logprobs(model, batch)
    assert (trained - base).abs().max() > 1e-3
    torch.testing.assert_close(reference, base, rtol=0, atol=1e-9)


def test_padding_does_not_change_a_row(batch):
    model = sharpened("qwen3")
    together, _ = action_logprobs(model, batch)
    for row, length in enumerate(batch.attention_mask.sum(-1).tolist()):
        alone = Batch(
            **{key: values[row : row + 1, :length] for key, values in batch.tensors().items() if values.ndim == 2},
            temperature=batch.temperature[row : row + 1],
            rows=batch.rows[row : row + 1],
        )
        logprobs, _ = action_logprobs(model, alone)
        torch.testing.assert_close(together[row, :length], logprobs[0], rtol=0, atol=1e-9)
        assert not together[row, length:].any()


class LogitsWatch(TorchDispatchMode):
    """Watches every operator: the largest result as wide as the vocabulary, and the most such elements alive at once."""

    def __init__(self):
        super().__init__()
        self.largest, self.peak = 0, 0
        self.alive = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            is_weight = isinstance(tensor, torch.Tensor) and tensor.shape[:-1] == (SIZES["hidden_size"],)
            if isinstance(tensor, torch.Tensor) and tensor.ndim > 1 and tensor.shape[-1] == VOCABULARY and not is_weight:
                self.largest = max(self.largest, tensor.numel())
                self.alive[id(tensor)] = weakref.ref(tensor)
        self.alive = {key: reference for key, reference in self.alive.items() if reference() is not None}
        self.peak = max(self.peak, sum(reference().numel() for reference in self.alive.values()))
        return result


def test_at_most_one_chunk_of_logits_exists(batch):
    model = with_lora(sharpened("llama"))
    action_logprobs(model, batch)
    peaks = {}
    for chunk in (2, 4):
        with LogitsWatch() as watch:
            logprobs, _ = action_logprobs(model, batch, chunk=chunk)
            logprobs.sum().backward()
        assert watch.largest == chunk * VOCABULARY < int(batch.action_mask.sum()) * VOCABULARY
        peaks[chunk] = watch.peak
    assert peaks[4] == 2 * peaks[2]
    with LogitsWatch() as watch:
        full_logits_path(model, batch, temperature=1.0)[0].sum().backward()
    assert watch.largest == batch.token_ids.numel() * VOCABULARY


def test_values_without_gradients_are_the_same(batch):
    model = with_lora(sharpened("qwen3"))
    with torch.no_grad():
        frozen, _ = action_logprobs(model, heated(batch, 1.3), chunk=4)
    logprobs, _ = action_logprobs(model, heated(batch, 1.3), chunk=4)
    assert torch.equal(frozen, logprobs.detach()) and not frozen.requires_grad


def test_bfloat16_models_are_scored_in_float32(batch):
    model = sharpened("llama").to(torch.bfloat16)
    logprobs, entropy = action_logprobs(model, batch)
    assert logprobs.dtype == entropy.dtype == torch.float32
    expected, _ = full_logits_path(sharpened("llama"), batch, temperature=1.0)
    assert (logprobs - expected).abs().max() < 0.2 * expected.abs().max()


def test_a_batch_without_actions_gives_zeros_and_zero_gradients(batch):
    without_actions = replace(batch, action_mask=torch.zeros_like(batch.action_mask))
    model = sharpened("qwen3")
    logprobs, entropy = action_logprobs(model, without_actions)
    logprobs.sum().backward()
    assert not logprobs.any() and not entropy.any()
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


LAYOUTS = ["packed", "shared_prefix"]


@pytest.fixture
def group() -> Batch:
    """Three trajectories of one prompt, two of them with a common first turn, and one of another prompt."""
    generator = torch.Generator().manual_seed(4)

    def tokens(count):
        return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()

    prompt, turn = tokens(14), tokens(9)
    rows = []
    for start, more in ((prompt + turn, 7), (prompt + turn, 2), (prompt, 12), ([], 11)):
        ids = start + tokens(more)
        mask = [0] + [int(number % 3 > 0 and number >= len(start[:14])) for number in range(1, len(ids))]
        rows.append({"token_ids": ids, "action_mask": mask, "logprobs": [0.0] * len(ids)})
    table = pd.DataFrame(rows).assign(temperature=[1.0, 0.8, 0.8, 1.2])
    (only,) = micro_batches(table, [1.0, -1.0, 0.5, 0.2], micro_batch_tokens=1000)
    return only


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["qwen3", "llama", "granite (scale)", "gemma2 (soft cap)"])
def test_a_packed_batch_has_the_values_and_gradients_of_the_padded_one(name, layout, checkpointing, group):
    model = with_lora(sharpened(name))
    expected, expected_entropy = action_logprobs(model, group, entropy_gradient=True)
    theirs = gradients(model, expected + 0.3 * expected_entropy)
    passes = []
    model.get_decoder().layers[0].mlp.register_forward_pre_hook(lambda *_: passes.append(1))
    if checkpointing:
        checkpoint_activations(model)
    action_logprobs(model, group, layout=layout)
    passes.clear()
    logprobs, entropy = action_logprobs(model, group, layout=layout, chunk=8, entropy_gradient=True)
    assert expected.abs().max() > 1.0
    torch.testing.assert_close(logprobs, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(entropy, expected_entropy, rtol=0, atol=1e-9)
    ours = gradients(model, logprobs + 0.3 * entropy)
    assert len(passes) == 1 + checkpointing
    assert ours.keys() == theirs.keys()
    largest = max(gradient.abs().max() for gradient in theirs.values())
    for parameter in ours:  # the models' norms compute in float32, in a float64 model too
        assert (ours[parameter] - theirs[parameter]).abs().max() <= 2e-6 * largest


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_float32_a_packed_update_is_within_a_hundred_thousandth(layout, group):
    model = sharpened("qwen3").float()
    theirs = gradients(model, action_logprobs(model, group)[0])
    ours = gradients(model, action_logprobs(model, group, layout=layout)[0])
    largest = max(gradient.abs().max() for gradient in theirs.values())
    assert largest > 0.1
    for parameter in theirs:
        assert (ours[parameter] - theirs[parameter]).abs().max() <= 1e-5 * largest


def test_a_shared_prompt_is_computed_once(group):
    model = sharpened("qwen3")
    lengths = []
    model.get_decoder().register_forward_pre_hook(
        lambda module, arguments, named: lengths.append(named["input_ids"].numel()), with_kwargs=True
    )
    for layout in ("padded", *LAYOUTS):
        action_logprobs(model, group, layout=layout)
        lengths[:] = lengths[-1:]
        real = int(group.attention_mask.sum())
        assert lengths == [{"padded": group.token_ids.numel(), "packed": real, "shared_prefix": real - 2 * 14 - 9}[layout]]


def test_what_trajectories_have_in_common_is_scored_once(group, monkeypatch):
    """Of equal temperatures: the common turn has six actions."""
    scored = []

    def watched(states, *arguments, **settings):
        scored.append(len(states))
        return target_logprobs(states, *arguments, **settings)

    monkeypatch.setattr(token_logprobs, "target_logprobs", watched)
    model, actions = sharpened("qwen3"), int(group.action_mask.sum())
    for batch in (group, heated(group, 1.0)):
        for layout in ("packed", "shared_prefix"):
            action_logprobs(model, batch, layout=layout)
    assert scored == [actions, actions, actions, actions - 6]


def test_each_row_has_its_own_temperature(group):
    model = sharpened("qwen3")
    logprobs, _ = action_logprobs(model, group)
    for row, temperature in enumerate(group.temperature.tolist()):
        alone, _ = action_logprobs(model, heated(group, temperature))
        torch.testing.assert_close(logprobs[row], alone[row], rtol=0, atol=1e-6)


@pytest.mark.parametrize("layout", ["padded", *LAYOUTS])
def test_hidden_states_equal_the_bodys_and_are_zero_at_padding(layout, group):
    model = sharpened("llama")
    states = hidden_states(model, group, layout)
    for row, length in enumerate(group.attention_mask.sum(-1).tolist()):
        alone = model.get_decoder()(input_ids=group.token_ids[row : row + 1, :length]).last_hidden_state[0]
        torch.testing.assert_close(states[row, :length], alone, rtol=0, atol=1e-9)
        assert not states[row, length:].any()


@pytest.mark.parametrize("layout", ["padded", *LAYOUTS])
def test_rows_of_padding_alone_give_zeros_and_finite_gradients(layout, group):
    empty = replace(group, attention_mask=group.attention_mask.clone(), action_mask=group.action_mask.clone())
    empty.attention_mask[1:3], empty.action_mask[1:3] = 0, 0
    model = with_lora(sharpened("qwen3"))
    for without_actions in (empty, replace(empty, attention_mask=empty.attention_mask * 0, action_mask=empty.action_mask * 0)):
        logprobs, entropy = action_logprobs(model, without_actions, layout=layout, entropy_gradient=True)
        found = gradients(model, logprobs + entropy)
        assert logprobs[0].any() == without_actions.action_mask[0].any() and not logprobs[1:3].any() and not entropy[1:3].any()
        assert all(gradient.isfinite().all() for gradient in found.values())
        assert not hidden_states(model, without_actions, layout)[1:3].any()


def test_only_soft_capped_models_compute_whole_rows_of_logits(group, monkeypatch):
    monkeypatch.setattr(fused_logprobs, "COLUMNS", {"cpu": 16})
    for name, widest in (("gemma2 (soft cap)", VOCABULARY), ("llama", 0)):
        model = with_lora(sharpened(name))
        action_logprobs(model, group)
        with LogitsWatch() as watch:
            action_logprobs(model, group, chunk=4)[0].sum().backward()
        assert bool(watch.largest) == bool(widest)


@pytest.fixture
def forked() -> Batch:
    """Three trajectories with forks, two of them with a common prompt, and one without."""
    generator = torch.Generator().manual_seed(5)

    def tokens(count):
        return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()

    prompt = tokens(12)
    rows = []
    for start, more, forks in (
        (prompt, 20, [[18, 9], [25, 20]]),
        (prompt, 15, [[16, 14]]),
        ([], 21, [[10, 3], [14, 3]]),
        (prompt, 6, []),
    ):
        ids = start + tokens(more)
        first = {fork for fork, _ in forks}
        mask = [int(number >= 4 and number % 3 > 0 and number not in first) for number in range(len(ids))]
        rows.append({"token_ids": ids, "action_mask": mask, "logprobs": [0.0] * len(ids), "forks": forks})
    table = pd.DataFrame(rows).assign(temperature=[1.0, 0.8, 0.8, 1.2])
    (only,) = micro_batches(table, [1.0, -1.0, 0.5, 0.2], micro_batch_tokens=1000)
    return only


def row_by_row(model, batch):
    """Each row of each trajectory by itself, every action token in the first row that holds it: values, entropies."""
    logprobs, entropy = (torch.zeros(batch.token_ids.shape, dtype=torch.float64) for _ in range(2))
    for number, length in enumerate(batch.attention_mask.sum(-1).tolist()):
        before = batch.before[number, :length].tolist()
        done = set()
        for leaf in (token for token in range(length) if token not in before):
            row = [leaf]
            while before[row[0]] >= 0:
                row.insert(0, before[row[0]])
            new = [place for place, token in enumerate(row) if batch.action_mask[number, token] and token not in done]
            done |= set(row)
            alone = pd.DataFrame(
                [
                    {
                        "token_ids": batch.token_ids[number, row].tolist(),
                        "action_mask": [int(place in new) for place in range(len(row))],
                        "logprobs": [0.0] * len(row),
                        "temperature": batch.temperature[number].item(),
                    }
                ]
            )
            values = action_logprobs(model, micro_batches(alone, [1.0], 1000)[0], entropy_gradient=True)
            flat = [row[place] for place in new]
            for out, found in zip((logprobs, entropy), values, strict=True):
                out[number, flat] = out[number, flat] + found[0, new]
    return logprobs, entropy


@pytest.mark.parametrize("layout", ["padded", *LAYOUTS])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_a_tree_has_the_values_and_gradients_of_its_rows(name, layout, forked):
    model = with_lora(sharpened(name))
    expected, expected_entropy = row_by_row(model, forked)
    theirs = gradients(model, expected + 0.3 * expected_entropy)
    logprobs, entropy = action_logprobs(model, forked, layout=layout, entropy_gradient=True)
    assert (logprobs != 0).sum() == forked.action_mask.sum() > 40
    torch.testing.assert_close(logprobs, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(entropy, expected_entropy, rtol=0, atol=1e-9)
    ours = gradients(model, logprobs + 0.3 * entropy)
    largest = max(gradient.abs().max() for gradient in theirs.values())
    assert ours.keys() == theirs.keys()
    for parameter in ours:
        assert (ours[parameter] - theirs[parameter]).abs().max() <= 2e-6 * largest


def test_only_the_padded_layout_computes_a_shared_beginning_of_rows_again(forked):
    model = sharpened("qwen3")
    lengths = []
    model.get_decoder().register_forward_pre_hook(
        lambda module, arguments, named: lengths.append(named["input_ids"].numel()), with_kwargs=True
    )
    for layout in ("padded", *LAYOUTS):
        action_logprobs(model, forked, layout=layout)
        lengths[:] = lengths[-1:]
        real = int(forked.attention_mask.sum())
        assert lengths[0] == {"padded": 9 * 26, "packed": real}.get(layout, lengths[0])
        assert layout != "shared_prefix" or lengths[0] < real


def test_the_gradient_of_rows_that_are_taken_many_times_has_the_same_bits_each_time():
    """As of the end of a prompt that a group shares. Two threads add up the gradient of an index in an order of chance."""
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(40, 128, generator=draw, requires_grad=True)
    places, weights = torch.randint(0, 40, (4000,), generator=draw), torch.randn(4000, 128, generator=draw)

    def gradient(threads):
        torch.set_num_threads(threads)
        (found,) = torch.autograd.grad((rows_at(hidden, places) * weights).sum(), hidden)
        return found

    before = torch.get_num_threads()
    try:
        one, *more = [gradient(threads) for threads in (1, *[2] * 30)]
    finally:
        torch.set_num_threads(before)
    assert torch.equal(rows_at(hidden, places), hidden[places]) and all(torch.equal(found, one) for found in more)
