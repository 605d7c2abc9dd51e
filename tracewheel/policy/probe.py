"""A probe beside an adapter: its trainer's log-probabilities of fixed random tokens, to check that an engine serves it.

An engine that loads an adapter from its folder may silently serve another one or none: a file was exchanged, a cache was
stale, a layer was not recognised. So the engine's log-probabilities of the probe are compared with the trainer's. Policies
closer to each other than the tolerance cannot be told apart; in bfloat16 these may be neighbouring versions of one run.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import AdapterMismatchError, DataError
from tracewheel.policy.canary import looks_like, remember

PROBE = "probe.json"
TOKENS = 32
DIGITS = 6
# The largest mean difference of log-probabilities between two implementations that rounding explains. In bfloat16 the adapters
# of a run of SmolLM2-135M in float32 are 0.05 to 0.11 from their trainer's numbers, and 0.84 from the base's.
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.2}

Score = Callable[[list[int]], list[float]]
logger = logging.getLogger(__name__)
_without: set[str] = set()


def write_probe(model: Any, folder: Path) -> None:
    """Write the probe of a model's current weights. Equal weights give equal bytes.

    Args:
        model: A causal language model of transformers, with its adapter active if it has one.
        folder: The folder of the adapter or the whole model.
    """
    import torch

    rng = random.Random("probe")
    ids = [rng.randrange(model.config.get_text_config().vocab_size) for _ in range(TOKENS + 1)]
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0, :-1]
    finally:
        model.train(training)
    scored = torch.log_softmax(logits.float(), dim=-1).cpu().gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    probe = {"token_ids": ids, "logprobs": [round(value, DIGITS) for value in scored.tolist()]}
    (folder / PROBE).write_text(json.dumps(probe) + "\n")


def check_probe(folder: str | Path, score: Score, dtype: str, base_score: Score | None = None) -> float | None:
    """Check that an engine serves the weights in a folder.

    Args:
        folder: The folder of the adapter or the whole model.
        score: The engine's log-probabilities [T - 1] of all but the first of ids [T], at temperature 1.
        dtype: The type of the engine's weights.
        base_score: The same for the base without an adapter, asked only to say what a mismatch looks like.

    Returns:
        The mean absolute difference; None if the folder has no probe, with one warning.

    Raises:
        AdapterMismatchError: the engine serves other weights.
        DataError: the probe cannot be read.
    """
    probe = read_probe(folder)
    if probe is None:
        return None
    found = score(probe.token_ids)
    if base_score is not None and not is_rounding(found, probe, dtype):
        return compare_logprobs(folder, found, probe, dtype, base_score(probe.token_ids))
    return compare_logprobs(folder, found, probe, dtype)


@dataclass(frozen=True)
class Probe:
    """Ids [T] and the trainer's log-probabilities [T - 1] of all but the first."""

    token_ids: list[int]
    logprobs: list[float]


def read_probe(folder: str | Path) -> Probe | None:
    """The probe in a folder; None if there is none, with one warning.

    Raises:
        DataError: it cannot be read.
    """
    path = Path(folder) / PROBE
    if not path.is_file():
        if str(path) not in _without:
            _without.add(str(path))
            logger.warning("%s: no such file, so it cannot be checked whether the engine serves this policy", path)
        return None
    try:
        stored = json.loads(path.read_text())
        probe = Probe([int(token) for token in stored["token_ids"]], [float(value) for value in stored["logprobs"]])
        if len(probe.token_ids) != len(probe.logprobs) + 1 or not probe.logprobs:
            raise ValueError("token_ids must have one more entry than logprobs")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a probe: {error}; delete it to skip the check") from error
    return probe


def is_rounding(found: list[float], probe: Probe, dtype: str) -> bool:
    """Whether an engine's log-probabilities of a probe are the trainer's, up to rounding."""
    return _difference(found, probe) <= _tolerance(dtype)


def compare_logprobs(
    folder: str | Path, found: list[float], probe: Probe, dtype: str, base: list[float] | None = None
) -> float:
    """The mean absolute difference between an engine's log-probabilities of a probe and the trainer's.

    Args:
        folder: The policy's.
        found: The engine's.
        probe: The policy's.
        dtype: The type of the engine's weights.
        base: The engine's for the base without an adapter, if known.

    Raises:
        AdapterMismatchError: it is more than rounding; the message says what the engine seems to serve instead.
    """
    difference, tolerance = _difference(found, probe), _tolerance(dtype)
    if not difference <= tolerance:
        raise AdapterMismatchError(
            f"{folder}: the engine's log-probabilities of {len(found)} probe tokens differ from the trainer's by "
            f"{difference:.3g} on average (at most {tolerance:g} is rounding): it does not serve the weights of the "
            f"probe. {looks_like(str(folder), found, probe.logprobs, base, tolerance)} If files of the folder were exchanged, "
            "train or copy it again; if not, the engine does not support this kind of adapter: set rollout.engine.kind to "
            "'transformers'"
        )
    remember(str(folder), probe.logprobs)
    return difference


def _difference(found: list[float], probe: Probe) -> float:
    return sum(abs(a - b) for a, b in zip(found, probe.logprobs, strict=True)) / len(found)


def _tolerance(dtype: str) -> float:
    return TOLERANCES.get(dtype, max(TOLERANCES.values()))
