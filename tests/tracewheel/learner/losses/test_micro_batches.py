"""The loss and the gradients of a step are the same however it is cut into micro-batches and padded."""

import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from tracewheel.config import CispoConfig, ClipConfig, GspoConfig, KlConfig, SapoConfig
from tracewheel.learner.batch import micro_batches, step_totals
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.losses.aggregation import aggregate
from tracewheel.learner.losses.policy import Diagnostics, PolicyTokens, policy_loss
from tracewheel.learner.losses.ratios import kl_term


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(5.0)
    return model


@pytest.fixture
def trajectories() -> pd.DataFrame:
    generator = torch.Generator().manual_seed(2)
    rows = []
    for length in (30, 7, 12, 25, 18, 9, 21, 14):
        mask = (torch.rand(length, generator=generator) < 0.5).long()
        mask[0], mask[-1] = 0, 1
        logprobs = -3 * torch.rand(length, generator=generator) * mask
        ids = torch.randint(0, 40, (length,), generator=generator)
        rows.append({"token_ids": ids.tolist(), "action_mask": mask.tolist(), "logprobs": logprobs.tolist()})
    return pd.DataFrame(rows)


def step(policy, batches, aggregation, surrogate):
    """One optimiser step's loss, diagnostics and gradients, accumulated over `batches`."""
    policy.zero_grad()
    totals, loss, diagnostics = step_totals(batches, length=32), 0.0, Diagnostics()
    for batch in batches:
        logprobs, _ = action_logprobs(policy, batch, chunk=16)
        tokens = PolicyTokens(logprobs, batch.behaviour_logprobs, batch.advantages, batch.action_mask)
        part = policy_loss(surrogate, tokens, totals, aggregation)
        reference = torch.full_like(logprobs, -3.0)
        kl = kl_term(KlConfig(), logprobs, reference, batch.behaviour_logprobs, batch.action_mask)
        whole = part.loss + 0.05 * aggregate(kl, batch.action_mask, aggregation, totals)
        whole.backward()
        loss += whole.item()
        diagnostics = diagnostics + part.diagnostics
    return loss, diagnostics, [parameter.grad.clone() for parameter in policy.parameters()]


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
@pytest.mark.parametrize("surrogate", [ClipConfig(), CispoConfig(), GspoConfig(), SapoConfig()], ids=lambda c: c.kind)
def test_micro_batches_add_up_to_the_whole_step(policy, trajectories, aggregation, surrogate):
    advantages = torch.linspace(-1.5, 2.0, len(trajectories)).tolist()
    whole = micro_batches(trajectories, advantages, 10**6)
    assert len(whole) == 1
    loss, diagnostics, gradients = step(policy, whole, aggregation, surrogate)
    assert abs(loss) > 0.01
    for micro_batch_tokens in (1, 40, 64):
        parts = micro_batches(trajectories, advantages, micro_batch_tokens)
        assert len(parts) > 2
        part_loss, part_diagnostics, part_gradients = step(policy, parts, aggregation, surrogate)
        assert part_loss == pytest.approx(loss, rel=1e-6, abs=1e-6)
        assert part_diagnostics.clip_share == pytest.approx(diagnostics.clip_share)
        assert part_diagnostics.ratio_max == pytest.approx(diagnostics.ratio_max, rel=1e-5)
        scale = max(gradient.abs().max() for gradient in gradients)
        for one, other in zip(gradients, part_gradients, strict=True):
            assert (one - other).abs().max() <= 2e-6 * scale


def test_padding_ids_do_not_change_the_step(policy, trajectories):
    advantages = torch.linspace(-1.5, 2.0, len(trajectories)).tolist()
    outcomes = [step(policy, micro_batches(trajectories, advantages, 10**6, fill), "token", ClipConfig()) for fill in (0, 7)]
    assert outcomes[0][:2] == outcomes[1][:2]
    for one, other in zip(outcomes[0][2], outcomes[1][2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


class _Widths(TorchDispatchMode):
    """Collects the shapes of all tensors as wide as the vocabulary."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.rows = vocabulary, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.ndim and result.shape[-1] == self.vocabulary:
            self.rows.append(result.numel() // self.vocabulary)
        return result


def test_only_action_tokens_are_projected_onto_the_vocabulary(policy, trajectories):
    """So the logits that would predict an observation do not even exist, and can have no gradient."""
    (batch,) = micro_batches(trajectories, [1.0] * len(trajectories), 10**6)
    with _Widths(40) as widths:
        action_logprobs(policy, batch, chunk=10**6)
    assert max(widths.rows) == batch.action_mask.sum() < batch.token_ids.numel() / 2
