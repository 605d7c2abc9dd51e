"""How torch's threads wait for each other: a moment awake, then asleep.

By default the threads of GNU's OpenMP runtime spin for milliseconds at the end of each parallel piece of work. On a machine
with other work the spinning threads take the processor from those that they wait for: two torch threads beside two busy
processes are then 10 to 25 times slower instead of 2 or 3 times. Threads that sleep at once took 1.2 to 1.56 times as long on
an idle machine. So they spin for a tenth of a millisecond first. The
runtime reads its settings when torch is imported.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import MutableMapping

# OMP_WAIT_POLICY is OpenMP's own; GNU's runtime (torch from PyPI) and Intel's (torch with MKL threads) have one more each.
# The spin count is in turns of a loop; by default it would be 0 with the first, 300,000 without.
BRIEF = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "0"}
USERS_OWN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")

_too_late = False


def wait_briefly(variables: MutableMapping[str, str] | None = None) -> None:
    """Have the threads of the OpenMP runtime wait a moment awake, then asleep; child processes inherit it.

    A setting of the user's is kept.

    Args:
        variables: Environment variables of a process to start; None for this process and its children.
    """
    global _too_late
    ours = variables is None
    variables = os.environ if variables is None else variables
    if any(name in variables for name in USERS_OWN):
        return
    variables.update(BRIEF)
    _too_late = _too_late or (ours and "torch" in sys.modules)


def warn_if_spinning(threads: int) -> None:
    """Say once that torch's threads spin, when torch was imported before Tracewheel and there are several of them."""
    global _too_late
    if _too_late and threads > 1:
        _too_late = False
        warnings.warn(
            "torch was imported before tracewheel, so its threads spin while they wait: on a busy machine that is many times "
            "slower. Import tracewheel first, or set OMP_WAIT_POLICY=PASSIVE before Python starts",
            RuntimeWarning,
            stacklevel=3,
        )
