"""Adapters in vLLM on the CPU: one product for all rows of an adapter, and none for rows without one.

vLLM 0.32 copies an adapter's weights for each token before it multiplies, which costs several times the pass of a
small model. In a batch that mixes rows with and without an adapter, it gives the latter the adapter in the last slot
(their index is -1).
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms.cpu import CpuPlatform

Rows = torch.Tensor | slice


class RowsByAdapter(PunicaWrapperCPU):
    """Applies each adapter of a batch to its own rows."""

    _groups: list[tuple[int, Rows]]
    _rows = -1

    def update_metadata(self, *arguments: Any, **named: Any) -> None:
        """Note which rows of the next pass belong to which slot."""
        super().update_metadata(*arguments, **named)
        indices = self.token_lora_indices
        self._rows = len(indices)
        slots = indices.unique().tolist()
        if len(slots) == 1:
            self._groups = [(slots[0], slice(None))] if slots[0] >= 0 else []
        else:
            self._groups = [(slot, (indices == slot).nonzero()[:, 0]) for slot in slots if slot >= 0]

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **options: Any,
    ) -> None:
        """Add to each slice of `y` [T, out] the product of `x` [T, in] with its row's adapter.

        The stacked weights have one slot per adapter: A [slots, 1, rank, in] and B [slots, 1, out, rank].
        """
        out, into = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
        if len(into) != self._rows:
            super().add_lora_linear(y, x, lora_a_stacked, lora_b_stacked, scale, output_slices, **options)
            return
        for slot, rows in self._groups:
            read, start = into[rows].float(), 0
            for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                low = read @ a[slot, 0].float().T
                added = (low * scale) @ b[slot, 0].float().T[:, :width]
                out[rows, start : start + added.shape[1]] += added.to(out.dtype)
                start += width


def install() -> None:
    """Make vLLM use `RowsByAdapter` in this process, for models that are loaded from now on."""
    name = f"{__name__}.{RowsByAdapter.__name__}"
    CpuPlatform.get_punica_wrapper = classmethod(lambda cls: name)
