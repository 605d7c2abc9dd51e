"""One tiny base policy for the assistant and retrieval QA."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tracewheel_projects import World
from tracewheel_worlds.assistant.base_text import WORLD as ASSISTANT
from tracewheel_worlds.retrieval.base_text import WORLD as RETRIEVAL

Conversation = list[dict[str, Any]]


@dataclass(frozen=True)
class JoinedWorlds:
    """Several worlds for one base: skills and families are named as in `assistant.repeat`.

    Attributes:
        worlds: The worlds by name.
    """

    worlds: Mapping[str, World]

    @property
    def skills(self) -> dict[str, Callable[[random.Random], Conversation]]:
        return {f"{name}.{skill}": make for name, world in self.worlds.items() for skill, make in world.skills.items()}

    def pieces(self) -> set[str]:
        return set().union(*(world.pieces() for world in self.worlds.values()))

    def conversation(
        self, rng: random.Random, skills: Mapping[str, int], complete_share: float, complete_families: tuple[str, ...]
    ) -> tuple[Conversation, list[dict[str, Any]]]:
        """As `World.conversation`, of one of the worlds, each as often as the weights of its skills say."""
        (chosen,) = rng.choices(list(skills), weights=list(skills.values()))
        name = chosen.partition(".")[0]
        return self.worlds[name].conversation(
            rng, _of(name, skills), complete_share, tuple(_of(name, dict.fromkeys(complete_families)))
        )


def _of(world: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs to a world, without its name."""
    return {name.removeprefix(f"{world}."): value for name, value in named.items() if name.startswith(f"{world}.")}


WORLD = JoinedWorlds({"assistant": ASSISTANT, "retrieval": RETRIEVAL})
