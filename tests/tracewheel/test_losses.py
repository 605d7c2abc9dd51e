"""The losses by hand, blind to masked tokens, and the same however a step is cut into micro-batches."""

import math

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from tracewheel.batch import micro_batches, step_totals
from tracewheel.losses import Diagnostics, StepTotals, aggregate, grpo_loss, policy_loss
from tracewheel.token_logprobs import action_logprobs

RATIOS = torch.tensor([[1.5, 0.5, 1.1], [1.5, 0.5, 9.0]], dtype=torch.double)
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
ADVANTAGES = torch.tensor([1.0, -2.0], dtype=torch.double)
TOTALS = StepTotals(tokens=5, sequences=2)
# Row 1: min(1.5, 1.2), min(0.5, 0.8), 1.1 are cut at 1.2 only. Row 2, A = -2: 1.5 stays, 0.5 is cut at 0.8.
TERMS = [[-1.2, -0.5, -1.1], [3.0, 1.6]]


def test_clipped_surrogate_by_hand():
    by_token, diagnostics = policy_loss(RATIOS.log(), torch.zeros(2, 3), ADVANTAGES, MASK, TOTALS, clip=0.2)
    assert by_token.item() == pytest.approx((sum(TERMS[0]) + sum(TERMS[1])) / 5)
    by_sequence, _ = policy_loss(RATIOS.log(), torch.zeros(2, 3), ADVANTAGES, MASK, TOTALS, clip=0.2, aggregation="sequence")
    assert by_sequence.item() == pytest.approx((sum(TERMS[0]) / 3 + sum(TERMS[1]) / 2) / 2)
    assert diagnostics.clip_share == pytest.approx(2 / 5)
    assert diagnostics.ratio_mean == pytest.approx((1.5 + 0.5 + 1.1 + 1.5 + 0.5) / 5)
    assert diagnostics.ratio_max == pytest.approx(1.5)
    ratios = [1.5, 0.5, 1.1, 1.5, 0.5]
    assert diagnostics.behaviour_kl == pytest.approx(sum(r - 1 - math.log(r) for r in ratios) / 5)


def test_clip_high_widens_the_upper_side_only():
    loss, diagnostics = policy_loss(
        RATIOS.log(), torch.zeros(2, 3), ADVANTAGES, MASK, TOTALS, clip=0.2, clip_high=0.4, aggregation="token"
    )
    assert loss.item() == pytest.approx((-1.4 - 0.5 - 1.1 + 3.0 + 1.6) / 5)
    assert diagnostics.clip_share == pytest.approx(2 / 5)


def test_advantages_may_differ_from_token_to_token():
    by_row, _ = policy_loss(RATIOS.log(), torch.zeros(2, 3), ADVANTAGES, MASK, TOTALS, clip=0.2)
    by_token, _ = policy_loss(RATIOS.log(), torch.zeros(2, 3), ADVANTAGES[:, None].expand(2, 3), MASK, TOTALS, clip=0.2)
    assert by_row.item() == by_token.item()


@pytest.mark.parametrize(("correct", "factor"), [(False, [1.0, 1.0]), (True, [2.0, 0.5])])
def test_kl_term_by_hand(correct, factor):
    logprobs = torch.tensor([[math.log(2.0), math.log(0.5)]])
    loss = grpo_loss(
        logprobs,
        torch.zeros(1, 2),
        torch.zeros(1, 2),
        torch.zeros(1),
        torch.ones(1, 2),
        StepTotals(2, 1),
        clip=0.2,
        kl=0.1,
        correct_kl=correct,
    )
    terms = [0.5 - 1 + math.log(2), 2 - 1 - math.log(2)]
    assert loss.kl.item() == pytest.approx(sum(terms) / 2)
    assert loss.policy.item() == 0.0
    assert loss.loss.item() == pytest.approx(0.1 * sum(t * f for t, f in zip(terms, factor, strict=True)) / 2)


def test_without_reference_there_is_no_kl_and_no_weight_for_it():
    zeros = torch.zeros(1, 2)
    loss = grpo_loss(zeros, zeros, None, torch.ones(1), torch.ones(1, 2), StepTotals(2, 1), clip=0.2, kl=0.0)
    assert loss.kl is None and loss.loss.item() == -1.0
    with pytest.raises(ValueError, match="reference"):
        grpo_loss(zeros, zeros, None, torch.ones(1), torch.ones(1, 2), StepTotals(2, 1), clip=0.2, kl=0.1)


def test_with_weight_zero_the_kl_is_reported_and_left_out():
    logprobs = torch.tensor([[math.log(0.5)]])
    loss = grpo_loss(logprobs, logprobs, torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1), StepTotals(1, 1), clip=0.2, kl=0.0)
    assert loss.loss.item() == loss.policy.item() == -1.0
    assert loss.kl.item() == pytest.approx(1 - math.log(2))


def test_a_sequence_without_actions_counts_as_a_sequence_and_adds_nothing():
    values, mask = torch.tensor([[2.0, 4.0], [7.0, 7.0]]), torch.tensor([[1, 1], [0, 0]])
    assert aggregate(values, mask, "sequence", StepTotals(tokens=2, sequences=2)).item() == 1.5
    assert aggregate(values, mask, "token", StepTotals(tokens=2, sequences=2)).item() == 3.0
    _, diagnostics = policy_loss(values, values, torch.ones(2), torch.zeros(2, 2), StepTotals(0, 2), clip=0.2)
    assert diagnostics == Diagnostics()


number = st.floats(-30, 0, width=32)
anything = st.one_of(number, st.sampled_from([math.nan, math.inf, -math.inf, 1e30]))


@st.composite
def masked_problems(draw):
    """A batch, and the same batch with other values wherever the mask is 0."""
    rows, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    size = rows * tokens

    def grid(element):
        return torch.tensor(draw(st.lists(element, min_size=size, max_size=size))).view(rows, tokens)

    mask = grid(st.integers(0, 1))
    first = [grid(st.floats(-5, 0, width=32)) for _ in range(3)]
    second = [torch.where(mask.bool(), values, grid(anything)) for values in first]
    advantages = torch.tensor(draw(st.lists(st.floats(-3, 3, width=32), min_size=rows, max_size=rows)))
    return mask, first, second, advantages


@given(masked_problems(), st.sampled_from(["token", "sequence"]), st.sampled_from([0.0, 0.1]), st.booleans())
def test_masked_tokens_change_neither_loss_nor_gradient(problem, aggregation, kl, correct):
    mask, first, second, advantages = problem
    totals = StepTotals(int(mask.sum()), len(mask))
    outcomes = []
    for logprobs, behaviour, reference in (first, second):
        logprobs = logprobs.clone().requires_grad_()
        loss = grpo_loss(
            logprobs,
            behaviour,
            reference,
            advantages,
            mask,
            totals,
            clip=0.2,
            kl=kl,
            aggregation=aggregation,
            correct_kl=correct,
        )
        loss.loss.backward()
        outcomes.append((loss.loss.detach(), loss.policy, loss.kl, loss.diagnostics, logprobs.grad))
    before, after = outcomes
    assert all(torch.equal(a, b) for a, b in zip(before[:3], after[:3], strict=True))
    assert before[3] == after[3]
    assert torch.equal(before[4], after[4])
    assert torch.isfinite(before[4]).all() and (before[4][mask == 0] == 0).all()


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


def step(policy, batches, advantages_by_row, aggregation):
    """One optimiser step's loss, diagnostics and gradients, accumulated over `batches`."""
    policy.zero_grad()
    totals, loss, diagnostics = step_totals(batches), 0.0, Diagnostics()
    for batch in batches:
        assert torch.equal(batch.advantages, advantages_by_row[batch.rows])
        logprobs, _ = action_logprobs(policy, batch, temperature=1.0, chunk=16)
        part = grpo_loss(
            logprobs,
            batch.behaviour_logprobs,
            torch.full_like(logprobs, -3.0),
            batch.advantages,
            batch.action_mask,
            totals,
            clip=0.2,
            kl=0.05,
            aggregation=aggregation,
        )
        part.loss.backward()
        loss += part.loss.item()
        diagnostics = diagnostics + part.diagnostics
    return loss, diagnostics, [parameter.grad.clone() for parameter in policy.parameters()]


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_micro_batches_add_up_to_the_whole_step(policy, trajectories, aggregation):
    advantages = torch.linspace(-1.5, 2.0, len(trajectories))
    whole = micro_batches(trajectories, advantages, 10**6)
    assert len(whole) == 1
    loss, diagnostics, gradients = step(policy, whole, advantages, aggregation)
    assert abs(loss) > 0.01
    for micro_batch_tokens in (1, 40, 64):
        parts = micro_batches(trajectories, advantages, micro_batch_tokens)
        assert len(parts) > 2
        part_loss, part_diagnostics, part_gradients = step(policy, parts, advantages, aggregation)
        assert part_loss == pytest.approx(loss, rel=0, abs=1e-6)
        assert part_diagnostics.clip_share == pytest.approx(diagnostics.clip_share)
        assert part_diagnostics.ratio_max == pytest.approx(diagnostics.ratio_max, rel=1e-5)
        scale = max(gradient.abs().max() for gradient in gradients)
        for one, other in zip(gradients, part_gradients, strict=True):
            assert (one - other).abs().max() <= 1e-6 * scale


def test_what_fills_the_padding_does_not_matter(policy, trajectories):
    advantages = torch.linspace(-1.5, 2.0, len(trajectories))
    outcomes = [step(policy, micro_batches(trajectories, advantages, 10**6, fill), advantages, "token") for fill in (0, 7)]
    assert outcomes[0][:2] == outcomes[1][:2]
    for one, other in zip(outcomes[0][2], outcomes[1][2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_only_action_tokens_are_projected_onto_the_vocabulary(policy, trajectories):
    """So the logits that would predict an observation do not even exist, and can have no gradient."""
    (batch,) = micro_batches(trajectories, [1.0] * len(trajectories), 10**6)
    action_logprobs(policy, batch, temperature=1.0)
    shapes = []
    hook = policy.get_output_embeddings().register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    try:
        action_logprobs(policy, batch, temperature=1.0, chunk=10**6)
    finally:
        hook.remove()
    assert shapes == [(int(batch.action_mask.sum()), 40)]
