"""TRL's DPO loss on token ids as sampled.

TRL tokenises text and counts every token after the prompt as completion. Here the ids are given and the mask
excludes tool replies, so the loss is on sampled tokens alone. The passes through the model are ours: a prompt which
continuations share passes once, and the model may be partitioned over processes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase
from trl import DPOConfig as TrlConfig
from trl import DPOTrainer
from trl.trainer.utils import FusedCausalLMOutput, pad

from tracewheel.config import DpoConfig
from tracewheel.learner.batch import Batch
from tracewheel.learner.dpo.preferences import Pair
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

    `completion_mask` is 1 only on tokens that the policy sampled after the pair's common prompt. `before`, where a
    trajectory has forks, is the index of the token that each one follows.
    """
    rows = [(pair.prompt_ids, pair.chosen) for pair in pairs] + [(pair.prompt_ids, pair.rejected) for pair in pairs]
    ids = [torch.tensor(prompt + continuation.token_ids) for prompt, continuation in rows]
    masks = [torch.tensor([0] * len(prompt) + continuation.action_mask) for prompt, continuation in rows]
    tensors = {
        "input_ids": pad(ids, padding_value=padding, padding_side="right"),
        "attention_mask": pad([torch.ones_like(row) for row in ids], padding_value=0, padding_side="right"),
        "completion_mask": pad(masks, padding_value=0, padding_side="right"),
    }
    if any(continuation.forks for _, continuation in rows):
        before = torch.arange(-1, tensors["input_ids"].shape[1] - 1).repeat(len(rows), 1)
        for number, (_, continuation) in enumerate(rows):
            for start, after in continuation.forks:
                before[number, start] = after
        tensors["before"] = before
    return tensors


class Passes:
    """A model as TRL calls it, whose passes are `action_logprobs` in a layout; `before` as in `Batch`.

    TRL's figures of the mean logit and of the most likely token, which nobody reads, are 0.
    """

    def __init__(self, model: Any, layout: Layout, before: Tensor | None = None) -> None:
        self._model, self._layout, self._before = model, layout, before

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
            before=self._before,
        )
        logprobs, entropy = action_logprobs(self._model, batch, layout=self._layout)
        unread = nothing[:, 1:]
        return FusedCausalLMOutput(log_probs=logprobs[:, 1:], entropy=entropy[:, 1:], mean_logits=unread, is_top1=unread.bool())


class PreferenceLoss:
    """The loss of pairs under a policy, computed by TRL.

    Args:
        settings: Beta, the loss, and the layout of the passes.
        tokenizer: Its padding token fills the rows.
        device: Where the models are.
    """

    def __init__(self, settings: DpoConfig, tokenizer: PreTrainedTokenizerBase, device: str) -> None:
        self._layout, self._device = settings.layout, device
        self._padding = tokenizer.pad_token_id or 0
        with tempfile.TemporaryDirectory() as scratch:
            self._trl = _Trl(_never_run(), _settings(settings, scratch), tokenizer)

    def references(self, model: Any, pairs: Sequence[Pair]) -> Tensor:
        """The log-probability [2P] of each continuation under a model, the chosen ones first; without gradient."""
        tensors = self._placed(pairs)
        labels = tensors["input_ids"].masked_fill(tensors.pop("completion_mask") == 0, IGNORED)
        passes = Passes(model, self._layout, tensors.pop("before", None))
        with torch.no_grad():
            output = passes(**tensors, labels=labels)
        assert output.log_probs is not None
        return output.log_probs.sum(-1)

    def __call__(self, model: Any, pairs: Sequence[Pair], references: Tensor) -> tuple[Tensor, dict[str, float]]:
        """The mean loss of P pairs, and TRL's figures of them.

        Args:
            model: The policy.
            pairs: P pairs.
            references: [2P], as `references` returns them.
        """
        chosen, rejected = references.chunk(2)
        tensors = self._placed(pairs) | {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
        passes = Passes(model, self._layout, tensors.pop("before", None))
        loss: Tensor = self._trl.compute_loss(passes, tensors)
        return loss, {"policy_loss": loss.item(), **self._trl.figures()}

    def _placed(self, pairs: Sequence[Pair]) -> dict[str, Tensor]:
        return {name: tensor.to(self._device) for name, tensor in pair_tensors(pairs, self._padding).items()}


class _Trl(DPOTrainer):
    """TRL's trainer around a model that never runs: its loss is called with the passes of another."""

    def __init__(self, model: LlamaForCausalLM, args: TrlConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        rows = Dataset.from_dict({"nothing": [0]})
        super().__init__(model, ref_model=_never_run(), args=args, train_dataset=rows, processing_class=tokenizer)
        self.model.train()  # else its figures would be those of an evaluation
        self.precompute_ref_logps = True
        # Each process has its own pairs, and their figures are added up by their share of the step.
        self.accelerator.gather = self.accelerator.gather_for_metrics = lambda value: value

    def figures(self) -> dict[str, float]:
        """The figures of the last loss."""
        found = {ours: float(self._metrics["train"][theirs][-1]) for theirs, ours in FIGURES.items()}
        self._metrics["train"].clear()
        return found

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


def _never_run() -> LlamaForCausalLM:
    """The smallest model that TRL's trainer accepts."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes))


def _settings(settings: DpoConfig, scratch: str) -> TrlConfig:
    return TrlConfig(
        output_dir=scratch,
        beta=settings.beta,
        loss_type=[settings.loss],
        max_length=None,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
