"""Logged episodes as examples for supervised fine-tuning: token ids and loss masks.

The classes are those of Agent-FLAN, from `curation/agent_flan.py`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracewheel.chat.faithful import why_unfaithful
from tracewheel.core.errors import DataError
from tracewheel.curation.agent_flan import flan_example
from tracewheel.curation.openings import NOT_WHOLE, opening_lengths, whole_episodes

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.chat.renderer import ChatRenderer

Example = dict[str, Any]


def demonstration_examples(
    episodes: pd.DataFrame, renderer: ChatRenderer, classes: Iterable[str], left_out: Counter[str] | None = None
) -> list[Example]:
    """Examples of the given classes from curated episodes.

    `flan_example` chooses the turns in the loss: a turn that is context in an example is not in its loss. No example teaches a
    turn that was cut, or failed (`whole_episodes`).

    Args:
        episodes: Columns `messages` and `tools` (JSON text), and optionally `opening`: the number of first messages
            that belong to an earlier conversation.
        renderer: That of the policy to train.
        classes: Names of `agent_flan.CLASSES`.
        left_out: Counts by reason the examples that the chat template cannot write as they were said (`chat/faithful.py`), and
            the episodes that end with a turn which is not whole.

    Returns:
        Rows with `input_ids` and `assistant_masks`, lists of equal length, and `forks` where the template rewrites turns.

    Raises:
        DataError: an `opening` is not a number of messages.
    """
    whole = whole_episodes(episodes)
    if left_out is not None and len(whole) < len(episodes):
        left_out[NOT_WHOLE] += len(episodes) - len(whole)
    openings = opening_lengths(whole)
    examples = []
    for kind in classes:
        for spoken, offered, opening in zip(whole["messages"], whole["tools"], openings, strict=True):
            made = flan_example(kind, json.loads(spoken), json.loads(offered), opening)
            if made and (problem := why_unfaithful(renderer, *made)):
                if left_out is not None:
                    left_out[problem] += 1
            elif made:
                rendered = renderer.conversation(*made)
                example = {"input_ids": rendered.ids, "assistant_masks": rendered.mask}
                examples.append({**example, "forks": rendered.forks} if rendered.forks else example)
    return examples


def with_replay(examples: list[Example], replay: pd.DataFrame, share: float, seed: int) -> list[Example]:
    """Add rows of replay text until they make up `share` of all examples.

    Raises:
        DataError: the replay text has too few rows.
    """
    wanted = round(len(examples) * share / (1.0 - share)) if share < 1.0 else len(replay)
    if wanted > len(replay):
        raise DataError(
            f"warm_start.replay: {wanted} rows of replay text are needed, the file has {len(replay)}; lower the share"
        )
    chosen = random.Random(f"replay-{seed}").sample(range(len(replay)), wanted)
    rows = replay.iloc[chosen]
    columns = zip(rows["input_ids"], rows["assistant_masks"], strict=True)
    return examples + [{"input_ids": list(map(int, ids)), "assistant_masks": list(map(int, mask))} for ids, mask in columns]
