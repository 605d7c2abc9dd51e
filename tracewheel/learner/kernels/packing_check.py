"""Whether a model computes packed trajectories as if each were alone.

In half precision the states of two right computations may differ by a fifth of the largest (outliers, other kernels), so
closeness decides little. What decides is structure: the tokens of one trajectory change nothing in another, and a
trajectory's own earlier tokens change all of its later states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tracewheel.learner.kernels.packing import packed_hidden

COMMON, LENGTH = 10, 20
# Differences are relative to what a change of a trajectory's own first token makes, on average.
OTHERS = 1e-5  # same shapes, same operations: equal to the bit, measured
OTHERS_WITH_EXPERTS = {torch.float32: 1e-3, torch.float64: 1e-3}  # an expert's rows, and so its rounding, depend on others
OTHERS_WITH_EXPERTS_HALF = 0.03
ATTENTION = {torch.float32: 1e-2, torch.float64: 1e-2}
ATTENTION_HALF = 0.5  # another attention rounds at other places, in every layer


@torch.no_grad()
def mixing(inner: Any, use_own_attention: Callable[[], None]) -> str:
    """What is wrong with packed rows of this model, in a few words; empty if nothing is.

    Args:
        inner: A causal language model of transformers, in evaluation mode, with its usual attention.
        use_own_attention: Sets its attention to the one that knows segments.
    """
    body = inner.get_decoder()
    ids, others, own = _trajectories(inner.config.get_text_config().vocab_size)
    ids, others, own = (each.to(inner.device) for each in (ids, others, own))

    def padded(rows: Tensor) -> Tensor:
        hidden: Tensor = body(input_ids=rows, attention_mask=torch.ones_like(rows), use_cache=False).last_hidden_state
        return hidden

    expected = padded(ids)
    heard = (padded(own) != expected).any(-1)
    dtype = expected.dtype
    experts = any("expert" in name for name, _ in inner.named_parameters())
    tolerance = OTHERS_WITH_EXPERTS.get(dtype, OTHERS_WITH_EXPERTS_HALF) if experts else OTHERS
    use_own_attention()
    for share_prefixes in (False, True):

        def states(rows: Tensor, share_prefixes: bool = share_prefixes) -> Tensor:
            hidden, index = packed_hidden(body, rows, torch.ones_like(rows), share_prefixes)
            return hidden[index].double()

        found = states(ids)
        by_others = (states(others) - found).norm(dim=-1)
        by_own = (states(own) - found).norm(dim=-1)
        scale = by_own.mean()
        unchanged = torch.cat([by_others[1], by_others[:, :COMMON].flatten()])
        if not unchanged.max() <= tolerance * scale:
            return "another trajectory's tokens change its states"
        if (by_own[heard] == 0.0).any():
            return "its own earlier tokens do not change its states"
        if not (found - expected).norm(dim=-1).mean() <= ATTENTION.get(dtype, ATTENTION_HALF) * scale:
            return "its states are not those of the trajectory alone"
    return ""


def _trajectories(vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three trajectories [3, T] with a common beginning, and two changes of them.

    The first change is of all but the middle one, after the tokens that part them (which order the packed row); the
    second is of the first token of each.
    """
    random = torch.Generator().manual_seed(0)
    ids, others = (torch.randint(vocabulary, (3, LENGTH), generator=random) for _ in range(2))
    ids[:, :COMMON] = ids[0, :COMMON]
    ids[:, COMMON] = torch.arange(1, 4) * (vocabulary - 1) // 4
    others[:, : COMMON + 1], others[1] = ids[:, : COMMON + 1], ids[1]
    own = ids.clone()
    own[:, 0] = (own[:, 0] + vocabulary // 2) % vocabulary
    return ids, others, own
