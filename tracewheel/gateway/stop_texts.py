"""Texts before which a turn ends, as a program asks for them.

A turn that goes on behind such a text is cut after the token that completes it. What was sampled up to there is a sample of a
policy that stops at this text; the rest was never said and is not kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

CHARACTER = 8  # tokens, more than a character has


def cut_at_stop(renderer: ChatRenderer, ids: list[int], stops: Sequence[str]) -> tuple[list[int], str, str | None]:
    """Cut a turn at the first of some texts.

    Returns:
        The ids that were said, their text without the end token and before the stop, and the stop that was found or None.
    """
    words = ids[:-1] if ids[-1] in renderer.end_of_turn_ids else ids
    text = renderer.decode(words)
    found = [(text.find(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return ids, text, None
    at, stop = min(found)
    counts = range(1, len(words) + 1)
    first = bisect_left(counts, at + len(stop), key=lambda count: len(renderer.decode(words[:count])))
    # A character of several tokens is several marks before it is whole: the least count may be a little less.
    near = counts[max(0, first - CHARACTER) :]
    count = next(count for count in near if len(renderer.decode(words[:count])) >= at + len(stop))
    return ids[:count], text[:at], stop
