"""TRL's `DPOTrainer` on token ids as they were sampled, in batches of our choosing.

TRL makes ids out of text and counts every token after the prompt as the completion. Here the ids come
ready-made and the mask leaves out what tools replied, so the loss is on sampled tokens alone. The loss,
its gradient, clipping and the optimiser's steps are TRL's and the transformers `Trainer`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback
from trl import DPOConfig as TrlConfig
from trl import DPOTrainer
from trl.trainer.utils import pad

from tracewheel.learner.dpo.preferences import Pair

if TYPE_CHECKING:
    from tracewheel.learner.batch import Batch

FIGURES = {
    "entropy": "entropy",
    "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward",
    "rewards/accuracies": "preference_accuracy",
    "rewards/margins": "preference_margin",
}


@dataclass
class Piece:
    """One micro-batch: pairs, their part of the optimiser step, and the generic text that goes with them.

    `references` [2P] are the reference's log-probabilities of the continuations, the chosen ones first.
    """

    pairs: list[Pair]
    share: float
    texts: list[Batch] = field(default_factory=list)
    text_tokens: int = 0
    references: Tensor | None = None


def tensors(pairs: Sequence[Pair], padding: int) -> dict[str, Tensor]:
    """P pairs as TRL's collator gives them: [2P, T] on the right padded, the chosen ones first.

    `completion_mask` is 1 only on tokens that the policy sampled after the pair parted.
    """
    rows = [(pair.prompt_ids, way) for way_of in ("chosen", "rejected") for pair in pairs for way in (getattr(pair, way_of),)]
    ids = [torch.tensor(prompt + way.token_ids) for prompt, way in rows]
    return {
        "input_ids": pad(ids, padding_value=padding, padding_side="right"),
        "attention_mask": pad([torch.ones_like(row) for row in ids], padding_value=0, padding_side="right"),
        "completion_mask": pad(
            [torch.tensor([0] * len(prompt) + way.action_mask) for prompt, way in rows], padding_value=0, padding_side="right"
        ),
    }


class PreferenceTrainer(DPOTrainer):
    """One pass over micro-batches in the order given; `args.gradient_accumulation_steps` of them make a step.

    Args:
        model: The policy; a `PeftModel` has it as the adapter "default".
        pieces: The micro-batches.
        args: TRL's settings.
        padding: The token id that fills the right side.
        replay_weight: The weight of the generic text's loss.
        others: `ref_model`, `processing_class` and `optimizers` of `DPOTrainer`.
    """

    # Each piece's loss already is its part of the step's mean, so that pieces may differ in size.
    loss_is_scaled_for_ga = True

    def __init__(
        self, model: Any, pieces: list[Piece], args: TrlConfig, *, padding: int, replay_weight: float, **others: Any
    ) -> None:
        self.pieces = pieces
        self.figures: defaultdict[str, float] = defaultdict(float)
        self._padding, self._replay_weight = padding, replay_weight
        rows = Dataset.from_dict({"piece": list(range(len(pieces)))})
        super().__init__(
            model,
            args=args,
            train_dataset=rows,
            data_collator=lambda rows: {"piece": torch.tensor([row["piece"] for row in rows])},
            **others,
        )
        self.remove_callback(PrinterCallback)
        # Set only now: TRL would else compute them here, before the reference's own weights are in place.
        self.precompute_ref_logps = True

    def compute_references(self) -> None:
        """Store the reference's log-probability of every continuation, by TRL's own pass."""
        model = self.ref_model or self.model
        known: dict[int, Tensor] = {}
        for piece in self.pieces:
            key = id(piece.pairs)
            if key not in known:
                chosen, rejected = self.compute_ref_log_probs(model, self._prepare_inputs(tensors(piece.pairs, self._padding)))
                known[key] = torch.cat([chosen, rejected])
            piece.references = known[key]

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """TRL's loss of one piece, times its share of the step, and the generic text's beside it."""
        piece = self.pieces[int(inputs["piece"])]
        assert piece.references is not None, "compute_references comes before training"
        chosen, rejected = piece.references.chunk(2)
        batch = tensors(piece.pairs, self._padding) | {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
        loss: Tensor = super().compute_loss(model, self._prepare_inputs(batch))
        figures = {"policy_loss": loss.item()}
        figures |= {ours: self._metrics["train"][theirs][-1] for theirs, ours in FIGURES.items()}
        for name, value in figures.items():
            self.figures[name] += value * piece.share
        return loss * piece.share + self._replay_weight * self._text_loss(model, piece)

    def _text_loss(self, model: Any, piece: Piece) -> Tensor | float:
        from tracewheel.learner.kernels.token_logprobs import action_logprobs

        total: Tensor | float = 0.0
        for batch in piece.texts:
            logprobs, _ = action_logprobs(model, batch.to(self.args.device))
            total = total - logprobs.sum() / piece.text_tokens
        self.figures["replay_loss"] += float(total.detach()) if isinstance(total, Tensor) else total
        return total

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)
