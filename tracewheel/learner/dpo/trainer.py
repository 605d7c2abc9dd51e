"""TRL's `DPOTrainer` on token ids as sampled, in the batches of `optimiser_steps`.

TRL tokenises text and counts every token after the prompt as completion. Here the ids are given and the mask
excludes tool replies, so the loss is on sampled tokens alone. The passes through the model are ours, so that a prompt
which continuations share passes once; the loss, its gradient, clipping and the optimiser's steps are those of TRL and of
the transformers `Trainer`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback
from trl import DPOConfig as TrlConfig
from trl import DPOTrainer
from trl.trainer.utils import FusedCausalLMOutput, pad

from tracewheel.learner.batch import Batch
from tracewheel.learner.dpo.preferences import Pair
from tracewheel.learner.dpo.steps import PairBatch
from tracewheel.learner.kernels.packing import Layout
from tracewheel.learner.kernels.token_logprobs import action_logprobs

IGNORED = -100

FIGURES = {
    "entropy": "entropy",
    "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward",
    "rewards/accuracies": "preference_accuracy",
    "rewards/margins": "preference_margin",
}


def pair_tensors(pairs: Sequence[Pair], padding: int) -> dict[str, Tensor]:
    """P pairs in the form of TRL's collator: [2P, T], padded on the right, the chosen ones first.

    `completion_mask` is 1 only on tokens that the policy sampled after the pair's common prompt.
    """
    rows = [(pair.prompt_ids, pair.chosen) for pair in pairs] + [(pair.prompt_ids, pair.rejected) for pair in pairs]
    ids = [torch.tensor(prompt + continuation.token_ids) for prompt, continuation in rows]
    masks = [torch.tensor([0] * len(prompt) + continuation.action_mask) for prompt, continuation in rows]
    return {
        "input_ids": pad(ids, padding_value=padding, padding_side="right"),
        "attention_mask": pad([torch.ones_like(row) for row in ids], padding_value=0, padding_side="right"),
        "completion_mask": pad(masks, padding_value=0, padding_side="right"),
    }


class Passes:
    """A model as TRL calls it, whose passes are `action_logprobs` in a layout.

    TRL's figures of the mean logit and of the most likely token, which nobody reads, are 0.
    """

    def __init__(self, model: Any, layout: Layout) -> None:
        self._model, self._layout = model, layout

    def __call__(self, *, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **_: Any) -> FusedCausalLMOutput:
        counted = (labels != IGNORED).long()
        nothing = torch.zeros(input_ids.shape, device=input_ids.device)
        batch = Batch(
            token_ids=input_ids,
            attention_mask=attention_mask,
            action_mask=counted,
            behaviour_logprobs=nothing,
            advantages=nothing,
            turns=counted - 1,
            temperature=torch.ones(len(input_ids), device=input_ids.device),
            rows=torch.arange(len(input_ids), device=input_ids.device),
        )
        logprobs, entropy = action_logprobs(self._model, batch, layout=self._layout)
        unread = nothing[:, 1:]
        return FusedCausalLMOutput(log_probs=logprobs[:, 1:], entropy=entropy[:, 1:], mean_logits=unread, is_top1=unread.bool())


class PreferenceTrainer(DPOTrainer):
    """One pass over micro-batches in the given order; `args.gradient_accumulation_steps` of them make a step.

    Args:
        model: The policy; in a `PeftModel` it is the adapter "default".
        batches: The micro-batches.
        args: TRL's settings.
        padding: The token id of the padding on the right.
        replay_weight: The weight of the replay text's loss.
        layout: How a micro-batch lies in memory while it passes through the model.
        others: `ref_model`, `processing_class` and `optimizers` of `DPOTrainer`.
    """

    # `compute_loss` scales by the share of the step, so that micro-batches may differ in size.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: Any,
        batches: list[PairBatch],
        args: TrlConfig,
        *,
        padding: int,
        replay_weight: float,
        layout: Layout,
        **others: Any,
    ) -> None:
        self.batches = batches
        self.figures: defaultdict[str, float] = defaultdict(float)
        self._padding, self._replay_weight, self._layout = padding, replay_weight, layout
        numbers = Dataset.from_dict({"batch": list(range(len(batches)))})
        super().__init__(
            model,
            args=args,
            train_dataset=numbers,
            data_collator=lambda rows: {"batch": torch.tensor([row["batch"] for row in rows])},
            **others,
        )
        self.remove_callback(PrinterCallback)
        # Set after `super().__init__`, which would compute them before the reference's weights are loaded.
        self.precompute_ref_logps = True

    def compute_references(self) -> None:
        """Store the reference's log-probability of every continuation, computed by TRL."""
        model = Passes(self.ref_model or self.model, self._layout)
        known: dict[int, Tensor] = {}
        for batch in self.batches:
            key = id(batch.pairs)
            if key not in known:
                inputs = self._prepare_inputs(pair_tensors(batch.pairs, self._padding))
                chosen, rejected = self.compute_ref_log_probs(model, inputs)
                known[key] = torch.cat([chosen, rejected])
            batch.references = known[key]

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """TRL's loss of one micro-batch, times its share of the step, plus the replay text's."""
        batch = self.batches[int(inputs["batch"])]
        assert batch.references is not None, "compute_references comes before training"
        chosen, rejected = batch.references.chunk(2)
        tensors = pair_tensors(batch.pairs, self._padding) | {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
        loss: Tensor = super().compute_loss(Passes(model, self._layout), self._prepare_inputs(tensors))
        figures = {"policy_loss": loss.item()}
        figures |= {ours: self._metrics["train"][theirs][-1] for theirs, ours in FIGURES.items()}
        for name, value in figures.items():
            self.figures[name] += value * batch.share
        return loss * batch.share + self._replay_weight * self._replay_loss(model, batch)

    def _replay_loss(self, model: Any, batch: PairBatch) -> Tensor | float:
        total: Tensor | float = 0.0
        for text in batch.replay:
            logprobs, _ = action_logprobs(model, text.to(self.args.device))
            total = total - logprobs.sum() / batch.replay_tokens
        self.figures["replay_loss"] += float(total.detach()) if isinstance(total, Tensor) else total
        return total

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)
