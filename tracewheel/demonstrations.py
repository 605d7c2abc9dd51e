"""Logged episodes as examples for supervised fine-tuning: token ids and which of them count.

The classes are those of Agent-FLAN (Chen et al. 2024): whole multi-turn episodes, single formatted
calls, and negative examples in which the tool that is needed is not offered and is not invented.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracewheel.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.chat.renderer import ChatRenderer

Message = dict[str, Any]
Example = dict[str, list[int]]
DECLINE = "I have no tool for this."


def demonstration_examples(episodes: pd.DataFrame, renderer: ChatRenderer, classes: Iterable[str]) -> list[Example]:
    """Examples of the given classes from curated episodes (columns `messages` and `tools`, JSON text).

    An episode without a call gives no "formatted" and no "negative" example.

    Returns:
        Rows with `input_ids` and `assistant_masks`, lists of equal length.
    """
    builders = {"multi_turn": _multi_turn, "formatted": _formatted, "negative": _negative}
    examples = []
    for kind in classes:
        for spoken, offered in zip(episodes["messages"], episodes["tools"], strict=True):
            messages, tools = json.loads(spoken), json.loads(offered)
            if kind != "multi_turn" and not any(message.get("tool_calls") for message in messages):
                continue
            messages, tools = builders[kind](messages, tools)
            ids, mask = renderer.conversation_ids(messages, tools)
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


def _multi_turn(messages: list[Message], tools: list[Message]) -> tuple[list[Message], list[Message]]:
    return messages, tools


def _formatted(messages: list[Message], tools: list[Message]) -> tuple[list[Message], list[Message]]:
    return messages[: _first_call(messages) + 1], tools


def _negative(messages: list[Message], tools: list[Message]) -> tuple[list[Message], list[Message]]:
    first = _first_call(messages)
    needed = {call["function"]["name"] for call in messages[first]["tool_calls"]}
    offered = [tool for tool in tools if tool["function"]["name"] not in needed]
    return [*messages[:first], {"role": "assistant", "content": DECLINE}], offered


def _first_call(messages: list[Message]) -> int:
    return next(i for i, message in enumerate(messages) if message.get("tool_calls"))
