"""Replaces the secrets and personal data of traces with consistent pseudonyms, before anything is stored.

A first search for all triggers at once finds nothing in most traces; these are returned unchanged, as the same object. In
the others each value is searched alone (`json_text`), with the name of its field before it: in calls' arguments and tools'
replies, which are JSON text within JSON text, as well. Other text may hold escapes (`Unescaped`) or base64 (`encodings`).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tracewheel.config.curation import RedactionConfig
from tracewheel.core.errors import ConfigError, SecretError
from tracewheel.core.types import Trace, content_hash
from tracewheel.traces.quarantine import Quarantined, withheld
from tracewheel.traces.redaction.detector import Detector, Triggers
from tracewheel.traces.redaction.json_text import QUOTE, Context, Edit, Leaf, applied, in_text, is_json, leaves
from tracewheel.traces.redaction.known_values import (
    CERTAIN,
    KNOWN_ELSEWHERE,
    SECRETS_ONLY,
    Found,
    KnownSecrets,
    Search,
    apart,
    is_made,
    names_in,
    parts,
    telling_secrets,
)
from tracewheel.traces.redaction.patterns import custom_detectors, secret_detectors
from tracewheel.traces.redaction.personal_data import personal_detectors
from tracewheel.traces.redaction.pseudonyms import Pseudonyms, identity_pseudonym, is_pseudonym
from tracewheel.traces.redaction.unescaped import QUOTES, TEXT_IN_BASE64, Unescaped, base64_runs

CONTENT = ("tools", "environment", "info", "model", "created")
IDENTITIES = {"user": "user", "session": "session", "task": "task", "id": "trace", "source_file": "file"}
ROUNDS = 5
SHORTEST_VALUE = 4
DEEPEST = 8  # JSON text within JSON text; deeper text is searched with its escapes
ESCAPED = r"\\u(?:00[0-7aA]|20[0-3])"  # an escaped letter, digit, or separator of digits
ESCAPE = re.compile(ESCAPED.encode())
PERCENT = r"%(?:25)*[2-7][0-9a-fA-F]"
PLAIN_NAME = re.compile(r"[A-Za-z_]{0,60}")  # a key that is no value
CALL_IDS = ("id", "tool_call_id")
STRUCTURE = ("role", "type")
KEY_VARIABLE = "TRACEWHEEL_REDACTION_KEY"
PUNCTUATION = re.compile(rf"[\s{{}}\[\],:{QUOTES}]*")


def key_digest(config: RedactionConfig) -> dict[str, str]:
    """A digest of the pseudonyms' key, as stored data depend on it; empty without a key."""
    key = os.environ.get(KEY_VARIABLE, "")
    return {"redaction key": content_hash(["redaction key", key])} if key and config.enabled else {}


class Redactor:
    """Redacts traces one by one, and learns their secrets, which other traces may hold without context.

    Args:
        config: What to find, what to allow, and the scope of pseudonyms.

    Raises:
        ConfigError: the scope is the dataset, and the environment variable for the key is not set.
    """

    def __init__(self, config: RedactionConfig) -> None:
        self._config = config
        key = os.environ.get(KEY_VARIABLE, "").encode()
        if config.scope == "dataset" and not key:
            raise ConfigError(
                f"ingest.redaction.scope 'dataset' needs a key: set the environment variable {KEY_VARIABLE} to a long"
                " random text and keep it, or choose scope 'trace'"
            )
        self._key, self._dataset_key = key, key if config.scope == "dataset" else None
        self._allowed = frozenset(config.allow)
        self._allowed_patterns = [re.compile(pattern) for pattern in config.allow_patterns]
        self._detectors: list[Detector] = []
        if config.enabled:
            self._detectors += [*custom_detectors(config.patterns), *secret_detectors()]
            self._detectors += personal_detectors(config.personal, config.phone_regions)
        self.learned: dict[str, str] = {}
        self._plain_tools: list[dict[str, Any]] | None = None
        self._known = KnownSecrets()
        triggers = [detector.trigger for detector in self._detectors]
        self._triggers = Triggers([*triggers, ESCAPED, PERCENT], [TEXT_IN_BASE64]) if triggers else Triggers([])
        self._escaped, self._percent = len(triggers), len(triggers) + 1
        self._base64 = Triggers([TEXT_IN_BASE64] if triggers else [])

    def trace(self, trace: Trace, messages: bytes = b"") -> tuple[Trace, Counter[str]]:
        """The trace without secrets and personal data, and how many places were redacted, by kind.

        A user, session, task or id with such data is replaced whole by a keyed hash, so that traces stay linked; so is the
        id of a call. Roles and names of fields that are words stay. Token ids encode the text, so they are dropped from a
        trace with any redaction (counted as `token_ids`).

        Args:
            trace: A trace.
            messages: Its messages as JSON text, where the caller has it.

        Returns:
            The same object if there is nothing to redact.

        Raises:
            SecretError: a value is still found after redaction.
        """
        content = {name: getattr(trace, name) for name in CONTENT}
        identities = {name: getattr(trace, name) for name in IDENTITIES}
        tools = content["tools"]
        if tools is self._plain_tools:  # the same list in trace after trace
            content["tools"] = None
        raw = (messages or _bytes(trace.messages)) + b"\n" + _bytes([content, identities])
        if not self._is_suspicious(raw):
            self._plain_tools = tools
            return trace, Counter()
        content["tools"] = tools  # which may hold what the messages reveal
        parts = {("messages", at): message for at, message in enumerate(trace.messages)}
        parts |= {(name, 0): value for name, value in content.items() if value}
        original = {place: json.dumps(value, ensure_ascii=False) for place, value in parts.items()}
        written = dict(original)
        search = Search(self._pseudonyms(raw.decode("utf-8", "surrogatepass")), names=frozenset(names_in(trace)))
        counts = self._scrub(written, search)
        changed: dict[str, Any] = {}
        for name, value in identities.items():
            if isinstance(value, str) and (edits := self._value_edits(value, Context(), search)):
                counts.update(kind for edit in edits for kind in edit.kinds)
                changed[name] = identity_pseudonym(IDENTITIES[name], value, self._key)
        if changed:
            counts += self._scrub(written, search)
        for name, at in [place for place, text in written.items() if text != original[place]]:
            value = json.loads(written[name, at])
            if name == "messages":
                changed.setdefault(name, list(trace.messages))[at] = value
            else:
                changed[name] = value
        if not changed:
            return trace, Counter()
        if trace.tokens is not None:
            changed["tokens"] = None
            counts["token_ids"] += 1
        return replace(trace, **changed), counts

    def identity(self, field: str, name: str) -> str:
        """The name of a `user`, a `session`, a `task` or a trace (`id`), as it is stored."""
        empty: dict[str, Any] = {"id": "", "messages": [], "tools": [], "environment": None, "session": None, "user": None}
        rest: dict[str, Any] = {"created": None, "model": None, "outcome": None, "source_file": "", "source_line": 1}
        return str(getattr(self.trace(Trace(**{**empty, **rest, field: name}))[0], field))

    def _is_suspicious(self, raw: bytes) -> bool:
        """Whether bytes may hold a value to redact. Fast; False is certain."""
        return self._triggers.fire(raw) or self._known.may_be_in(raw)

    def look_for_learned(self) -> bool:
        """From now on, search every trace for the secrets learned so far; returns whether there are new ones."""
        before, self._known, self._plain_tools = len(self._known), self._known.with_more(self.learned), None
        return len(self._known) > before

    def record_bytes(self, raw: bytes) -> tuple[bytes, Counter[str]]:
        """The bytes of an unreadable record without secrets and personal data; bytes that are not UTF-8 stay unchanged.

        Raises:
            SecretError: a value is still found after redaction.
        """
        encoding, errors = encoding_of(raw)
        text = raw.decode(encoding, errors)
        if not self._is_suspicious(_bytes(text)):
            return raw, Counter()
        written = {("", 0): text}
        counts = self._scrub(written, Search(self._pseudonyms(text)))
        redacted = written["", 0]
        return (redacted.encode(encoding, errors) if redacted != text else raw), counts

    def quarantined(self, item: Quarantined) -> tuple[Quarantined, Counter[str]]:
        """A record in quarantine without secrets and personal data; without its bytes, if it would still hold some."""
        item = replace(item, file=self.name(item.file))
        if item.withheld:
            return item, Counter()
        try:
            raw, found = self.record_bytes(item.raw)
            detail, _ = self.record_bytes(item.detail.encode("utf-8", "backslashreplace"))
        except SecretError as error:
            return withheld(item, error), Counter()
        return replace(item, raw=raw, detail=detail.decode("utf-8", "backslashreplace")), found

    def may_hold_learned(self, data: bytes) -> bool:
        """Whether bytes may hold a secret that `look_for_learned` searches for; letters may be escaped."""
        return self._known.may_be_in(data) or ESCAPE.search(data) is not None

    def name(self, name: str) -> str:
        """A file's name; if it holds a secret or personal data, a consistent pseudonym for it."""
        return self.hidden_name(name) if self._find(name, Search(Pseudonyms())) else name

    def hidden_name(self, name: str) -> str:
        """The pseudonym for the name of a file."""
        return identity_pseudonym("file", name, self._key)

    def _pseudonyms(self, text: str) -> Pseudonyms:
        return Pseudonyms(self._dataset_key, text)

    def _scrub(self, written: dict[tuple[str, int], str], search: Search) -> Counter[str]:
        """Replace values in the parts of a record, until nothing more is found; returns how many places, by kind.

        A value found in one part is then looked for in all, and a part that was changed is searched again.
        """
        counts: Counter[str] = Counter()
        open_parts, found = set(written), len(search.pseudonyms) > 0
        for _ in range(ROUNDS):
            search.refresh()
            changed = set()
            for place, text in written.items():
                raw = _bytes(text)
                known = found and search.known.may_be_in(text)
                if known or (place in open_parts and self._is_suspicious(raw)):
                    search.in_base64 = known or self._known.may_be_in(raw) or self._base64.fire(raw)
                    edits = self._value_edits(text, Context(), search, structure=place[0])
                    if edits:
                        written[place] = applied(text, edits)
                        counts.update(kind for edit in edits for kind in edit.kinds)
                        changed.add(place)
            if not changed:
                self.learned |= telling_secrets(search.identities())
                return counts
            open_parts, found = changed, True
        kinds = ", ".join(sorted(counts))
        raise SecretError(f"after redaction it still holds {kinds}; allow the text in ingest.redaction.allow, or report it")

    def _value_edits(self, value: str, at: Context, search: Search, *, structure: str = "", depth: int = 0) -> list[Edit]:
        """The replacements in a value: in each of its own values, if it is JSON text."""
        if depth > DEEPEST or not is_json(value):
            return self._text_edits(value, at.before, search, depth)
        edits: list[Edit] = []
        if depth and not search.known.may_be_in(value) and not self._is_suspicious(_bytes(value)):
            return edits
        for leaf in leaves(value, at.name):
            if len(leaf.value) >= SHORTEST_VALUE and (found := self._leaf_edits(leaf, search, structure, depth)):
                edits += in_text(leaf, found, value)
        return edits

    def _leaf_edits(self, leaf: Leaf, search: Search, structure: str, depth: int) -> list[Edit]:
        if leaf.sort == "key" and PLAIN_NAME.fullmatch(leaf.value):
            return []
        if structure == "messages" and leaf.sort == "text" and leaf.at.name in STRUCTURE:
            return []
        edits = self._value_edits(leaf.value, leaf.at, search, depth=depth + 1)
        if not edits:
            return edits
        kinds = tuple(kind for edit in edits for kind in edit.kinds)
        if leaf.sort == "key":
            name = new = applied(leaf.value, edits)
            while new in leaf.fields.keys:  # two keys of an object stay two
                new = f"{name}_{len(leaf.fields.keys)}" if new == name else new + "_"
            leaf.fields.keys.add(new)
            return [Edit(0, len(leaf.value), new, kinds)]
        if structure == "messages" and leaf.at.name in CALL_IDS:
            return [Edit(0, len(leaf.value), identity_pseudonym("call", leaf.value, self._key), kinds)]
        return edits

    def _text_edits(self, text: str, before: str, search: Search, depth: int) -> list[Edit]:
        """The replacements in text that is not JSON."""
        edits = []
        for item in self._find(text, search, before):
            new = search.pseudonyms.of(item.kind, item.identity, item.value)
            if "%" in text[item.start : item.end] and "%" not in new:
                new = new.replace("@", "%40").replace("+", "%2B").replace(" ", "%20")
            edits.append(Edit(item.start, item.end, new, (item.kind,)))
        if search.in_base64 and depth <= DEEPEST:
            edits += self._base64_edits(text, edits, search, depth)
        return sorted(edits)

    def _known_in_base64(self, run: str, search: Search) -> bool:
        return search.known.may_be_in(run) or self._known.may_be_in(_bytes(run))

    def _base64_edits(self, text: str, others: list[Edit], search: Search, depth: int) -> list[Edit]:
        """The replacements of base64 that holds secrets, known values or an e-mail address."""
        edits: list[Edit] = []
        for run in base64_runs(text, lambda run: self._known_in_base64(run, search)):
            if any(edit.start < run.end and run.start < edit.end for edit in (*others, *edits)):
                continue
            if not self._is_suspicious(_bytes(run.text)) and not search.known.may_be_in(run.text):
                continue
            inner = search.within(SECRETS_ONLY if run.is_text else CERTAIN)
            found = self._value_edits(run.text, Context(), inner, depth=depth + 1)
            if found:
                kinds = tuple(kind for edit in found for kind in edit.kinds)
                edits.append(Edit(run.start, run.end, run.again(applied(run.text, found)), kinds))
        return edits

    def _find(self, written: str, search: Search, before: str = "") -> list[Found]:
        """The values in a text, in order and without overlaps; `before` is the context of its beginning."""
        found: list[Found] = []
        if not search.known.may_be_in(written) and not self._is_suspicious(_bytes(before.replace(QUOTE, '"') + written)):
            return found
        for start, part in parts(written):
            head = "" if start else before
            tail = QUOTE if head.endswith(QUOTE) else ""
            candidates = [item for item in self._candidates(head + part + tail, search) if item[1].start >= len(head)]
            shift = start - len(head)
            last = len(head) + len(part)
            chosen = apart([item for item in candidates if item[1].end <= last])
            found += [item._replace(start=item.start + shift, end=item.end + shift) for item in chosen]
        return found

    def _candidates(self, part: str, search: Search) -> Iterator[tuple[int, Found]]:
        """The values in a text and their doubts; they may overlap."""
        raw = _bytes(part.replace(QUOTE, '"'))
        fired = self._triggers.fired(raw)
        if not fired and not search.known.may_be_in(part) and not self._known.may_be_in(raw):
            return
        for percent in (False, True) if self._percent in fired else (False,):
            text = Unescaped(part, percent=percent)
            hidden = percent or self._escaped in fired  # escapes may hide what triggers match
            for index in self._triggers.fired(_bytes(text.plain)) if hidden else fired:
                if index < len(self._detectors) and search.allows(detector := self._detectors[index]):
                    yield from ((detector.doubt, item) for item in self._matches(detector, text) if not is_made(part, item))
            for known in (search.known, self._known):
                yield from ((KNOWN_ELSEWHERE, item) for item in known.find(text) if not is_made(part, item))

    def _matches(self, detector: Detector, text: Unescaped) -> Iterator[Found]:
        for match in detector.matches(text.text if detector.nested else text.plain):
            start, end = match.span(detector.group)
            value = text.plain[start:end]
            identity = detector.identify(value)
            if identity is None or is_pseudonym(detector.kind, value) or self._is_allowed(value):
                continue
            if not PUNCTUATION.fullmatch(value):  # what stands between two strings of JSON is not a value
                yield Found(*text.span(start, end), detector.kind, value, identity)

    def _is_allowed(self, value: str) -> bool:
        return value in self._allowed or any(pattern.fullmatch(value) for pattern in self._allowed_patterns)


def encoding_of(raw: bytes) -> tuple[str, str]:
    """The codec and error handler that decode these bytes so that encoding restores them."""
    if raw.count(0) * 4 < len(raw) or len(raw) % 2:
        return "utf-8", "surrogateescape"
    # Mostly ASCII in UTF-16: every second byte is 0.
    return "utf-16-le" if raw[1::2].count(0) >= raw[0::2].count(0) else "utf-16-be", "surrogatepass"


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    import orjson

    try:
        return orjson.dumps(value)
    except TypeError:  # half of a surrogate pair, or a number of more than 64 bits
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
