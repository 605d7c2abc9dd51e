"""Sampling from a session's own random numbers, independent of the batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

PREFIX = "draw_"
RANDOM_BLOCK = 256
LISTS = ("forced", "grammar_stops", "said")
# The log-probability of the stop token that ends a turn whose grammar says no more within its limits: nobody drew it.
CUT = 1.0


@dataclass(frozen=True)
class Draws:
    """How one turn is sampled.

    Attributes:
        seed: The session's.
        skip: How many of the session's random numbers its earlier tokens have used.
        forced: The tokens to take instead of sampling, for their log-probabilities alone.
        grammar: What the turn may say (`chat.grammar`), empty for anything.
        grammar_stops: The tokens that end a turn of the grammar.
        said: The turn's tokens so far, where it is sampled in pieces: the grammar has read them.
    """

    seed: int = 0
    skip: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False
    forced: tuple[int, ...] = ()
    grammar: str = ""
    grammar_stops: tuple[int, ...] = ()
    said: tuple[int, ...] = ()

    def extra_args(self) -> dict[str, Any]:
        """The settings as numbers and lists under names of their own, for a request to vLLM."""
        values = (
            asdict(self)
            | {"seed": str(self.seed), "greedy": int(self.greedy)}
            | {name: list(getattr(self, name)) for name in LISTS}
        )
        return {f"{PREFIX}{name}": value for name, value in values.items() if value not in ([], "")}

    @classmethod
    def of(cls, extra_args: dict[str, Any] | None) -> Draws | None:
        """The inverse of `extra_args`; None for a request without any of its names.

        Raises:
            ValueError: a name or value is invalid.
        """
        found = {name.removeprefix(PREFIX): value for name, value in (extra_args or {}).items() if name.startswith(PREFIX)}
        if not found:
            return None
        try:
            return cls(
                seed=int(found.pop("seed")),
                skip=int(found.pop("skip")),
                temperature=float(found.pop("temperature")),
                top_p=float(found.pop("top_p")),
                greedy=bool(found.pop("greedy")),
                grammar=str(found.pop("grammar", "")),
                **{name: tuple(int(token) for token in found.pop(name, ())) for name in LISTS},
                **found,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"invalid settings of a draw: {error}") from error

    def uniforms(self, count: int) -> list[float]:
        """The session's next random numbers in [0, 1); none for greedy or forced tokens.

        The transformers engine draws them in blocks and takes each block from its end. The order here is the same,
        so the engines sample the same tokens.
        """
        if self.greedy or self.forced:
            return []
        first, last = self.skip // RANDOM_BLOCK, (self.skip + count - 1) // RANDOM_BLOCK
        bits = np.random.PCG64(self.seed)
        bits.advance(first * RANDOM_BLOCK)
        blocks = np.random.Generator(bits).random((last - first + 1, RANDOM_BLOCK))[:, ::-1].ravel()
        start = self.skip - first * RANDOM_BLOCK
        return blocks[start : start + count].tolist()
