"""Reward that falls with length."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import model_validator

from tracewheel import Count, Episode, Strict, Task, Verdict, spoken


class LengthArgs(Strict):
    """What is counted, and how the mark falls from 1 at `target` to 0 at `limit`.

    `unit`: generated `tokens` of the episode, or `words` or `characters` of the last turn's text. `linear` falls in a
    straight line, which is DAPO's overlong reward, shifted to 0 to 1, with L_max = `limit` and L_cache = `limit` -
    `target`; `overlong` is another name for it. `sigmoid` falls smoothly, by half in the middle: 0.98 at `target`,
    0.02 at `limit`.
    """

    unit: Literal["tokens", "words", "characters"] = "tokens"
    shape: Literal["linear", "sigmoid", "overlong"] = "linear"
    target: Count
    limit: Count

    @model_validator(mode="after")
    def _check_limit(self) -> LengthArgs:
        if self.limit <= self.target:
            raise ValueError(f"limit ({self.limit}) must be above target ({self.target})")
        return self


class LengthVerifier:
    """1 for what is short, falling to 0 for what is long.

    >>> from tracewheel import episode_from
    >>> task = Task("t1", "chat", "qa", 1, "Where?", {}, {}, "length", "t1")
    >>> episode = episode_from([{"role": "assistant", "content": "It is in Oslo, I think."}], 0, {})
    >>> LengthVerifier(LengthArgs(unit="words", target=4, limit=8)).verify_episode(task, episode).total
    0.5

    Saying nothing is short too: use it as shaping, beside an outcome. The part `length` is what was counted.

    Raises:
        ValueError: the episode's tokens are not known, as those of most endpoints.
    """

    kind = "length"
    Args = LengthArgs

    def __init__(self, args: LengthArgs) -> None:
        self._args = args

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        count = self._count(episode)
        return Verdict(self._mark(count), {"length": float(count)})

    def _count(self, episode: Episode) -> int:
        if self._args.unit == "tokens":
            if episode.tokens is None:
                raise ValueError("the episode has no token ids to count: set args.unit to words or characters")
            return episode.tokens
        text = spoken(episode)
        return len(text.split()) if self._args.unit == "words" else len(text)

    def _mark(self, count: int) -> float:
        target, limit = self._args.target, self._args.limit
        if self._args.shape == "sigmoid":
            steepness = min(700.0, 4.0 * (2 * count - target - limit) / (limit - target))
            return 1.0 / (1.0 + math.exp(steepness))
        return 1.0 - min(1.0, max(0.0, (count - target) / (limit - target)))
