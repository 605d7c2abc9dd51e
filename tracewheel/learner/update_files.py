"""The files that an update reads, and the folder it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tracewheel.core.types import TRAJECTORIES_FILE
from tracewheel.policy.adapters import weights_folder
from tracewheel.scoring.score import SCORES_FILE


@dataclass(frozen=True)
class UpdateFiles:
    """Paths of one update.

    `trajectories` and `scores` are Parquet files of the rollout and score stages. `state` is the previous state: a
    folder with the policy (`adapter/` or `model/`) and, after an update, all else that the algorithm carries over.
    `reference` is the policy that KL is measured to: its folder, or the state that holds it. `out` gets the next
    state and `metrics.json`. `solutions` is the file of solutions of lost tasks, if there are any.
    """

    trajectories: Sequence[Path]
    scores: Sequence[Path]
    state: Path
    reference: Path
    out: Path
    solutions: Path | None = None

    @classmethod
    def of_folders(
        cls,
        rollouts: Sequence[Path],
        scores: Sequence[Path],
        *,
        state: Path,
        reference: Path,
        out: Path,
        solutions: Path | None = None,
    ) -> Self:
        """The files in the outputs of rollout and score stages, of an iteration's rounds in order.

        Raises:
            DataError: `reference` holds no policy.
        """
        trajectories = [folder / TRAJECTORIES_FILE for folder in rollouts]
        return cls(trajectories, [folder / SCORES_FILE for folder in scores], state, weights_folder(reference), out, solutions)

    def to_json(self) -> dict[str, Any]:
        """The absolute paths as JSON values."""
        return {
            name: [str(path.absolute()) for path in value]
            if isinstance(value, list | tuple)
            else value and str(value.absolute())
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Read what `to_json` gave."""
        trajectories, scores = ([Path(path) for path in values[name]] for name in ("trajectories", "scores"))
        state, reference, out = (Path(values[name]) for name in ("state", "reference", "out"))
        solutions = Path(values["solutions"]) if values["solutions"] else None
        return cls(trajectories, scores, state, reference, out, solutions)
