"""The modules that generated packages are made of, with the bugs that may be planted in each."""

from tracewheel_worlds.patch.library.base import FAMILIES, Bug, Module
from tracewheel_worlds.patch.library.numbers import NUMBERS
from tracewheel_worlds.patch.library.plans import PLANS
from tracewheel_worlds.patch.library.texts import TEXTS
from tracewheel_worlds.patch.library.trade import TRADE

MODULES: dict[str, Module] = {module.name: module for module in (*NUMBERS, *TEXTS, *PLANS, *TRADE)}

__all__ = ["FAMILIES", "MODULES", "Bug", "Module"]
