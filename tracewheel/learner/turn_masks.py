"""The masks that tokens were drawn under, in turns that a grammar held.

They are not stored: the same grammar over the same tokens gives them again. A learner that scored such tokens among the whole
vocabulary would learn from another distribution than the one they were drawn from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracewheel.chat.grammar import Grammar, GrammarError, Grammars
from tracewheel.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

MASKS = "masks"  # the column of a table of trajectories


@dataclass(frozen=True)
class RowMasks:
    """`numbers` [T] of the mask in `bits` [M, W] that each token was drawn under, -1 where any token could come."""

    numbers: list[int]
    bits: np.ndarray


def with_masks(trajectories: pd.DataFrame, base: str) -> pd.DataFrame:
    """The rows with a column `masks`, of `RowMasks` or None; as they are where no turn was held to a grammar.

    Args:
        trajectories: Rows of `Trajectory.to_record`.
        base: Whose tokenizer the policy has.

    Raises:
        DataError: a turn is not of its grammar.
    """
    if "grammars" not in trajectories or not trajectories["grammars"].map(_is_given).any():
        return trajectories
    import pandas as pd

    from tracewheel.chat.tokenizer import load_tokenizer
    from tracewheel.policy.adapters import base_folder

    grammars = Grammars(load_tokenizer(base_folder(base)))
    found = [_masks(grammars, row) for row in trajectories.to_dict("records")]
    return trajectories.assign(**{MASKS: pd.Series(found, index=trajectories.index, dtype=object)})


def _is_given(value: Any) -> bool:
    return isinstance(value, str) and value != "{}"


def _masks(grammars: Grammars, row: Mapping[Any, Any]) -> RowMasks | None:
    """The masks of a trajectory; equal ones are kept once, and most places of a long answer have few."""
    if not _is_given(row["grammars"]):
        return None
    known = json.loads(row["grammars"])
    ids, numbers = list(row["token_ids"]), [-1] * len(row["token_ids"])
    distinct: dict[bytes, int] = {}
    for turn in json.loads(row["turns"]):
        if turn.get("grammar") is None:
            continue
        try:
            masks = grammars.masks(Grammar.of(known[turn["grammar"]]), ids[turn["start"] : turn["end"]])
        except (GrammarError, KeyError) as error:
            raise DataError(
                f"trajectory {row['id']}: the turn at token {turn['start']} is not of its grammar: {error}"
            ) from error
        for place, mask in enumerate(masks, turn["start"]):
            numbers[place] = distinct.setdefault(mask.tobytes(), len(distinct))
    if not distinct:
        return None
    return RowMasks(numbers, np.stack([np.frombuffer(mask, dtype=np.int32) for mask in distinct]))
