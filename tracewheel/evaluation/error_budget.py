"""How the error of a year of gates is divided between them.

Each gate tests at its own level, and the levels of any 365 days sum to at most the budget. By the union bound the probability
of a false promotion in a year is then at most the budget, whatever the dependence between the gates: they may reuse the
same held-out tasks, and each challenger may descend from the one before. `docs/gate.md` has the derivation.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracewheel.config import GateConfig

# The share of the budget that the first gates of a work folder get beyond the others, each half as much as the one before.
FIRST_SHARE = 0.25
# What to do where it is spent.
ANOTHER_PLAN = (
    "set gate.gates_per_year to the number of gates that you run in a year (52 for one each week): refused gates then count by "
    "the new plan"
)


@dataclass(frozen=True)
class Look:
    """The place of a gate in the sequence of gates.

    Attributes:
        number: 1 for the first gate of a work folder.
        spent: Sum of the levels of the gates of the 365 days before.
    """

    number: int = 1
    spent: float = 0.0


def budget(config: GateConfig) -> float:
    """Probability of a false promotion that a year may have: the lower tail of an interval at `confidence`."""
    return (1.0 - config.confidence) / 2


def level_of(config: GateConfig, look: Look) -> float:
    """The level that a gate tests at, one-sided.

    Three quarters of the budget are divided evenly between the gates of a year; a quarter goes to the first gates, halved
    from one to the next, so that a new work folder does not wait for its first promotion. No gate but the first takes
    more than half of what is left of a year's budget, so that more gates than planned cannot overspend it.
    """
    left = max(0.0, budget(config) - look.spent)
    return min(planned_level(config, look.number), left / 2 if look.spent else left)


def planned_level(config: GateConfig, number: int) -> float:
    """The level that the plan of a year gives its gate of this number, whatever was spent before."""
    gates = config.gates_per_year
    even = (1.0 - FIRST_SHARE) / gates
    first = FIRST_SHARE * 0.5**number / (1.0 - 0.5**gates) if number <= gates else 0.0
    return (even + first) * budget(config)
