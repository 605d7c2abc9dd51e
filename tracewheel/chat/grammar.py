"""What a turn may say: a grammar, and the tokens that it allows at each place.

llguidance works out the tokens (`benchmarks/results/grammar.md` has why it does). A turn's masks are not stored: the same
grammar over the same tokens gives the same masks, so a learner finds them again.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tracewheel.core.types import content_hash

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LARGEST = 256 << 10  # characters of a grammar
KEPT = 64  # compiled grammars
# A schema can ask for more than any machine has. Compiled within a second, a mask within tens of milliseconds, 40 MB of states.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 20_000,
}


class GrammarError(ValueError):
    """A grammar that cannot be compiled, or a turn that is not of its grammar."""


@dataclass(frozen=True)
class Grammar:
    """A grammar in llguidance's form of Lark, and the tokens that end a turn where the grammar lets it end."""

    text: str
    stop_ids: tuple[int, ...]

    @cached_property
    def digest(self) -> str:
        """What a turn names it by."""
        return content_hash(self.to_record())

    def to_record(self) -> dict[str, Any]:
        """As it is stored."""
        return {"text": self.text, "stop_ids": list(self.stop_ids)}

    @classmethod
    def of(cls, record: dict[str, Any]) -> Grammar:
        """The inverse of `to_record`."""
        return cls(record["text"], tuple(record["stop_ids"]))


class GrammarState:
    """A turn under a grammar: after each token, the tokens that may follow.

    Attributes:
        grammar: What it is.
        bits: [W], int32, the mask of the next token: token t may come where bit t % 32 of entry t // 32 is 1.
        failed: Why the turn cannot go on, empty where it can: the grammar takes more work than the limits allow.
    """

    def __init__(self, grammar: Grammar, matcher: Any) -> None:
        self.grammar, self._matcher = grammar, matcher
        self.failed = ""
        self._look()

    def take(self, token: int) -> None:
        """Go on with a token.

        Raises:
            GrammarError: the grammar does not allow it.
        """
        if self.failed or not self.bits[token // 32] >> token % 32 & 1:
            raise GrammarError(self.failed or f"token {token} is not allowed at its place")
        self._matcher.consume_token(token)
        if token not in self.grammar.stop_ids:
            self._look()

    def _look(self) -> None:
        self.bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.int32)
        if self._matcher.is_error() or not self.bits.any():
            self.failed = _reason(self._matcher.get_error() or "NoExtension")


class Grammars:
    """The grammars of a tokenizer. Compiled ones are kept. Threads may share it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._wrapped: dict[tuple[int, ...], Any] = {}
        self._compiled: OrderedDict[Grammar, Any] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, grammar: Grammar) -> GrammarState:
        """The beginning of a turn.

        Raises:
            GrammarError: the grammar cannot be compiled, or not within the limits.
        """
        with self._lock:
            matcher = self._compiled.get(grammar)
            if matcher is None:
                matcher = self._compiled[grammar] = self._compile(grammar)
            self._compiled.move_to_end(grammar)
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            state = GrammarState(grammar, matcher.deep_copy())
        if state.failed:
            raise GrammarError(state.failed)
        return state

    def masks(self, grammar: Grammar, ids: Sequence[int]) -> list[np.ndarray]:
        """The mask [W] that each of a turn's tokens was drawn under.

        Raises:
            GrammarError: the grammar does not allow them.
        """
        state, found = self.start(grammar), []
        for token in ids:
            found.append(state.bits)
            state.take(token)
        return found

    def _compile(self, grammar: Grammar) -> Any:
        from llguidance import LLMatcher, LLParserLimits

        if len(grammar.text) > LARGEST:
            raise GrammarError(f"it has {len(grammar.text)} characters, and {LARGEST} is the most")
        matcher = LLMatcher(self._tokens(grammar.stop_ids), grammar.text, log_level=0, limits=LLParserLimits(**LIMITS))
        if matcher.is_error():
            raise GrammarError(_reason(matcher.get_error()))
        return matcher

    def _tokens(self, stop_ids: tuple[int, ...]) -> Any:
        """The tokenizer as the library reads it: seconds for a large vocabulary, once."""
        if stop_ids not in self._wrapped:
            from llguidance import LLTokenizer

            backend: Any = self._tokenizer.backend_tokenizer
            self._wrapped[stop_ids] = LLTokenizer(backend.to_str(), eos_token=list(stop_ids))
        return self._wrapped[stop_ids]


def _reason(error: str) -> str:
    """An error of the library in one line, without its state and the grammar's text."""
    told = re.split(r"<state>|\n\s*1 \| ", error)[0]
    told = re.sub(r"^at \d+\(\d+\): |failed to compile JSON schema: ", "", told)
    return "no text can follow" if told.startswith("NoExtension") else " ".join(told.split())[:300]
