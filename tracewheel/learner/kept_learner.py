"""The process's learner, kept from update to update: its base is loaded once, and DeepSpeed started once.

A kept learner takes weights, optimiser and everything else that an update carries over from the state's files, as a new one
does, so both write the same bytes. At most one is kept, and none after an error.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.config import UpdateSections
from tracewheel.core.fingerprint import files_hash
from tracewheel.core.types import content_hash
from tracewheel.policy.adapter_form import CONFIG
from tracewheel.policy.adapters import base_hash, weights_folder

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.learner.learner import Learner
    from tracewheel.learner.update_files import UpdateFiles

_kept: tuple[str, Learner] | None = None
_in_use = threading.Lock()


@contextlib.contextmanager
def kept_learner(config: UpdateSections, state: Path, reference: Path) -> Iterator[Learner]:
    """The learner of an update: the one of the previous update where it fits, else a new one in its place.

    Args:
        config: The profile; `keeps_learner` says whether the learner stays loaded.
        state: As for `Learner`.
        reference: As for `Learner`.

    Raises:
        AdapterMismatchError: an adapter belongs to another base.
        DataError: the state is of another algorithm.
    """
    global _kept
    from tracewheel.learner.learner import Learner

    with _in_use:
        key = learner_key(config, state, reference)
        kept, _kept = _kept, None
        learner = kept[1] if kept is not None and kept[0] == key and kept[1].resume(state) else None
        if learner is None:
            if kept is not None:
                kept = None
                free_memory(config.policy.device)
            learner = Learner(config, state, reference)
        del kept
        yield learner
        if config.keeps_learner:
            _kept = (key, learner)


def release_learner() -> None:
    """Forget the kept learner and free its memory."""
    global _kept
    with _in_use:
        if _kept is not None:
            device, _kept = _kept[1].config.policy.device, None
            free_memory(device)


def learner_key(config: UpdateSections, state: Path, reference: Path) -> str:
    """Hash of everything that a learner's models and backend are made from, apart from what a state's files give them.

    Raises:
        DataError: a folder holds no policy.
    """
    return content_hash([config.model_dump(mode="json"), base_hash(config.policy.base), _shape(state), _weights(reference)])


def _shape(state: Path) -> str | None:
    """The adapter's config, which says where it has weights; None for a whole model."""
    file = weights_folder(state) / CONFIG
    return files_hash([file]) if file.is_file() else None


def _weights(reference: Path) -> str:
    folder = weights_folder(reference)
    return files_hash(sorted(file for pattern in ("*.safetensors", "*.json") for file in folder.glob(pattern)))


def free_memory(device: str) -> None:
    """Give back GPU memory that nothing refers to any more; a model is part of cycles."""
    if device == "cpu":
        return
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def is_kept() -> bool:
    """Whether a learner is loaded between updates."""
    return _kept is not None


def learn(config: UpdateSections, trajectories: pd.DataFrame, files: UpdateFiles, iteration: int) -> dict[str, float]:
    """An iteration's policy-gradient steps, from the state of the files to their output folder; returns the figures."""
    with kept_learner(config, files.state, files.reference) as learner:
        metrics = learner.learn(trajectories, iteration, files.solutions)
        learner.save(files.out, version=iteration)
    if not config.keeps_learner:
        del learner
        free_memory(config.policy.device)
    return metrics
