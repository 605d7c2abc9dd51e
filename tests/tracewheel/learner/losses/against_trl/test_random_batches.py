"""TRL's loss on random log-probabilities and masks: only its pass through the model is replaced."""

import pytest
import torch

from tracewheel.learner.losses.aggregation import StepTotals
from tracewheel.learner.losses.policy import PolicyTokens


def random_inputs(generator: torch.Generator, longest: int) -> dict[str, torch.Tensor]:
    """A micro-batch in TRL's form, with log-probabilities far apart and random masks."""
    rows, tokens = (int(torch.randint(1, high, (), generator=generator)) for high in (6, longest + 1))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    mask = (torch.rand(rows, tokens, generator=generator) < 0.8).long()
    tool_mask = (torch.rand(rows, tokens, generator=generator) < 0.7).long()
    old = -normal(rows, tokens).abs()
    return {
        "prompt_ids": torch.zeros(rows, 1, dtype=torch.long),
        "prompt_mask": torch.ones(rows, 1, dtype=torch.long),
        "completion_ids": torch.zeros(rows, tokens, dtype=torch.long),
        "completion_mask": mask,
        "tool_mask": tool_mask,
        "advantages": normal(rows) * (torch.rand(rows, generator=generator) < 0.9),
        "old_per_token_logps": old,
        "ref_per_token_logps": old + 0.5 * normal(rows, tokens),
        "logprobs": old + 0.3 * normal(rows, tokens),
    }


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_loss_and_gradient_equal_trl(make_trainer, whole_loss, generation, algorithm, beta):
    trainer = make_trainer(algorithm, beta=beta, corrected=algorithm.corrected)
    trainer.current_gradient_accumulation_steps = 2
    generator = torch.Generator().manual_seed(3)
    clipped, largest = 0.0, 0.0
    for _ in range(40):
        inputs = random_inputs(generator, generation.longest)
        theirs_in, ours_in = (inputs["logprobs"].clone().requires_grad_() for _ in range(2))
        trainer._get_per_token_logps_and_entropies = lambda *_, given=theirs_in, **__: (given, torch.zeros_like(given), None)
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        # The trainer has two micro-batches a step; the other one is as large.
        totals = StepTotals(tokens=max(2 * int(mask.sum()), 1), sequences=2 * len(mask), length=generation.longest)
        inputs["num_items_in_batch"] = torch.tensor(float(totals.tokens))
        theirs = trainer.trl_loss(trainer.model, inputs)
        assert set(algorithm.lines) <= trainer.lines
        advantages = inputs["advantages"].unsqueeze(1).expand_as(mask)
        tokens = PolicyTokens(ours_in, inputs["old_per_token_logps"], advantages, mask)
        reference = inputs["ref_per_token_logps"]
        ours = whole_loss(algorithm, tokens, reference, totals, beta=beta, corrected=algorithm.corrected)
        assert ours.loss.item() == pytest.approx(theirs.item(), rel=0, abs=1e-6)
        theirs.backward()
        ours.loss.backward()
        torch.testing.assert_close(ours_in.grad, theirs_in.grad, rtol=0, atol=1e-6)
        clipped, largest = clipped + ours.diagnostics.clipped, max(largest, abs(theirs.item()))
    assert largest > 0.3
    assert (clipped > 0) == algorithm.clips
