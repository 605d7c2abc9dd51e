"""How the error of a year of gates is divided between them.

Each look at a challenger, and each confirmation of a candidate, tests at its own level, and the levels of any 365 days sum to
at most the budget. By the union bound the probability of a false promotion in a year is then at most the budget, whatever the
dependence between them: they may reuse the same held-out tasks, and each challenger may descend from the one before.
`benchmarks/results/gate.md` has the derivation, `docs/gate.md` what the other promises cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tracewheel.config import GateConfig

# The share of the budget that the first gates of a work folder get beyond the others, each half as much as the one before.
FIRST_SHARE = 0.25
# With one in five the expected loss of a promotion is a tenth of its expected gain: (phi(z) - z q) / (phi(z) + z (1 - q)) for
# the normal tail q at z, where the measured difference has a normal error and nothing is known beforehand.
LEVEL_OF_EXPECTED_LOSS = 0.18
# What to do where it is spent.
ANOTHER_PLAN = (
    "set gate.gates_per_year to the number of gates that you run in a year (52 for one each week): refused gates then count by "
    "the new plan"
)
# Kind of look to its share of the budget, and how many there are for each gate that is planned. A night may promote at once
# or name a candidate; one in ten names one where nothing is learnt, and the screen lets 5% pass.
NIGHT, CONFIRMATION = "night", "confirmation"
PLANS = {"only": (1.0, 1.0), NIGHT: (0.25, 1.0), CONFIRMATION: (0.75, 0.1)}
PROMISES = {
    "yearly": "at most {budget:.1%} of years without a gain have a false promotion",
    "nightly": "{budget:.1%} of nights without a gain end in a false promotion, about nine a year of nightly runs",
    "expected_loss": "18% of nights without a gain end in a false promotion: gains are expected to be ten times the losses",
}


@dataclass(frozen=True)
class Look:
    """The place of a gate in the sequence of gates.

    Attributes:
        number: 1 for the first of its kind in a work folder.
        spent: Sum of the levels of the 365 days before, of all kinds.
        kind: `night` of a gate that may name a candidate instead of promoting, `confirmation` of a candidate's whole test,
            `only` where no candidate is possible: then one kind of look has the whole budget.
    """

    number: int = 1
    spent: float = 0.0
    kind: str = "only"


def budget(config: GateConfig) -> float:
    """Probability of a false promotion that a year may have: the lower tail of an interval at `confidence`."""
    return (1.0 - config.confidence) / 2


def names_candidates(config: GateConfig) -> bool:
    """Whether a challenger that is not yet proven may wait: by a promise for the year, where more than one gate is planned."""
    return config.promise == "yearly" and config.gates_per_year > 1


def level_of(config: GateConfig, look: Look) -> float:
    """The level that a gate tests at, one-sided.

    Three quarters of the budget are divided evenly between the gates of a year; a quarter goes to the first gates, halved
    from one to the next, so that a new work folder does not wait for its first promotion. No gate but the first takes
    more than half of what is left of a year's budget, so that more gates than planned cannot overspend it.
    """
    if config.promise != "yearly":
        return budget(config) if config.promise == "nightly" else LEVEL_OF_EXPECTED_LOSS
    left = max(0.0, budget(config) - look.spent)
    return min(planned_level(config, look), left / 2 if look.spent else left)


def planned_level(config: GateConfig, look: Look) -> float:
    """The level that the plan of a year gives a look of this number and kind, whatever was spent before."""
    share, each = PLANS[look.kind]
    gates = math.ceil(each * config.gates_per_year)
    even = (1.0 - FIRST_SHARE) / gates
    first = FIRST_SHARE * 0.5**look.number / (1.0 - 0.5**gates) if look.number <= gates else 0.0
    return share * (even + first) * budget(config)


def cost_of_the_plan(config: GateConfig, look: Look, p_value: float) -> str:
    """Where fewer planned gates would have promoted a gain with this p-value, how many; "" where none would have."""
    if config.promise != "yearly":
        return ""
    fewer = (gates for gates in (52, 12, 1) if gates < config.gates_per_year)
    for gates in fewer:
        planned = replace(look, number=gates, kind="only" if gates == 1 else look.kind)
        if p_value <= planned_level(config.model_copy(update={"gates_per_year": gates}), planned):
            return (
                f"plan no more gates than you run: gate.gates_per_year is {config.gates_per_year}, and with {gates} the same "
                "evidence would have been promoted"
            )
    return ""


def promise_in_words(config: GateConfig) -> str:
    """What the gate promises, for the console."""
    return f"gate.promise {config.promise}: {PROMISES[config.promise].format(budget=budget(config))} (docs/gate.md)"
