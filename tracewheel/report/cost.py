"""What a run cost: seconds, tokens and money, in all and for each point gained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tracewheel.evaluation.wording import gain_of


@dataclass(frozen=True)
class Cost:
    """What a run costs; `money` is None without prices."""

    seconds: float
    tokens: int
    money: float | None = None
    currency: str = ""

    def says(self) -> str:
        """In a few words."""
        money = "" if self.money is None else f", {self.currency} {self.money:.2f}"
        time = f"{self.seconds:.0f} seconds" if self.seconds < 120 else f"{self.seconds / 60:.0f} minutes"
        return f"{time}, {self.tokens / 1e6:.2f} million tokens{money}"

    def to_record(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


def priced(seconds: float, tokens: int, prices: tuple[float | None, float | None], currency: str) -> Cost:
    """Seconds and tokens with their price."""
    hour, million = prices
    money = None if hour is None and million is None else seconds / 3600 * (hour or 0.0) + tokens / 1e6 * (million or 0.0)
    return Cost(round(seconds, 1), tokens, None if money is None else round(money, 4), currency)


def cost_per_point(cost: Cost, gain: float | None, promoted: bool) -> dict[str, float | None]:
    """Seconds, tokens and money for each point gained; None where nothing was: a refused challenger gains nothing."""
    points = 100.0 * gain if gain and promoted and gain > 0 else None
    found = {"seconds": cost.seconds, "tokens": float(cost.tokens), "money": cost.money}
    return {name: None if points is None or value is None else round(value / points, 4) for name, value in found.items()}


def cost_of_run(
    costs: Mapping[str, Any], gate: Mapping[str, Any], prices: tuple[float | None, float | None], currency: str
) -> dict[str, Any]:
    """What a complete run gained and cost, as JSON types, with a sentence in `says`.

    Args:
        costs: `seconds` and `tokens` by stage.
        gate: Its verdict.
        prices: Of an hour, and of a million tokens; None for what costs nothing extra.
        currency: Of the prices.
    """
    spent = priced(sum(costs["seconds"].values()), sum(costs["tokens"].values()), prices, currency)
    point = cost_per_point(spent, gain_of(gate), gate["verdict"] == "promoted")
    says = "no point was gained: the gate refused"
    if point["seconds"] is not None:
        says = f"{priced(point['seconds'], round(point['tokens'] or 0), prices, currency).says()} for each point gained"
    return {"gain": gain_of(gate), "cost": spent.to_record(), "per_point": point, "says": f"{says}; {spent.says()} in all"}
