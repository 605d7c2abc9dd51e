"""What a check of a profile says, and what earlier checks have found for later ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tracewheel.config import RetrainConfig
from tracewheel.core.types import Task, Trace
from tracewheel.curation.replay import Replay

FEW = 6  # tasks or episodes, that say little of the others
State = Literal["ok", "warning", "error", "skipped"]


@dataclass(frozen=True)
class Line:
    """One thing that was checked.

    Attributes:
        name: What, as in "replays".
        state: "error" stands in the way of a run.
        says: What was found.
        advice: What to do, where something is wrong.
    """

    name: str
    state: State
    says: str
    advice: str = ""


@dataclass
class Looked:
    """What earlier checks have found, for later ones."""

    config: RetrainConfig
    traces: list[Trace] = field(default_factory=list)
    replays: list[tuple[Trace, Replay]] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    has_base: bool = False
    whole: bool = False  # whether these are all logs, so that what is wrong with all of them stands in the way

    @property
    def worst(self) -> State:
        return "error" if self.whole else "warning"


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
