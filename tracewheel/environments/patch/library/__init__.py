"""The modules that generated packages are made of, with the bugs that may be planted in each."""

from tracewheel.environments.patch.library.base import FAMILIES, Bug, Module
from tracewheel.environments.patch.library.numbers import NUMBERS
from tracewheel.environments.patch.library.plans import PLANS
from tracewheel.environments.patch.library.texts import TEXTS
from tracewheel.environments.patch.library.trade import TRADE

MODULES: dict[str, Module] = {module.name: module for module in (*NUMBERS, *TEXTS, *PLANS, *TRADE)}

__all__ = ["FAMILIES", "MODULES", "Bug", "Module"]
