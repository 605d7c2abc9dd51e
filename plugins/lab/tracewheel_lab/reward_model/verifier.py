"""The verifier `reward_model`: a trained model's probability that an episode is a success, for where nothing else judges."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from tracewheel import Episode, Task, Verdict

if TYPE_CHECKING:
    from tracewheel_lab.reward_model.scorer import RewardModel


class RewardModelArgs(BaseModel):
    """The `folder` of `tracewheel train-reward-model`; `deviations`, k in mean minus k standard deviations, by default
    as trained.

    With a `threshold` the total is 1 at this probability and above, and 0 below; without, it is the probability.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Annotated[str, Field(min_length=1)]
    deviations: Annotated[float, Field(ge=0.0)] | None = None
    threshold: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None


class RewardModelVerifier:
    """The calibrated probability of success, from an ensemble's mean minus k standard deviations of its members.

    >>> from tracewheel_lab.reward_model.verifier import RewardModelArgs, RewardModelVerifier
    >>> RewardModelVerifier(RewardModelArgs(folder="rewards")).kind
    'reward_model'

    Parts: the `probability` and the members' `spread`, as the standard deviation of their raw scores.

    Raises:
        ValueError: the episode has no token ids, as of most endpoints: it stays unscored.
        DataError: the folder holds no reward model.
    """

    kind = "reward_model"
    reaches = True
    Args = RewardModelArgs

    def __init__(self, args: RewardModelArgs) -> None:
        self._args = args

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        if not episode.token_ids:
            raise ValueError("the episode has no token ids, which a reward model reads")
        probability, spread = _model(self._args.folder, self._args.deviations).probability(episode.token_ids)
        total = probability if self._args.threshold is None else float(probability >= self._args.threshold)
        return Verdict(total, {"probability": probability, "spread": spread})


@functools.lru_cache(maxsize=2)
def _model(folder: str, deviations: float | None) -> RewardModel:
    from tracewheel_lab.reward_model.scorer import RewardModel

    return RewardModel(Path(folder), deviations)
