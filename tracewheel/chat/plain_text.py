"""Escaping of control tokens in message text: they are encoded as ordinary characters, never as control tokens.

A web page from a tool, a user, or a file can contain `<|im_end|>` or `<|im_start|>system`. A tokenizer that is given the
rendered conversation as one text would turn these into real control tokens, so the text could end a turn or pose as
another role. Each such string in a message is therefore replaced by a mark before the template is rendered. When the
rendered text is encoded, a mark becomes the ids of the original characters as ordinary text. A message that begins or
ends with part of a control token gets a mark at that edge, so that template and message cannot form one together. All
other text is encoded as if there were no marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Code points of the private use area. Where a message contains one, it is marked as well.
_OPEN, _CLOSE, _EDGE = "\ue000", "\ue001", "\ue002"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class PlainText:
    """Marks control tokens in messages, and encodes rendered text with its marks.

    Control tokens are the tokenizer's special tokens (which open and end turns) and, except in assistant messages, the
    tokens that frame a tool's reply. An added token that contains one is a control token too.

    Args:
        tokenizer: A tokenizer with a `tokenizers` backend.
        frames: Texts that frame a tool's reply in the tool-call format.

    Raises:
        ConfigError: the vocabulary cannot encode a control token as ordinary text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, frames: Iterable[str]) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        special = {token.content for token in added.values() if token.special} | set(tokenizer.all_special_tokens)
        tokens = [token.content for token in added.values()]
        framing = special | {frame for frame in frames if any(frame in token for token in tokens)}
        self._in_assistant, self._in_others = _Controls(special, tokens), _Controls(framing, tokens)
        self.control_ids = frozenset(number for number, token in added.items() if token.content in self._in_others.tokens)
        marked = [_OPEN, _CLOSE, _EDGE, *sorted(framing)]
        self._numbers = {text: number for number, text in enumerate(marked)}
        self._spelled = [self._spell(text) for text in marked]

    def mark(self, value: Any, *, assistant: bool = False) -> Any:
        """Copy a message, a tool or any part of one, with the control tokens in its texts marked."""
        if isinstance(value, str):
            return self._mark_text(value, self._in_assistant if assistant else self._in_others)
        if isinstance(value, dict):
            return {self.mark(key, assistant=assistant): self.mark(item, assistant=assistant) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mark(item, assistant=assistant) for item in value]
        return value

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text: control tokens from the template stay, marked ones become ordinary text."""
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
        """Whether a control token crosses an edge between two parts."""
        text, edge = "".join(parts), 0
        for part in parts[:-1]:
            edge += len(part)
            for control in self._in_others.tokens:
                if text.find(control, max(0, edge - len(control) + 1), edge + len(control) - 1) >= 0:
                    return True
        return False

    def _spell(self, text: str) -> list[int]:
        """Encode `text` with the vocabulary's model alone, without added tokens."""
        name = self._tokenizer.name_or_path
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(
                f"the tokenizer of {name} has no `tokenizers` backend, which is needed to encode control tokens in "
                "tool replies as plain text; save it as a fast tokenizer (tokenizer.json)"
            )
        ids = _model_ids(backend, text)
        if not self.control_ids.isdisjoint(ids):
            ids = [number for character in text for number in _model_ids(backend, character)]
        if not self.control_ids.isdisjoint(ids):
            raise ConfigError(f"the tokenizer of {name} cannot write '{text}' as plain text, so a tool's reply could forge it")
        return ids


class _Controls:
    """Control texts, the added tokens that contain one, and the search for both in a message.

    Only the texts are marked: this breaks the longer tokens too, and the texts have no character that JSON would escape
    when a template writes a tool or the arguments of a call.
    """

    def __init__(self, texts: Iterable[str], added: Iterable[str]) -> None:
        longest_first = sorted(texts, key=lambda text: (-len(text), text))
        self.pattern = re.compile("|".join(map(re.escape, [*longest_first, _OPEN, _CLOSE, _EDGE])))
        self.tokens = frozenset(token for token in added if any(text in token for text in longest_first))
        self._beginnings = tuple({token[:cut] for token in self.tokens for cut in range(1, len(token))})
        self._ends = tuple({token[cut:] for token in self.tokens for cut in range(1, len(token))})

    def touched_by(self, text: str) -> bool:
        """Whether `text` could form a control token together with adjacent text."""
        within = bool(text) and any(text in token for token in self.tokens)
        return within or text.endswith(self._beginnings) or text.startswith(self._ends)


def _model_ids(backend: Any, text: str) -> list[int]:
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    words = [text] if backend.pre_tokenizer is None else [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    return [token.id for word in words for token in backend.model.tokenize(word)]
