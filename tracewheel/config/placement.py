"""Where the parts of a run compute, and what stays loaded. Nothing here changes a result."""

from __future__ import annotations

from tracewheel.config.base import Strict


class PlacementConfig(Strict):
    """What stays in memory between stages.

    `keep_learner`: base, optimiser and DeepSpeed's processes stay loaded from update to update of a loop. Default: yes, except
    on a GPU with the engine `transformers`, which loads a base of its own onto the learner's card.
    """

    keep_learner: bool | None = None
