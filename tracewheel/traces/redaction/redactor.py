"""Takes secrets and personal data out of traces before anything is stored: a consistent pseudonym for each value.

What a trace holds is searched as one text, in which calls' arguments and tools' replies are JSON text within JSON text
(`Unescaped`), so that a value is found wherever and however deep it is written. A first look with all triggers at
once tells whether there is anything to search for; most traces end there, and stay the very object that they were.
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
BETWEEN_OBJECTS = re.compile(r"\}, ?(?=\{)")  # no value goes on from one JSON object to the next
SHORTEST_PART = 200
ESCAPED = r"\\u(?:00[0-7aA]|20[0-3])"  # a letter, a digit, or what may stand between digits, written as an escape
ESCAPE = re.compile(ESCAPED.encode())
KNOWN_ELSEWHERE = 4  # more doubt than any detector has


def key_digest(config: RedactionConfig) -> dict[str, str]:
    """A hash of the key that pseudonyms are made with, as another key makes other data; nothing without a key."""
    key = os.environ.get(config.key_variable, "")
    return {"redaction key": content_hash(["redaction key", key])} if key and config.enabled else {}


class Redactor:
    """Redacts traces, one by one, and learns their secrets, which the others may hold without a sign of what they are.

    Args:
        config: What to look for, what to leave, and how far pseudonyms reach.

    Raises:
        ConfigError: pseudonyms are to reach over the dataset, and the environment variable for their key is not set.
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

        User, session, task and id, where they hold such data, become hashes as wholes, so that what belonged together still
        does. Token ids spell what was said: where anything was redacted they go too (counted as `token_ids`).

        Returns:
            The same object where there is nothing to redact.

        Raises:
            SecretError: a secret that was found is still there afterwards.
        """
        content = {name: getattr(trace, name) for name in CONTENT if hasattr(trace, name)}
        identities = {name: getattr(trace, name, None) for name in IDENTITIES}
        if not self.is_suspicious(_bytes([content, identities])):
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
        if getattr(trace, "tokens", None) is not None:
            changed["tokens"] = None
            counts["token_ids"] += 1
        return replace(trace, **changed), counts

    def is_suspicious(self, raw: bytes) -> bool:
        """A quick look at bytes: whether a search is worth while. What it calls clean holds nothing that is redacted."""
        return self._triggers.fire(raw) or self._known.may_be_in(raw)

    def look_for_learned(self) -> bool:
        """From now on look in every trace for the secrets learned so far; says whether that is more than before."""
        before, self._known = len(self._known), self._known.with_more(self.learned)
        return len(self._known) > before

    def record_bytes(self, raw: bytes, place: str = "a record in quarantine") -> tuple[bytes, Counter[str]]:
        """What could not be read, without secrets and personal data; bytes that are no UTF-8 stay as they are.

        Args:
            raw: The bytes of a record.
            place: Its file and line, for the error.

        Raises:
            SecretError: a secret that was found is still there afterwards.
        """
        encoding, errors = encoding_of(raw)
        text = raw.decode(encoding, errors)
        redacted, counts = self._scrub(text, Pseudonyms(self._dataset_key), place)
        return (redacted.encode(encoding, errors) if redacted != text else raw), counts

    def name(self, name: str) -> str:
        """A file's name, or where it holds a secret or personal data a stand-in for it, the same wherever it is named."""
        return identity_pseudonym("file", name, self._key) if self._find(name) else name

    def survivors(self, text: str) -> list[str]:
        """The kinds of secrets and personal data in a text, pseudonyms and allowed texts aside: none after redaction."""
        return sorted({item.kind for item in self._find(text)})

    def _scrub(self, written: str, pseudonyms: Pseudonyms, place: str) -> tuple[str, Counter[str]]:
        """The text with pseudonyms, and what was replaced. It is searched again until nothing more is found."""
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
        """What is in a text, in its order; of what overlaps one."""
        known = KnownValues(pseudonyms.identities()) if pseudonyms else None
        found: list[Found] = []
        if not (known and known.may_be_in(written)) and not self.is_suspicious(_bytes(written)):
            return found
        for start, part in _parts(written):
            fired = self._triggers.fired(_bytes(part))
            if not fired and not (known and known.may_be_in(part)) and not self._known.may_be_in(_bytes(part)):
                continue
            text = Unescaped(part)
            if len(self._detectors) in fired:  # what the triggers look for may be written as escapes
                fired = self._triggers.fired(_bytes(text.plain))
            detectors = [self._detectors[index] for index in fired if index < len(self._detectors)]
            candidates = [(detector.doubt, item) for detector in detectors for item in self._matches(detector, text)]
            if known:
                candidates += [(KNOWN_ELSEWHERE, item) for item in known.find(text)]
            candidates += [(KNOWN_ELSEWHERE, item) for item in self._known.find(text)]
            found += [item._replace(start=item.start + start, end=item.end + start) for item in _apart(candidates)]
        return found

    def _matches(self, detector: Detector, text: Unescaped) -> Iterator[Found]:
        for match in detector.pattern.finditer(text.text if detector.nested else text.plain):
            start, end = match.span(detector.group)
            value = text.plain[start:end]
            identity = detector.identify(value)
            if identity is None or is_pseudonym(detector.kind, value) or self._is_allowed(value):
                continue
            if '"' not in text.text[start:end]:  # the quote that ends a JSON string is no part of a value
                yield Found(*text.span(start, end), detector.kind, value, identity)

    def _is_allowed(self, value: str) -> bool:
        return value in self._allowed or any(pattern.fullmatch(value) for pattern in self._allowed_patterns)


def _parts(written: str) -> Iterator[tuple[int, str]]:
    """A text in parts, each with its place, so that one message with something in it costs no search of all others."""
    at = 0
    for match in BETWEEN_OBJECTS.finditer(written):
        if match.end() - at >= SHORTEST_PART:
            yield at, written[at : match.end()]
            at = match.end()
    yield at, written[at:]


def _apart(candidates: list[tuple[int, Found]]) -> list[Found]:
    """What does not overlap: of those that do, the one with the least doubt, then the longest."""
    chosen: list[Found] = []
    for _, item in sorted(candidates, key=lambda entry: (entry[0], entry[1].start - entry[1].end)):
        place = bisect_left(chosen, item)
        before, after = chosen[max(place - 1, 0) : place], chosen[place : place + 1]
        if all(other.end <= item.start for other in before) and all(item.end <= other.start for other in after):
            chosen.insert(place, item)
    return chosen


def encoding_of(raw: bytes) -> tuple[str, str]:
    """How to decode bytes so that they can be encoded again as they were, and with which way to take errors."""
    if raw.count(0) * 4 < len(raw) or len(raw) % 2:
        return "utf-8", "surrogateescape"
    # Text in UTF-16, mostly of ASCII: every second byte is 0.
    return "utf-16-le" if raw[1::2].count(0) >= raw[0::2].count(0) else "utf-16-be", "surrogatepass"


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    import orjson

    try:
        return orjson.dumps(value)
    except TypeError:  # half of a surrogate pair, or a number of more than 64 bits
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
