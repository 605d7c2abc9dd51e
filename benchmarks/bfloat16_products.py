"""Products of bfloat16 numbers on a processor that has no instructions for them: in float32, and rounded once at the end.

That is how an accelerator multiplies them, too: it sums in float32. torch's own products for such a processor take four
to nine times as long as in float32 (2026-11-27, one core with AVX2, products of SmolLM2's layers).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
_LIBRARY: list[torch.library.Library] = []  # what is registered lasts as long as it


@functools.cache
def multiply_in_float32() -> None:
    """From now on, in the whole process, torch's products of matrices on the CPU convert bfloat16 to float32 first."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for name in PRODUCTS:
            library.impl(name, _converted(getattr(torch, name)), "CPU")
    _LIBRARY.append(library)


def _converted(product: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def multiply(*matrices: torch.Tensor, **factors: Any) -> torch.Tensor:
        # The form that writes into a tensor is another operator, which is torch's own still.
        made = torch.empty(0, dtype=_wide(matrices[0]).dtype)
        return product(*map(_wide, matrices), **factors, out=made).to(matrices[0].dtype)

    return multiply


def _wide(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.float() if matrix.dtype == torch.bfloat16 else matrix
