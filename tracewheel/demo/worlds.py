"""The worlds that a tiny base policy can be trained for: tools, vocabulary and generic text of each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tracewheel.demo import assistant_text, base_text, refund_desk_text, retrieval_text
from tracewheel.demo.base_tokenizer import workspace_pieces
from tracewheel.environments.assistant import environment as assistant
from tracewheel.environments.refund_desk import environment as refund_desk
from tracewheel.environments.retrieval import environment as retrieval
from tracewheel.environments.workspace import environment as workspace

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


_SINGLE: dict[str, World] = {
    "workspace": World(workspace.TOOLS, workspace_pieces, base_text.SKILLS, base_text.complete),
    "refund_desk": World(refund_desk.TOOLS, refund_desk_text.pieces, refund_desk_text.SKILLS, refund_desk_text.complete),
    "assistant": World(assistant.TOOLS, assistant_text.pieces, assistant_text.SKILLS, assistant_text.complete),
    "retrieval": World(retrieval.TOOLS, retrieval_text.pieces, retrieval_text.SKILLS, retrieval_text.complete),
}
WORLDS: dict[str, World | JoinedWorlds] = {
    **_SINGLE,
    "mixed": JoinedWorlds({name: _SINGLE[name] for name in ("assistant", "retrieval")}),
}
