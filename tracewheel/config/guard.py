"""The guard in the loop: when it goes back to the best iteration, and when it stops."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tracewheel.config.base import Strict


class GuardConfig(Strict):
    """What the loop does when success, malformed calls, entropy, KL or gradient norm leave their band.

    It goes back to the best candidate with a lower learning rate; when no attempt is left it stops, and the best candidate
    goes on to evaluation and gate. `tracewheel.sampling.guard` has the bands.

    Attributes:
        enabled: Whether there is a guard.
        attempts: How often it goes back before it stops.
        factor: What the learning rate is multiplied by each time.
    """

    enabled: bool = True
    attempts: Annotated[int, Field(ge=0)] = 2
    factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.3
