"""Replaces the secrets and personal data of traces with consistent pseudonyms, before anything is stored.

A trace is searched as one text, in which calls' arguments and tools' replies are JSON text within JSON text (`Unescaped`),
so that values are found at any depth. A first search for all triggers at once finds nothing in most traces; these are
returned unchanged, as the same object.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tracewheel.config.curation import RedactionConfig
from tracewheel.core.errors import ConfigError, SecretError
from tracewheel.core.types import Trace, content_hash
from tracewheel.traces.redaction.detector import Detector
from tracewheel.traces.redaction.known_values import Found, KnownSecrets, KnownValues, telling_secrets
from tracewheel.traces.redaction.patterns import custom_detectors, secret_detectors
from tracewheel.traces.redaction.personal_data import personal_detectors
from tracewheel.traces.redaction.pseudonyms import Pseudonyms, identity_pseudonym, is_pseudonym
from tracewheel.traces.redaction.triggers import Triggers
from tracewheel.traces.redaction.unescaped import Unescaped

CONTENT = ("messages", "tools", "environment", "info", "model", "created", "source_file")
IDENTITIES = {"user": "user", "session": "session", "task": "task", "id": "trace"}
ROUNDS = 5
BETWEEN_OBJECTS = re.compile(r"\}, ?(?=\{)")  # no value continues from one JSON object into the next
SHORTEST_PART = 200
ESCAPED = r"\\u(?:00[0-7aA]|20[0-3])"  # an escaped letter, digit, or separator of digits
ESCAPE = re.compile(ESCAPED.encode())
KNOWN_ELSEWHERE = 4  # more than any detector's doubt


def key_digest(config: RedactionConfig) -> dict[str, str]:
    """A digest of the pseudonyms' key, as stored data depend on it; empty without a key."""
    key = os.environ.get(config.key_variable, "")
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
        key = os.environ.get(config.key_variable, "").encode()
        if config.scope == "dataset" and not key:
            raise ConfigError(
                f"ingest.redaction.scope 'dataset' needs a key: set the environment variable {config.key_variable} to a long"
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
        self._known = KnownSecrets()
        self._triggers = Triggers([*(detector.trigger for detector in self._detectors), ESCAPED] if self._detectors else [])

    def trace(self, trace: Trace) -> tuple[Trace, Counter[str]]:
        """The trace without secrets and personal data, and how many places were redacted, by kind.

        A user, session, task or id with such data is replaced whole by a keyed hash, so that traces stay linked. Token ids
        encode the text, so they are dropped from a trace with any redaction (counted as `token_ids`).

        Returns:
            The same object if there is nothing to redact.

        Raises:
            SecretError: a value is still found after redaction.
        """
        content = {name: getattr(trace, name) for name in CONTENT}
        identities = {name: getattr(trace, name) for name in IDENTITIES}
        if not self._is_suspicious(_bytes([content, identities])):
            return trace, Counter()
        place = f"{trace.source_file}:{trace.source_line}"
        written = json.dumps(content, ensure_ascii=False)
        pseudonyms = Pseudonyms(self._dataset_key)
        redacted, counts = self._scrub(written, pseudonyms, place)
        changed: dict[str, Any] = json.loads(redacted) if redacted != written else {}
        for name, value in identities.items():
            if isinstance(value, str) and (found := self._find(value, pseudonyms)):
                counts.update(item.kind for item in found)
                self.learned |= telling_secrets((item.kind, item.identity) for item in found)
                changed[name] = identity_pseudonym(IDENTITIES[name], value, self._key)
        if not changed:
            return trace, Counter()
        if trace.tokens is not None:
            changed["tokens"] = None
            counts["token_ids"] += 1
        return replace(trace, **changed), counts

    def _is_suspicious(self, raw: bytes) -> bool:
        """Whether bytes may hold a value to redact. Fast; False is certain."""
        return self._triggers.fire(raw) or self._known.may_be_in(raw)

    def look_for_learned(self) -> bool:
        """From now on, search every trace for the secrets learned so far; returns whether there are new ones."""
        before, self._known = len(self._known), self._known.with_more(self.learned)
        return len(self._known) > before

    def record_bytes(self, raw: bytes, place: str = "a record in quarantine") -> tuple[bytes, Counter[str]]:
        """The bytes of an unreadable record without secrets and personal data; bytes that are not UTF-8 stay unchanged.

        Args:
            raw: The bytes of a record.
            place: Its file and line, for the error.

        Raises:
            SecretError: a value is still found after redaction.
        """
        encoding, errors = encoding_of(raw)
        text = raw.decode(encoding, errors)
        redacted, counts = self._scrub(text, Pseudonyms(self._dataset_key), place)
        return (redacted.encode(encoding, errors) if redacted != text else raw), counts

    def name(self, name: str) -> str:
        """A file's name; if it holds a secret or personal data, a consistent pseudonym for it."""
        return identity_pseudonym("file", name, self._key) if self._find(name) else name

    def _scrub(self, written: str, pseudonyms: Pseudonyms, place: str) -> tuple[str, Counter[str]]:
        """The text with pseudonyms, and how many places were replaced by kind. Repeats until nothing more is found."""
        counts: Counter[str] = Counter()
        found: list[Found] = []
        for _ in range(ROUNDS):
            found = self._find(written, pseudonyms)
            if not found:
                self.learned |= telling_secrets(pseudonyms.identities())
                return written, counts
            pieces, at = [], 0
            for item in found:
                pieces += [written[at : item.start], pseudonyms.of(item.kind, item.identity, item.value)]
                at = item.end
            written = "".join([*pieces, written[at:]])
            counts.update(item.kind for item in found)
        kinds = ", ".join(sorted({item.kind for item in found}))
        raise SecretError(
            f"{place}: after redaction it still holds {kinds}; allow the text in ingest.redaction.allow, or report it"
        )

    def _find(self, written: str, pseudonyms: Pseudonyms | None = None) -> list[Found]:
        """The values in a text, in order and without overlaps."""
        known = KnownValues(pseudonyms.identities()) if pseudonyms else None
        found: list[Found] = []
        if not (known and known.may_be_in(written)) and not self._is_suspicious(_bytes(written)):
            return found
        for start, part in _parts(written):
            fired = self._triggers.fired(_bytes(part))
            if not fired and not (known and known.may_be_in(part)) and not self._known.may_be_in(_bytes(part)):
                continue
            text = Unescaped(part)
            if len(self._detectors) in fired:  # escapes may hide what triggers match
                fired = self._triggers.fired(_bytes(text.plain))
            detectors = [self._detectors[index] for index in fired if index < len(self._detectors)]
            candidates = [(detector.doubt, item) for detector in detectors for item in self._matches(detector, text)]
            if known:
                candidates += [(KNOWN_ELSEWHERE, item) for item in known.find(text)]
            candidates += [(KNOWN_ELSEWHERE, item) for item in self._known.find(text)]
            found += [item._replace(start=item.start + start, end=item.end + start) for item in _apart(candidates)]
        return found

    def _matches(self, detector: Detector, text: Unescaped) -> Iterator[Found]:
        for match in detector.matches(text.text if detector.nested else text.plain):
            start, end = match.span(detector.group)
            value = text.plain[start:end]
            identity = detector.identify(value)
            if identity is None or is_pseudonym(detector.kind, value) or self._is_allowed(value):
                continue
            if '"' not in text.text[start:end]:  # a JSON string's closing quote is not part of a value
                yield Found(*text.span(start, end), detector.kind, value, identity)

    def _is_allowed(self, value: str) -> bool:
        return value in self._allowed or any(pattern.fullmatch(value) for pattern in self._allowed_patterns)


def _parts(written: str) -> Iterator[tuple[int, str]]:
    """A text in parts with their places, so that a match in one message does not cost a search of all others."""
    at = 0
    for match in BETWEEN_OBJECTS.finditer(written):
        if match.end() - at >= SHORTEST_PART:
            yield at, written[at : match.end()]
            at = match.end()
    yield at, written[at:]


def _apart(candidates: list[tuple[int, Found]]) -> list[Found]:
    """Candidates without overlaps: the least doubt wins, then the longest."""
    chosen: list[Found] = []
    for _, item in sorted(candidates, key=lambda entry: (entry[0], entry[1].start - entry[1].end)):
        place = bisect_left(chosen, item)
        before, after = chosen[max(place - 1, 0) : place], chosen[place : place + 1]
        if all(other.end <= item.start for other in before) and all(item.end <= other.start for other in after):
            chosen.insert(place, item)
    return chosen


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
