"""Whom an episode's reward is for, where a program's histories part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from tracewheel.core.types import Turn

if TYPE_CHECKING:
    from tracewheel.gateway.episode_tree import EpisodeTree

Credit = Literal["all", "last", "per_agent"]


def credited_turns(tree: EpisodeTree, credit: Credit) -> list[Turn]:
    """The turns with whom their reward is for.

    `all`: every turn gets the episode's. `last`: only turns that the last one has read, as it led to the outcome; the others
    are not trained on. `per_agent`: each agent's turns are compared with those of the same agent in other episodes, and get
    the part `agent.<name>` of the verifier's breakdown where it has one.
    """
    if credit == "all":
        return list(tree.turns)
    if credit == "per_agent":
        agents = {number: branch.agent for branch in tree.branches for number in branch.turns}
        return [replace(turn, credit=agents[number] or None) for number, turn in enumerate(tree.turns)]
    last = set(tree.last_row)
    return [replace(turn, credit=None if turn.end - 1 in last else "") for turn in tree.turns]
