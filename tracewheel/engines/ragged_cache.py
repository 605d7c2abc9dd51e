"""A key-value cache whose rows have their own lengths.

Row r holds `lengths[r]` valid positions. A forward pass picks some rows and gives each a chunk of W
tokens; keys and values land behind the row's own valid positions. Padding inside a chunk lands
there too, but no valid query may look past its own position, and the next chunk overwrites it.

Legend: S slots, R rows in a pass, W chunk width, H key-value heads, C capacity, D head dimension.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

GROWTH = 64


class RaggedLayer(CacheLayerMixin):
    """One layer's buffers, `keys` and `values` of shape [S, H, C, D]."""

    def __init__(self, cache: RaggedCache) -> None:
        super().__init__()
        self.cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        shape = (self.cache.slots, key_states.shape[1], 0, key_states.shape[3])
        self.keys, self.values = key_states.new_zeros(shape), value_states.new_zeros(shape)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store chunks [R, H, W, D] and return the rows' buffers [R, H, longest, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        cache = self.cache
        self._grow(cache.longest)
        rows = cache.rows[:, None]
        self.keys[rows, :, cache.positions] = key_states.transpose(1, 2)
        self.values[rows, :, cache.positions] = value_states.transpose(1, 2)
        if cache.all_rows:
            return self.keys[:, :, : cache.longest], self.values[:, :, : cache.longest]
        return self.keys[cache.rows, :, : cache.longest], self.values[cache.rows, :, : cache.longest]

    def _grow(self, needed: int) -> None:
        missing = needed - self.keys.shape[2]
        if missing > 0:
            room = -(-missing // GROWTH) * GROWTH
            self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, room))
            self.values = torch.nn.functional.pad(self.values, (0, 0, 0, room))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.longest, 0

    def get_seq_length(self) -> int:
        return self.cache.longest

    def get_max_length(self) -> int:
        return -1


class RaggedCache(Cache):
    """The layers' buffers and, for the pass at hand, which rows get tokens and where."""

    def __init__(self, layers: int, slots: int) -> None:
        self.slots = slots
        self.lengths = torch.zeros(slots, dtype=torch.long)
        super().__init__(layers=[RaggedLayer(self) for _ in range(layers)])

    def begin(self, rows: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Prepare a pass over `rows` [R] with chunks of `width` tokens.

        Returns:
            Position ids [R, W] and the attention mask [R, 1, W, longest], True where a query may look.
        """
        self.rows = rows
        self.all_rows = len(rows) == self.slots
        self.positions = self.lengths[rows][:, None] + torch.arange(width)
        self.longest = int(self.positions.max()) + 1
        mask = torch.arange(self.longest) <= self.positions[:, :, None]
        return self.positions, mask[:, None]
