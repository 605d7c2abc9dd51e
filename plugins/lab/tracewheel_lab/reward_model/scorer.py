"""Scores of a trained reward model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tracewheel import DataError, read_json
from tracewheel_lab.reward_model.calibration import Platt

ABOUT_FILE, MEMBER = "reward_model.json", "member-"
TOKENS = 16_384  # in a pass


class RewardModel:
    """An ensemble in a folder of `tracewheel train-reward-model`.

    Args:
        folder: The folder.
        deviations: k in the members' mean minus k standard deviations; None for that of its training.

    Raises:
        DataError: the folder holds no reward model.
    """

    def __init__(self, folder: Path, deviations: float | None = None) -> None:
        from transformers import AutoModelForSequenceClassification

        if not (folder / ABOUT_FILE).is_file():
            raise DataError(f"{folder}: no {ABOUT_FILE}; give a folder that `tracewheel train-reward-model` wrote")
        about = read_json(folder / ABOUT_FILE)
        self._platt = Platt(about["slope"], about["shift"])
        self._deviations = about["settings"]["deviations"] if deviations is None else deviations
        self._members: list[Any] = [
            AutoModelForSequenceClassification.from_pretrained(member, dtype="float32").eval()
            for member in sorted(folder.glob(f"{MEMBER}*"))
        ]

    def scores(self, episodes: Sequence[Sequence[int]]) -> list[float]:
        """The members' mean minus k standard deviations of each episode's token ids; the same in any batch to rounding."""
        values = torch.stack([self._of_member(member, episodes) for member in self._members])  # [members, episodes]
        return cautious(values, self._deviations).tolist()

    def probability(self, token_ids: Sequence[int]) -> tuple[float, float]:
        """The calibrated probability of success, and the members' standard deviation."""
        values = torch.stack([self._of_member(member, [token_ids]) for member in self._members])
        return self._platt.probability(float(cautious(values, self._deviations)[0])), float(values.std(0, unbiased=False)[0])

    @staticmethod
    def _of_member(member: Any, episodes: Sequence[Sequence[int]]) -> torch.Tensor:
        found = torch.zeros(len(episodes), dtype=torch.float64)
        order = sorted(range(len(episodes)), key=lambda place: len(episodes[place]))
        while order:
            size = max(1, TOKENS // len(episodes[order[0]]))
            batch = order[:size]
            while len(batch) > 1 and len(batch) * len(episodes[batch[-1]]) > TOKENS:
                batch.pop()
            del order[: len(batch)]
            longest = max(len(episodes[place]) for place in batch)
            ids = torch.full((len(batch), longest), member.config.get_text_config().pad_token_id)
            mask = torch.zeros_like(ids)
            for row, place in enumerate(batch):
                ids[row, : len(episodes[place])] = torch.tensor(list(episodes[place]))
                mask[row, : len(episodes[place])] = 1
            with torch.no_grad():
                logits = member(input_ids=ids, attention_mask=mask).logits[:, 0]
            found[batch] = logits.double()
        return found


def cautious(values: torch.Tensor, deviations: float) -> torch.Tensor:
    """Mean minus k standard deviations over members.

    Args:
        values: [members, episodes].
        deviations: k.
    """
    return values.mean(0) - deviations * values.std(0, unbiased=False)
