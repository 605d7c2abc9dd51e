"""Logged episodes as examples for supervised fine-tuning: token ids and which of them count.

The classes are those of Agent-FLAN; `curation/agent_flan.py` makes them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tracewheel.core.errors import DataError
from tracewheel.curation.agent_flan import flan_example, opening_lengths

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.chat.renderer import ChatRenderer

Example = dict[str, list[int]]


def demonstration_examples(episodes: pd.DataFrame, renderer: ChatRenderer, classes: Iterable[str]) -> list[Example]:
    """Examples of the given classes from curated episodes.

    What counts is what `flan_example` says: no turn that is context in one example counts there again.

    Args:
        episodes: Columns `messages` and `tools` (JSON text), and `opening`: how many of the messages are an earlier
            conversation. Where that is missing there is none.
        renderer: Of the policy that is to imitate them.
        classes: Names of `agent_flan.CLASSES`.

    Returns:
        Rows with `input_ids` and `assistant_masks`, lists of equal length.

    Raises:
        DataError: an `opening` is no number of messages.
    """
    openings = opening_lengths(episodes)
    examples = []
    for kind in classes:
        for spoken, offered, opening in zip(episodes["messages"], episodes["tools"], openings, strict=True):
            made = flan_example(kind, json.loads(spoken), json.loads(offered), opening)
            if made:
                ids, mask = renderer.conversation_ids(*made)
                examples.append({"input_ids": ids, "assistant_masks": mask})
    return examples


def with_replay(examples: list[Example], replay: pd.DataFrame, share: float, seed: int) -> list[Example]:
    """Add generic rows until they make up `share` of all.

    Raises:
        DataError: the replay text has too few rows.
    """
    wanted = round(len(examples) * share / (1.0 - share)) if share < 1.0 else len(replay)
    if wanted > len(replay):
        raise DataError(f"warm_start.replay: {wanted} rows of replay text are wanted, there are {len(replay)}; lower the share")
    chosen = random.Random(f"replay-{seed}").sample(range(len(replay)), wanted)
    rows = replay.iloc[chosen]
    columns = zip(rows["input_ids"], rows["assistant_masks"], strict=True)
    return examples + [{"input_ids": list(map(int, ids)), "assistant_masks": list(map(int, mask))} for ids, mask in columns]
