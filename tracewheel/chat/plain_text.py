"""Escaping of control tokens in message text: they are encoded as ordinary characters, never as control tokens.

A web page from a tool, a user, or a file can contain `<|im_end|>` or `<|im_start|>system`. A tokenizer that is given the
rendered conversation as one text would turn these into real control tokens, so the text could end a turn or pose as
another role. Each such string in a message is therefore replaced by a mark before the template is rendered. When the
rendered text is encoded, a mark becomes the ids of the original characters as ordinary text. A text that begins or ends
with part of a control token gets a mark at that edge, so that template and text cannot form one together. All other
text is encoded as if there were no marks.

Names that the template looks up stay as they are: the keys it uses, a message's role and the `type` of a part.
All other keys are text, too: a template prints the arguments of a call and the properties of a schema with their names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import ConfigError

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


# Below these keys of a tool or a message the keys are names that a stranger chose, at every depth or at the first alone.
_DATA = frozenset({"arguments", "default", "examples", "example", "const", "enum"})
_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired"})


class PlainText:
    """Marks control tokens in messages and tools, and encodes rendered text with its marks.

    Control tokens are the tokenizer's special tokens, the added tokens that the template prints around turns (DeepSeek's
    `<｜User｜>` is not special) and, except in assistant messages, the tokens that frame a tool's reply. An added token
    that contains one is a control token too. What opens a call or a thought is no control token: it is the policy's own.

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
        turns = special | turn_marks(tokenizer, [token for token in tokens if token not in special])
        framing = turns | {frame for frame in frames if any(frame in token for token in tokens)}
        self._in_assistant, self._in_others = Controls(turns, tokens), Controls(framing, tokens)
        self._looked_up = looked_up_names(tokenizer.chat_template)
        self.control_tokens = self._in_others.tokens
        self.control_ids = frozenset(number for number, token in added.items() if token.content in self.control_tokens)
        # The tokens that no text forges, an assistant's included.
        self.turn_ids = frozenset(number for number, token in added.items() if token.content in self._in_assistant.tokens)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(
                f"the tokenizer of {tokenizer.name_or_path} has no `tokenizers` backend, which is needed to encode control "
                "tokens in tool replies as plain text; save it as a fast tokenizer (tokenizer.json)"
            )
        self._backend = backend
        self._spelled = {mark_of(text): self._spell(text) for text in self._in_others.texts}
        # Only tokens of the kind `normalized` are looked for in text that the tokenizer's normaliser has changed.
        hidden = any(token.normalized for number, token in added.items() if number in self.control_ids)
        self._normalise = backend.normalizer.normalize_str if hidden and backend.normalizer is not None else None
        self._anchor = self._find_anchor(added.values())

    def mark_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Copy a message with the control tokens in its texts marked."""
        controls = self._in_assistant if message.get("role") == "assistant" else self._in_others
        return {
            self._mark_key(key, controls): self._mark_name(item, controls) if key == "role" else self._mark(item, controls, key)
            for key, item in message.items()
        }

    def mark_tools(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Copy descriptions of tools with the control tokens in their texts and names marked."""
        return [self._mark(tool, self._in_others) for tool in tools]

    def mark(self, text: str, *, assistant: bool = False) -> str:
        """Mark the control tokens in a text: all of them, or those that an assistant's own text cannot hold."""
        return self._mark_text(text, self._in_assistant if assistant else self._in_others)

    def encode(self, text: str, *, after: str | None = None) -> list[int]:
        """Ids of rendered text: control tokens from the template stay, marked ones become ordinary text.

        Some tokenizers put a space before the first word of all, or let a control token swallow the spaces after it.

        Args:
            text: Rendered text with its marks.
            after: The control token that the text follows; '' where it follows other text, None where a conversation begins.
        """
        ids: list[int] = []
        for index, piece in enumerate(MARK.split(text)):
            if index % 2:
                ids += self._spelled[piece]
                continue
            parts = piece.split(EDGE)
            for part in parts if self._forged(parts) else ["".join(parts)]:
                before = self._anchor if ids or after == "" else after or ""
                ids += self._encode(part, before) if part else []
        return ids

    def _mark(self, value: Any, controls: Controls, key: str = "", data: bool = False) -> Any:
        if isinstance(value, str):
            return self._mark_name(value, controls) if key == "type" and not data else self._mark_text(value, controls)
        if isinstance(value, list | tuple):
            return [self._mark(item, controls, key, data) for item in value]
        if not isinstance(value, dict):
            return value
        below = data or key in _DATA
        named = below or key in _NAMES
        marked = {}
        for name, item in value.items():
            own = self._mark_text(name, controls) if named else self._mark_key(name, controls)
            # A property called `default` or `properties` is a schema like any other.
            marked[own] = self._mark(item, controls, "" if named else name, below)
        return marked

    def _mark_key(self, key: str, controls: Controls) -> str:
        return self._mark_name(key, controls) if key in self._looked_up else self._mark_text(key, controls)

    def _mark_name(self, name: Any, controls: Controls) -> Any:
        """A name that the template may compare: only a whole control token in it is marked."""
        if not isinstance(name, str):
            return self._mark(name, controls)
        return controls.mark(name)

    def _mark_text(self, text: str, controls: Controls) -> str:
        if self._normalise is not None:
            seen = self._normalise(text)
            if seen != text and (controls.holds(seen) or controls.touched_by(seen.strip())):
                text = seen
        # A template may strip a text: the marks at its edges stand inside of the spaces.
        core = text.strip()
        if not core or not controls.touched_by(core):
            return controls.mark(text)
        start = text.index(core)
        return f"{text[:start]}{EDGE}{controls.mark(core)}{EDGE}{text[start + len(core) :]}"

    def _forged(self, parts: list[str]) -> bool:
        """Whether a control token crosses an edge between two parts."""
        text = "".join(parts)
        edges = itertools.accumulate(map(len, parts[:-1]))
        return any(self._in_others.crosses(text, edge) for edge in edges)

    def _encode(self, text: str, before: str) -> list[int]:
        if before:
            ids = self._tokenizer.encode(before + text, add_special_tokens=False)
            # Otherwise one added token holds the end of `before` and the beginning of `text`.
            if ids[:1] == [self._tokenizer.convert_tokens_to_ids(before)]:
                return list(ids[1:])
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _find_anchor(self, added: Iterable[Any]) -> str:
        """A special token to stand before text that continues other text, where this changes the text's ids."""
        anchor = min((token.content for token in added if token.special and not token.rstrip), default="")
        alone, after = (self._tokenizer.encode(text, add_special_tokens=False) for text in ("a", anchor + "a"))
        return anchor if anchor and after[1:] != alone else ""

    def _spell(self, text: str) -> list[int]:
        """Encode `text` with the vocabulary's model alone, without added tokens."""
        ids = _model_ids(self._backend, text)
        if not self.control_ids.isdisjoint(ids):
            ids = [number for character in text for number in _model_ids(self._backend, character)]
        if not self.control_ids.isdisjoint(ids):
            name = self._tokenizer.name_or_path
            raise ConfigError(f"the tokenizer of {name} cannot write '{text}' as plain text, so a tool's reply could forge it")
        return ids


def _model_ids(backend: Any, text: str) -> list[int]:
    words = _words(backend, text)
    # Some tokenizers put a space before the first word of all; what is spelled here follows other text.
    space = "".join(_words(backend, "a")).removesuffix("a")
    words[:1] = [words[0].removeprefix(space)] if words else []
    return [token.id for word in words for token in backend.model.tokenize(word)]


def _words(backend: Any, text: str) -> list[str]:
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    return [text] if backend.pre_tokenizer is None else [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
