"""The worlds that a tiny base policy can be trained for: tools, vocabulary and generic text of each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tracewheel import KindTable, load_class

Conversation = list[dict[str, Any]]


@dataclass(frozen=True)
class World:
    """What the training of a base needs of a world.

    Attributes:
        tools: The tools' schemas.
        pieces: Makes the strings that are one token each.
        skills: The generators of generic text by name.
        complete: Makes a complete episode of one of some task families.
    """

    tools: list[dict[str, Any]]
    pieces: Callable[[], set[str]]
    skills: Mapping[str, Callable[[random.Random], Conversation]]
    complete: Callable[[random.Random, tuple[str, ...]], Conversation]

    def conversation(
        self, rng: random.Random, skills: Mapping[str, int], complete_share: float, complete_families: tuple[str, ...]
    ) -> tuple[Conversation, list[dict[str, Any]]]:
        """One conversation of generic text, and the tools that it is told of.

        Args:
            rng: The random source.
            skills: Relative frequency of each skill.
            complete_share: Share of conversations that are complete episodes, in 0..1.
            complete_families: The task families whose complete episodes may appear.
        """
        if complete_families and rng.random() < complete_share:
            return self.complete(rng, complete_families), self.tools
        (skill,) = rng.choices(list(skills), weights=list(skills.values()))
        return self.skills[skill](rng), self.tools


# The texts of the shipped worlds stand in a checkout, beside what makes their logs.
WORLDS = KindTable(
    "tracewheel.worlds", {"workspace": "data.workspace_text:WORLD", "refund_desk": "data.refund_desk_text:WORLD"}
)


def world_of(name: str) -> Any:
    """A world by name, a `World` or what has its methods.

    Raises:
        ConfigError: there is none of this name, or its wheel is not installed.
    """
    return load_class(name, WORLDS, "world")
