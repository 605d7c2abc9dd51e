"""An endpoint's episode as a trajectory, which is scored and, where the server gives token ids, may be trained on."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tracewheel.core.types import StopReason, Trajectory, Turn, content_hash
from tracewheel.teacher.attempt import Attempt

# The version of a model behind an endpoint is unknown.
UNKNOWN_VERSION = -1
STOP_REASONS: dict[str, StopReason] = {"refused": "infrastructure_failed", "budget": "infrastructure_failed"}


class NotTrainable(Exception):
    """Why an episode cannot be trained on."""


@dataclass
class _Tokens:
    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    spans: list[tuple[int, int]]

    def add(self, ids: list[int], logprobs: list[float] | None = None) -> None:
        self.ids += ids
        self.mask += [int(logprobs is not None)] * len(ids)
        self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs


def to_trajectory(attempt: Attempt, *, processed_logprobs: bool) -> tuple[Trajectory, str]:
    """The trajectory of an episode, and why it is not trainable; empty where it is.

    It is trainable when every reply came with its ids and log-probabilities, each turn's prompt continues exactly from
    the ids before it, and the log-probabilities are those at the temperature. Otherwise the trajectory has no tokens, so
    that no update can train on it. An episode that was refused, or that the budget cut off, counts as failed by the
    machinery: it carries no signal about the model.

    Args:
        attempt: The episode.
        processed_logprobs: Whether the endpoint's log-probabilities have the temperature in them.
    """
    try:
        tokens, why = _tokens(attempt, processed_logprobs), ""
    except NotTrainable as reason:
        tokens, why = _Tokens([], [], [], [(0, 0)] * len(attempt.turns)), str(reason)
    turns = [
        Turn(
            start,
            end,
            turn["calls"],
            turn["malformed"],
            UNKNOWN_VERSION,
            reward=turn.get("reward"),
            errors=turn.get("errors", []),
        ).to_record()
        for (start, end), turn in zip(tokens.spans, attempt.turns, strict=True)
    ]
    stop_reason = STOP_REASONS.get(attempt.stop_reason, attempt.stop_reason)
    trajectory = Trajectory(
        id=content_hash([attempt.key, attempt.messages]),
        task_id=attempt.task_id,
        group=attempt.task_id,
        sample=attempt.sample,
        seed=attempt.seed,
        policy_version=UNKNOWN_VERSION,
        temperature=attempt.temperature,
        token_ids=tokens.ids,
        action_mask=tokens.mask,
        logprobs=tokens.logprobs,
        turns=turns,
        final_state=attempt.final_state or {},
        messages=attempt.messages,
        stop_reason=stop_reason,  # type: ignore[arg-type]
        detail=attempt.detail,
        fault="machine" if attempt.stop_reason in STOP_REASONS else attempt.fault,
        traceback=attempt.traceback,
    )
    return trajectory, why


def _tokens(attempt: Attempt, processed_logprobs: bool) -> _Tokens:
    """Ids, mask and log-probabilities of the whole episode.

    Raises:
        NotTrainable: they are unknown, or do not continue from each other.
    """
    if not attempt.turns or not attempt.finished:
        raise NotTrainable(f"the episode has no end: {attempt.stop_reason}")
    if attempt.temperature == 0.0:
        raise NotTrainable("it was played greedily, and has no distribution to learn under")
    if attempt.temperature != 1.0 and not processed_logprobs:
        raise NotTrainable(
            f"it was sampled at temperature {attempt.temperature:g}, and the endpoint's log-probabilities are taken to be "
            "those before it (see processed_logprobs)"
        )
    whole = _Tokens([], [], [], [])
    for number, turn in enumerate(attempt.turns, 1):
        said = turn["tokens"]
        if said is None:
            raise NotTrainable(f"turn {number}: {turn['without_tokens']}")
        known, prompt = len(whole.ids), said["prompt_ids"]
        if prompt[:known] != whole.ids:
            pairs = itertools.zip_longest(whole.ids, prompt[:known])
            place = next(place for place, (one, other) in enumerate(pairs) if one != other)
            raise NotTrainable(
                f"turn {number}: its prompt does not go on from the {known} tokens before it; they part at token {place}"
            )
        whole.add(prompt[known:])
        start = len(whole.ids)
        whole.add(said["token_ids"], said["logprobs"])
        whole.spans.append((start, len(whole.ids)))
    return whole
