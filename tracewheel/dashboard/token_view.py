"""The tokens of a trajectory with what is known of each, their texts, and the classes that colour them."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.forks import ancestry, read_forks, rows
from tracewheel.core.types import token_versions
from tracewheel.report.finished_run import FinishedRun

TOKENIZER_FILE = "tokenizer.json"


class TokenTexts:
    """Texts of token ids.

    Args:
        tokenizer: None where there is none: then ids stand for the tokens.
        where: What is said of that.
    """

    def __init__(self, tokenizer: Any, where: str) -> None:
        self._tokenizer, self.where = tokenizer, where

    def each(self, ids: Sequence[int]) -> list[str]:
        """The text of each token by itself."""
        if self._tokenizer is None:
            return [str(token) for token in ids]
        return [self._one(token) for token in ids]

    def together(self, ids: Sequence[int]) -> str:
        """The text of a sequence."""
        if self._tokenizer is None:
            return " ".join(map(str, ids))
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _one(self, token: int) -> str:
        text = str(self._tokenizer.decode([token], skip_special_tokens=False))
        if "\ufffd" in text or not text:  # a part of a character, or nothing by itself
            return str(self._tokenizer.id_to_token(token) or f"#{token}")
        return text


def token_texts(run: FinishedRun) -> TokenTexts:
    """The token texts of a run."""
    base = str((run.settings.get("policy") or {}).get("base") or "")
    file = Path(base) / TOKENIZER_FILE
    if not base or not file.is_file():
        return TokenTexts(
            None, f"The base's tokenizer ({base or 'not named'}) is not on this machine: ids stand for the tokens."
        )
    return TokenTexts(_loaded(file, file.stat().st_mtime_ns), f"Texts by the tokenizer of {base}.")


@functools.lru_cache(maxsize=4)
def _loaded(file: Path, changed: int) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))


SHOWN = 4000  # tokens on a page
# Bounds of log-probabilities, in nats, and what they are as probabilities.
LOGPROBS = ((-0.01, "over 99%"), (-0.105, "90 to 99%"), (-0.69, "50 to 90%"), (-2.3, "10 to 50%"), (-4.6, "1 to 10%"))
ADVANTAGES = ((-1.0, "below −1"), (-0.25, "−1 to −0.25"), (-1e-9, "−0.25 to 0"))
VIEWS = ("mask", "logprob", "advantage", "version")
NOT_SAMPLED = "no"


@dataclass(frozen=True)
class Token:
    """A token.

    Attributes:
        at: Its flat index.
        kind: The class that colours it.
        turn: Number of the turn whose sampled tokens it is among; None for others.
        title: What is known of it, in words.
        breaks: Whether a line ends after it.
        forks: The flat index of the token before it, where that is not the one left of it; -1 where it begins anew.
    """

    at: int
    token: int
    text: str
    kind: str
    turn: int | None
    title: str
    breaks: bool
    forks: int | None = None


@dataclass(frozen=True)
class Tokens:
    """What is stored of a trajectory's T tokens; lists of length T."""

    ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float]
    versions: Sequence[int]
    turns: Sequence[int | None]
    advantages: Sequence[float | None]
    forks: Sequence[Sequence[int]]

    @classmethod
    def of(cls, found: Mapping[str, Any], by_turn: Sequence[float] = ()) -> Tokens:
        """The tokens of a trajectory.

        Args:
            found: As `one_trajectory` has it.
            by_turn: The advantage of each turn; empty where there is none.
        """
        ids, mask = list(found["token_ids"]), list(found["action_mask"])
        turns = found["turns"] if isinstance(found["turns"], list) else []
        of: list[int | None] = [None] * len(ids)
        for number, turn in enumerate(turns):
            of[turn["start"] : turn["end"]] = [number] * (turn["end"] - turn["start"])
        advantages = [
            by_turn[turn] if sampled and turn is not None and turn < len(by_turn) else None
            for turn, sampled in zip(of, mask, strict=True)
        ]
        versions = token_versions(turns, len(ids))
        return cls(ids, mask, list(found["logprobs"]), versions, of, advantages, read_forks(found["forks"]))

    def views(self) -> list[str]:
        """The colourings that there is something for."""
        there = {"mask": True, "logprob": True, "version": True}
        there["advantage"] = any(value is not None for value in self.advantages)
        return [view for view in VIEWS if there.get(view)]

    def row(self, number: int | None) -> list[int]:
        """The flat indices of a row; of all tokens where it is None or there is no such row."""
        found = [] if number is None else rows(self.forks, len(self.ids))
        return found[number] if number is not None and number < len(found) else list(range(len(self.ids)))

    def shown(self, texts: TokenTexts, by: str, first: int, count: int = SHOWN, row: int | None = None) -> list[Token]:
        """The tokens of a page: of all, or of a row."""
        places = self.row(row)[max(0, first) : max(0, first) + count]
        begins = {} if row is not None else {each[0]: each[1] for each in self.forks if each[0]}
        known = sorted({version for version in self.versions if version >= 0})
        found = []
        following = [*places[1:], None]
        for at, after, text in zip(places, following, texts.each([self.ids[at] for at in places]), strict=True):
            found.append(
                Token(
                    at,
                    self.ids[at],
                    text,
                    self._kind(at, by, known),
                    self.turns[at],
                    self.said(at),
                    after is not None and self.mask[at] == 1 and self.mask[after] == 0,
                    begins.get(at),
                )
            )
        return found

    def said(self, at: int) -> str:
        """What is known of a token, in words."""
        if not self.mask[at]:
            return f"token {at}, id {self.ids[at]}: not sampled, no loss"
        words = [f"token {at}, id {self.ids[at]}", f"log-probability {self.logprobs[at]:.4f}"]
        if self.versions[at] >= 0:
            words.append(f"policy version {self.versions[at]}")
        if self.advantages[at] is not None:
            words.append(f"advantage {self.advantages[at]:+.3f}")
        return ", ".join(words)

    def seen_before(self, at: int) -> list[int]:
        """The flat indices of what the policy had read when it came to a token: everything before it, in its row."""
        return [index for start, stop in ancestry(self.forks, len(self.ids), at) for index in range(start, stop)][:-1]

    def _kind(self, at: int, by: str, known: Sequence[int]) -> str:
        if not self.mask[at]:
            return NOT_SAMPLED
        if by == "logprob":
            return f"p{_place(self.logprobs[at], [bound for bound, _ in LOGPROBS])}"
        if by == "advantage":
            value = self.advantages[at]
            return "x" if value is None else f"a{_signed(value)}"
        if by == "version":
            return f"v{known.index(self.versions[at]) % 6}" if self.versions[at] in known else "x"
        return "m"

    def legend(self, by: str) -> list[tuple[str, str]]:
        """Class and words of each colour."""
        rest = [(NOT_SAMPLED, "not sampled: prompt, tool results")]
        if by == "logprob":
            return [*((f"p{n}", word) for n, (_, word) in enumerate(LOGPROBS)), (f"p{len(LOGPROBS)}", "below 1%"), *rest]
        if by == "advantage":
            low = [(f"a{n}", word) for n, (_, word) in enumerate(ADVANTAGES)]
            return [*low, ("a3", "0"), ("a4", "0 to 0.25"), ("a5", "0.25 to 1"), ("a6", "above 1"), *rest]
        if by == "version":
            known = sorted({version for version in self.versions if version >= 0})
            return [*((f"v{n % 6}", f"version {version}") for n, version in enumerate(known)), *rest]
        return [("m", "sampled: counts in the loss"), *rest]


def _place(value: float, falling: Sequence[float]) -> int:
    return sum(value < bound for bound in falling)


def _signed(value: float) -> int:
    bounds = [-1.0, -0.25, -1e-9, 1e-9, 0.25, 1.0]
    return bisect_right(bounds, value)
