"""Which texts are control tokens, the marks that stand for them, and the names that a chat template looks up."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Code points of the private use area. Where a text contains one, it is marked as well.
OPEN, CLOSE, EDGE = "\ue000", "\ue001", "\ue002"
MARK = re.compile(f"{OPEN}([0-9.]+){CLOSE}")
# What a policy opens a thought with is its own: such tokens are never taken for the marks of a turn.
_THOUGHTS = re.compile(r"think|thought|reason", re.IGNORECASE)
_PROBES: tuple[tuple[tuple[str, str], ...], ...] = (
    (("system", "probe"), ("user", "probe"), ("assistant", "probe"), ("user", "probe")),
    (("user", "probe"), ("assistant", "probe"), ("user", "probe")),
    (("user", "probe"),),
)


def mark_of(text: str) -> str:
    """What stands between OPEN and CLOSE for a text: digits, so that no template changes it."""
    return ".".join(str(ord(character)) for character in text)


class Controls:
    """Control texts, the added tokens that contain one, and the search for both in a message.

    Only the texts are marked: this breaks the longer tokens too, and the texts have no character that JSON would escape
    when a template writes a tool or the arguments of a call.
    """

    def __init__(self, texts: Iterable[str], added: Iterable[str]) -> None:
        longest_first = sorted(texts, key=lambda text: (-len(text), text))
        self.texts = (OPEN, CLOSE, EDGE, *longest_first)
        # Thousands of texts are compared only where the first two characters of one stand.
        openings = "|".join(map(re.escape, sorted({text[:2] for text in self.texts})))
        self._pattern = re.compile(f"(?={openings})(?:{'|'.join(map(re.escape, self.texts))})")
        self.tokens = frozenset(token for token in added if self._pattern.search(token))
        self._joined = "\0".join(sorted(self.tokens))
        self._beginnings = frozenset(token[:cut] for token in self.tokens for cut in range(1, len(token)))
        self._ends = frozenset(token[cut:] for token in self.tokens for cut in range(1, len(token)))
        self._longest = max(map(len, self.tokens), default=0)

    def holds(self, text: str) -> bool:
        """Whether `text` contains a control text."""
        return self._pattern.search(text) is not None

    def mark(self, text: str) -> str:
        """The text with its control texts replaced by marks."""
        return self._pattern.sub(lambda match: f"{OPEN}{mark_of(match.group())}{CLOSE}", text)

    def touched_by(self, text: str) -> bool:
        """Whether `text` could form a control token together with adjacent text."""
        within = bool(text) and "\0" not in text and text in self._joined
        cuts = range(1, min(self._longest, len(text) + 1))
        return within or any(text[-cut:] in self._beginnings or text[:cut] in self._ends for cut in cuts)

    def crosses(self, text: str, edge: int) -> bool:
        """Whether a control token begins before position `edge` of `text` and ends after it."""
        if not 0 < edge < len(text) or text[edge - 1 : edge + 1] not in self._joined:
            return False
        near = text[max(0, edge - self._longest + 1) : edge + self._longest - 1]
        return any(_spans(near, token, min(edge, self._longest - 1)) for token in self.tokens)


def turn_marks(tokenizer: PreTrainedTokenizerBase, added: Iterable[str]) -> set[str]:
    """Those of the added tokens that the template prints around the turns of a conversation without tools.

    Not among them are blank tokens, tokens that begin or end in a word (a longer token may join template and text), and
    those of a thought.
    """
    markers = [token for token in added if token[0] in "<[" and token[-1] in ">]" and not _THOUGHTS.search(token)]
    rendered = _rendered_probe(tokenizer) if markers and tokenizer.chat_template else ""
    return {token for token in markers if token in rendered}


def looked_up_names(template: Any) -> frozenset[str]:
    """The names in the expressions of a chat template (or of several, by name): the keys that it may look up."""
    from jinja2 import Environment

    templates = list(template.values()) if isinstance(template, dict) else [template] if template else []
    tokens = [token for text in templates for token in Environment().lex(text)]
    words = [value.strip("'\"") for _, kind, value in tokens if kind in ("name", "string")]
    return frozenset(word for word in words if word.isidentifier())


def _rendered_probe(tokenizer: PreTrainedTokenizerBase) -> str:
    """A conversation without tools by the template: the first of the probes that it accepts."""
    for probe in _PROBES:
        messages = [{"role": role, "content": content} for role, content in probe]
        try:
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except Exception:  # a template raises whatever its author chose, for a role it does not know
            continue
    return ""


def _spans(text: str, token: str, edge: int) -> bool:
    return text.find(token, max(0, edge - len(token) + 1), edge + len(token) - 1) >= 0
