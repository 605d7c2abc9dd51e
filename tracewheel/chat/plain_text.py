"""Control tokens that stand in a message's own text are spelled out, never encoded as control tokens.

A tool that returns a web page, a user, or a file can write `<|im_end|>` or `<|im_start|>system`. A
tokenizer that is given the rendered conversation as one text would make real control tokens of that,
and the text could end a turn or speak as another role. So before a template is rendered each such
string in a message is replaced by a mark, and when the rendered text is encoded the mark becomes the
ids of the same characters as ordinary text. Where a message begins or ends with a part of a control
token, its edge is marked too, so that template and message do not make one together. Any other text
is encoded as if there were no marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Code points of the private use area; where a message holds one itself, that is marked as well.
_OPEN, _CLOSE, _EDGE = "\ue000", "\ue001", "\ue002"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class PlainText:
    """Marks control tokens in messages, and encodes rendered text with its marks.

    Control tokens are those that the tokenizer calls special (the ends and openings of turns) and, except
    in what the assistant says, those that frame a tool's reply; an added token that contains one is one too.

    Args:
        tokenizer: A tokenizer with a `tokenizers` backend.
        frames: The texts that frame a tool's reply in the tool-call format.

    Raises:
        ConfigError: a control token cannot be spelled in this vocabulary.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, frames: Iterable[str]) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        special = {token.content for token in added.values() if token.special} | set(tokenizer.all_special_tokens)
        tokens = [token.content for token in added.values()]
        framing = special | {frame for frame in frames if any(frame in token for token in tokens)}
        self._spoken, self._heard = _Controls(special, tokens), _Controls(framing, tokens)
        self.control_ids = frozenset(number for number, token in added.items() if token.content in self._heard.tokens)
        marked = [_OPEN, _CLOSE, _EDGE, *sorted(framing)]
        self._numbers = {text: number for number, text in enumerate(marked)}
        self._spelled = [self._spell(text) for text in marked]

    def mark(self, value: Any, *, assistant: bool = False) -> Any:
        """A copy of a message, a tool or any part of one, with the control tokens in its texts marked."""
        if isinstance(value, str):
            return self._mark_text(value, self._spoken if assistant else self._heard)
        if isinstance(value, dict):
            return {self.mark(key, assistant=assistant): self.mark(item, assistant=assistant) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mark(item, assistant=assistant) for item in value]
        return value

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text: control tokens that the template wrote are real, marked ones are spelled."""
        ids: list[int] = []
        for index, piece in enumerate(_MARK.split(text)):
            if index % 2:
                ids += self._spelled[int(piece)]
                continue
            parts = piece.split(_EDGE)
            for part in parts if self._forged(parts) else ["".join(parts)]:
                ids += self._tokenizer.encode(part, add_special_tokens=False) if part else []
        return ids

    def _mark_text(self, text: str, controls: _Controls) -> str:
        marked = controls.pattern.sub(lambda match: f"{_OPEN}{self._numbers[match.group()]}{_CLOSE}", text)
        return f"{_EDGE}{marked}{_EDGE}" if controls.touched_by(text) else marked

    def _forged(self, parts: list[str]) -> bool:
        """Whether a control token lies across an edge between two of the parts."""
        text, edge = "".join(parts), 0
        for part in parts[:-1]:
            edge += len(part)
            for control in self._heard.tokens:
                if text.find(control, max(0, edge - len(control) + 1), edge + len(control) - 1) >= 0:
                    return True
        return False

    def _spell(self, text: str) -> list[int]:
        """The ids of `text` by the vocabulary's model alone, past all added tokens."""
        name = self._tokenizer.name_or_path
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(
                f"the tokenizer of {name} has no `tokenizers` backend, by which control tokens in tool replies are spelled "
                "as plain text; save it as a fast tokenizer (tokenizer.json)"
            )
        ids = _model_ids(backend, text)
        if not self.control_ids.isdisjoint(ids):
            ids = [number for character in text for number in _model_ids(backend, character)]
        if not self.control_ids.isdisjoint(ids):
            raise ConfigError(f"the tokenizer of {name} cannot write '{text}' as plain text, so a tool's reply could forge it")
        return ids


class _Controls:
    """The texts that control, the added tokens that hold one, and how to find them in a message.

    Only the texts themselves are marked: without them the longer tokens are nothing, and a text has no
    character that JSON would escape when a template writes a tool or a call's arguments.
    """

    def __init__(self, texts: Iterable[str], added: Iterable[str]) -> None:
        longest_first = sorted(texts, key=lambda text: (-len(text), text))
        self.pattern = re.compile("|".join(map(re.escape, [*longest_first, _OPEN, _CLOSE, _EDGE])))
        self.tokens = frozenset(token for token in added if any(text in token for text in longest_first))
        self._beginnings = tuple({token[:cut] for token in self.tokens for cut in range(1, len(token))})
        self._ends = tuple({token[cut:] for token in self.tokens for cut in range(1, len(token))})

    def touched_by(self, text: str) -> bool:
        """Whether `text` could be a part of a control token together with what is written around it."""
        within = bool(text) and any(text in token for token in self.tokens)
        return within or text.endswith(self._beginnings) or text.startswith(self._ends)


def _model_ids(backend: Any, text: str) -> list[int]:
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    words = [text] if backend.pre_tokenizer is None else [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    return [token.id for word in words for token in backend.model.tokenize(word)]
