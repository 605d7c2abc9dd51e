"""The texts of tokens, from the tokenizer of a run's base where that is on this machine."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracewheel.comparison.finished_run import FinishedRun

TOKENIZER_FILE = "tokenizer.json"


class TokenTexts:
    """Texts of token ids.

    Args:
        tokenizer: None where there is none: then ids stand for the tokens.
        where: What is said of that.
    """

    def __init__(self, tokenizer: Any, where: str) -> None:
        self._tokenizer, self.where = tokenizer, where

    @property
    def has_texts(self) -> bool:
        """Whether texts are known."""
        return self._tokenizer is not None

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
