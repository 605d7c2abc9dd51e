"""A probe beside an adapter: its trainer's log-probabilities of fixed random tokens, to check that an engine serves it.

An engine that loads an adapter from its folder may silently serve another one or none: a file was exchanged, a cache was
stale, a layer was not recognised. So the engine's log-probabilities of the probe are compared with the trainer's. Policies
closer to each other than the tolerance cannot be told apart; in bfloat16 these may be neighbouring versions of one run.

All probes for a vocabulary have the same tokens. So what an engine serves instead is told by the log-probabilities of every
policy that this process has seen served, and of the base.
"""

from __future__ import annotations

import json
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracewheel.core.errors import AdapterMismatchError, DataError

PROBE = "probe.json"
TOKENS = 32
DIGITS = 6
# The largest mean difference of log-probabilities between two implementations that rounding explains. In bfloat16 the adapters
# of a run of SmolLM2-135M in float32 are 0.05 to 0.11 from their trainer's numbers, and 0.84 from the base's.
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.2}

Score = Callable[[list[int]], list[float]]
KEPT = 64  # policies whose log-probabilities are remembered
LEAST_FIT = 0.7  # the share of what differs from the base that another strength of the same adapter must explain
_served: OrderedDict[str, tuple[float, ...]] = OrderedDict()
logger = logging.getLogger(__name__)
_without: set[str] = set()


def write_probe(model: Any, folder: Path) -> None:
    """Write the probe of a model's current weights. Equal weights give equal bytes.

    Args:
        model: A causal language model of transformers, with its adapter active if it has one.
        folder: The folder of the adapter or the whole model.
    """
    ids, logprobs = probe_logprobs(model)
    probe = {"token_ids": ids, "logprobs": [round(value, DIGITS) for value in logprobs]}
    (folder / PROBE).write_text(json.dumps(probe) + "\n")


def probe_logprobs(model: Any) -> tuple[list[int], list[float]]:
    """The probe's ids [T] for a model's vocabulary, and its log-probabilities [T - 1] of all but the first."""
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
    return ids, scored.tolist()


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


def remember(folder: str, logprobs: Sequence[float]) -> None:
    """Note that the policy in a folder is served, with its trainer's log-probabilities of the probe [T]."""
    _served[folder] = tuple(logprobs)
    _served.move_to_end(folder)
    while len(_served) > KEPT:
        _served.popitem(last=False)


def looks_like(
    folder: str, found: Sequence[float], expected: Sequence[float], base: Sequence[float] | None, tolerance: float
) -> str:
    """A sentence that says which fault it looks like.

    Args:
        folder: The policy that should be served.
        found: The engine's log-probabilities [T].
        expected: The trainer's [T].
        base: The engine's for the base alone [T]; None if they are not known.
        tolerance: The largest mean difference that is rounding.
    """
    if not np.isfinite(found).all():
        return "It looks broken: the engine gives log-probabilities that are not finite."
    others = {name: _gap(found, kept) for name, kept in _served.items() if name != folder and len(kept) == len(found)}
    nearest = min(others, key=lambda name: others[name], default=None)
    if base is not None and _gap(found, base) <= min([tolerance, *others.values()]):
        return "It looks missing: these are the log-probabilities of the base without any adapter."
    if nearest is not None and others[nearest] <= tolerance:
        last = next(reversed([name for name in _served if name != folder]))
        if nearest == last:
            return f"It looks stale: the engine still answers as {nearest}, which it served before."
        return f"It looks swapped: the engine answers as {nearest}."
    strength = _strength(found, expected, base) if base is not None else None
    if strength is not None:
        return (
            f"It looks mis-scaled: the adapter acts about {strength:.2g} times as strongly as it was trained; compare "
            "lora_alpha, r and use_rslora of its config with those of training."
        )
    return "It looks swapped: the engine answers as no policy that was served here before."


def _gap(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.abs(np.subtract(one, other)).mean())


def _strength(found: Sequence[float], expected: Sequence[float], base: Sequence[float]) -> float | None:
    """How strongly the adapter acts, 1 as trained; None where another strength does not explain what was found."""
    trained, actual = np.subtract(expected, base), np.subtract(found, base)
    if not (np.square(trained).sum() > 0 and np.square(actual).sum() > 0):
        return None
    fit = float(trained @ actual) / float(np.sqrt(np.square(trained).sum() * np.square(actual).sum()))
    return float(trained @ actual) / float(np.square(trained).sum()) if fit >= LEAST_FIT else None
