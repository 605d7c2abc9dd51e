"""Replaces the secrets and personal data of traces with consistent pseudonyms, before anything is stored.

A search for the signs of all detectors at once finds nothing in most messages; a trace of these alone is returned unchanged,
as the same object. In the others each value is searched alone (`json_text`), with the name of its field before it: in calls'
arguments and tools' replies, which are JSON text within JSON text, as well. Other text may hold escapes (`Unescaped`) or
base64. What was searched is remembered by its digest, as agents send their whole history with each request.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b, sha256
from typing import Any

from tracewheel.config.curation import RedactionConfig
from tracewheel.core.errors import ConfigError, SecretError
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import LONGEST, Quarantined, withheld
from tracewheel.traces.redaction.detection import ESCAPE, Detection
from tracewheel.traces.redaction.json_text import (
    MAY_BE_JSON,
    PLAIN_KEY,
    QUOTE,
    Context,
    Edit,
    Leaf,
    applied,
    as_bytes,
    in_text,
    is_json,
    leaves,
    searchable,
)
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
    telling_secrets,
)
from tracewheel.traces.redaction.pseudonyms import KEY_VARIABLE, Pseudonyms, identity_pseudonym
from tracewheel.traces.redaction.unescaped import (
    Unescaped,
    base64_runs,
    digest_of_blob,
    encoding_of,
    without_blobs,
)

CONTENT = ("tools", "environment", "info", "model", "created")
IDENTITIES = {"user": "user", "session": "session", "task": "task", "id": "trace", "source_file": "file"}
ROUNDS, SHORTEST_VALUE = 5, 4
LONGEST_VALUE = 4096  # what begins in an excerpt is searched whole
DEEPEST = 8  # JSON text within JSON text; deeper text is searched with its escapes
REMEMBERED, MOST_REMEMBERED = 200, 100_000  # characters of a text that is remembered; how many are
CALL_IDS = ("id", "tool_call_id")
STRUCTURE = ("role", "type")


Place = tuple[str, int]  # the name of a part of a record, and its position


class Redactor:
    """Redacts traces one by one, and learns their secrets, which other traces may hold without context.

    Args:
        config: What to find, what to allow, and the scope of pseudonyms.

    Raises:
        ConfigError: the scope is the dataset, and the environment variable for the key is not set.
    """

    def __init__(self, config: RedactionConfig) -> None:
        key = os.environ.get(KEY_VARIABLE, "").encode()
        if config.scope == "dataset" and not key:
            raise ConfigError(
                f"ingest.redaction.scope 'dataset' needs a key: set the environment variable {KEY_VARIABLE} to a long"
                " random text and keep it, or choose scope 'trace'"
            )
        self._key, self._dataset_key = key, key if config.scope == "dataset" else None
        self._detection = Detection(config)
        self.learned: dict[str, str] = {}
        self._known = KnownSecrets()
        self._clean: set[bytes] = set()
        self._seen: dict[bytes, tuple[list[tuple[int, Found]], bool]] = {}

    def trace(self, trace: Trace, messages: Sequence[bytes] = ()) -> tuple[Trace, Counter[str]]:
        """The trace without secrets and personal data, and how many places were redacted, by kind.

        A user, session, task or id with such data is replaced whole by a keyed hash, so that traces stay linked; so is the
        id of a call. Roles and names of fields that are words stay. Token ids encode the text, so they are dropped from a
        trace with any redaction (counted as `token_ids`).

        Args:
            trace: A trace.
            messages: Each of its messages as JSON text, where the caller has it.

        Returns:
            The same object if there is nothing to redact.

        Raises:
            SecretError: a value is still found after redaction.
        """
        if not self._detection.detectors:
            return trace, Counter()
        values: dict[Place, Any] = {("messages", at): message for at, message in enumerate(trace.messages)}
        given = dict(zip(values, messages, strict=False))
        values |= {(name, 0): value for name in CONTENT if (value := getattr(trace, name))}
        identities = {name: getattr(trace, name) for name in IDENTITIES}
        suspicious = self._suspects({**values, ("identities", 0): identities}, given)
        if not suspicious:
            return trace, Counter()
        raws = {place: given.get(place) or as_bytes(value) for place, value in values.items()}
        original = {place: raw.decode("utf-8", "surrogatepass") for place, raw in raws.items()}
        written = dict(original)
        taken = "\n".join([*written.values(), *(value for value in identities.values() if isinstance(value, str))])
        search = Search(self._pseudonyms(taken), names=frozenset(names_in(trace)))
        counts = self._scrub(written, search, suspicious)
        changed: dict[str, Any] = {}
        for name, value in identities.items():
            if isinstance(value, str) and (edits := self._value_edits(value, Context(), search)):
                counts.update(kind for edit in edits for kind in edit.kinds)
                changed[name] = identity_pseudonym(IDENTITIES[name], value, self._key)
        if changed:
            counts += self._scrub(written, search, suspicious)
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

    def _suspects(self, values: Mapping[Place, Any], written: Mapping[Place, bytes]) -> set[Place]:
        """The places of values that may hold something to redact: one search of all texts, then each that it points to."""
        fresh: list[tuple[Place, bytes, list[str]]] = []
        again: list[tuple[Place, str]] = []  # clean, but for what was learned since
        for place, value in values.items():
            digest = _digest(written.get(place) or as_bytes(value))
            if digest not in self._clean:
                fresh.append((place, digest, searchable(value)))
            elif len(self._known):
                again.append((place, "\n".join(searchable(value))))
        texts = ["\n".join(lines) for _, _, lines in fresh]
        any_known = len(self._known) > 0 and self._is_known_in("\n".join([*texts, *(text for _, text in again)]))
        suspects = {place for place, text in again if any_known and self._is_known_in(text)}
        for (place, digest, lines), text, signs in zip(fresh, texts, self._detection.signs.of_each(texts), strict=True):
            has_base64 = self._detection.base64 in signs
            if (
                (any_known and self._is_known_in(text))
                or any(self._detection.candidates(text, signs))
                or (has_base64 and any(map(self._may_hide, lines)))
            ):
                suspects.add(place)
            elif digest and not has_base64:
                _make_room(self._clean)
                self._clean.add(digest)
        return suspects

    def _may_hide(self, text: str) -> bool:
        """Whether base64 in a text, or in JSON text in it, may hold a value to redact."""
        return MAY_BE_JSON.search(text) is not None or any(
            self._is_suspicious(run.text) for run in base64_runs(text, self._is_known_in)
        )

    def identity(self, field: str, name: str) -> str:
        """The name of a `user`, a `session`, a `task` or a trace (`id`), as it is stored."""
        empty: dict[str, Any] = {"id": "", "messages": [], "tools": [], "environment": None, "session": None, "user": None}
        rest: dict[str, Any] = {"created": None, "model": None, "outcome": None, "source_file": "", "source_line": 1}
        return str(getattr(self.trace(Trace(**{**empty, **rest, field: name}))[0], field))

    def _is_suspicious(self, text: str) -> bool:
        """Whether a text may hold a value to redact. Fast; False is certain."""
        return self._detection.signs.are_in(text) or self._is_known_in(text)

    def _is_known_in(self, text: str) -> bool:
        return len(self._known) > 0 and self._known.may_be_in(as_bytes(text))

    def look_for_learned(self) -> bool:
        """From now on, search every trace for the secrets learned so far; returns whether there are new ones."""
        before, self._known = len(self._known), self._known.with_more(self.learned)
        return len(self._known) > before

    def record_bytes(self, raw: bytes) -> tuple[bytes, Counter[str]]:
        """The bytes of an unreadable record without secrets and personal data; bytes that are not UTF-8 stay unchanged.

        Raises:
            SecretError: a value is still found after redaction.
        """
        encoding, errors = encoding_of(raw)
        text = raw.decode(encoding, errors)
        if not self._is_suspicious(without_blobs(text)):
            return raw, Counter()
        written = {("", 0): text}
        counts = self._scrub(written, Search(self._pseudonyms(text)), set(written))
        redacted = written["", 0]
        return (redacted.encode(encoding, errors) if redacted != text else raw), counts

    def quarantined(self, item: Quarantined) -> tuple[Quarantined, Counter[str]]:
        """A record in quarantine without secrets and personal data; without its bytes, if it would still hold some.

        Of a long record an excerpt is left, in which digests stand for long base64.
        """
        item = replace(item, file=self.name(item.file))
        if item.withheld and not item.raw:
            return item, Counter()
        encoding, errors = encoding_of(item.raw)
        if len(item.raw) > LONGEST and not item.size:
            start = without_blobs(item.raw.decode(encoding, errors), digest_of_blob)[: LONGEST + LONGEST_VALUE]
            excerpt = start.encode(encoding, errors)
            item = replace(item, withheld=sha256(item.raw).hexdigest(), size=len(item.raw), raw=excerpt)
        try:
            raw, found = self.record_bytes(item.raw)
            raw = raw.decode(encoding, errors)[:LONGEST].encode(encoding, errors) if item.size else raw
            detail, _ = self.record_bytes(item.detail.encode("utf-8", "backslashreplace"))
        except SecretError as error:
            return withheld(item, error), Counter()
        return replace(item, raw=raw, detail=detail.decode("utf-8", "backslashreplace")), found

    @property
    def known(self) -> Mapping[str, str]:
        """The secrets that every trace is searched for: kinds by value."""
        return self._known.kinds

    def may_hold_learned(self, data: bytes) -> bool:
        """Whether bytes may hold a secret that `look_for_learned` searches for; letters may be escaped."""
        return self._known.may_be_in(data) or ESCAPE.search(data) is not None

    def name(self, name: str) -> str:
        """A file's name; if it holds a secret or personal data, a consistent pseudonym for it."""
        return self.hidden_name(name) if self._find(name, Search(Pseudonyms()))[0] else name

    def hidden_name(self, name: str) -> str:
        """The pseudonym for the name of a file."""
        return identity_pseudonym("file", name, self._key)

    def _pseudonyms(self, text: str) -> Pseudonyms:
        return Pseudonyms(self._dataset_key, text)

    def _scrub(self, written: dict[tuple[str, int], str], search: Search, suspicious: set[tuple[str, int]]) -> Counter[str]:
        """Replace values in the parts of a record, until nothing more is found; returns how many places, by kind.

        A value found in one part is then looked for in all, and a part that was changed is searched again.
        """
        counts: Counter[str] = Counter()
        open_parts, found = suspicious, len(search.pseudonyms) > 0
        for _ in range(ROUNDS):
            search.refresh()
            changed = set()
            for place, text in written.items():
                if place in open_parts or (found and search.known.may_be_in(text)):
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
        if depth and not search.known.may_be_in(value) and not self._is_suspicious(without_blobs(value)):
            return edits
        for leaf in leaves(value, at.name):
            if len(leaf.value) >= SHORTEST_VALUE and (found := self._leaf_edits(leaf, search, structure, depth)):
                edits += in_text(leaf, found, value)
        return edits

    def _leaf_edits(self, leaf: Leaf, search: Search, structure: str, depth: int) -> list[Edit]:
        if leaf.sort == "key" and PLAIN_KEY.fullmatch(leaf.value):
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
        edits: list[Edit] = []
        text = without_blobs(text)
        items, has_base64 = self._find(text, search, before)
        for item in items:
            new = search.pseudonyms.of(item.kind, item.identity, item.value)
            if "%" in text[item.start : item.end] and "%" not in new:
                new = new.replace("@", "%40").replace("+", "%2B").replace(" ", "%20")
            edits.append(Edit(item.start, item.end, new, (item.kind,)))
        if has_base64 and depth <= DEEPEST:
            edits += self._base64_edits(text, edits, search, depth)
        return sorted(edits)

    def _known_in_base64(self, run: str, search: Search) -> bool:
        return search.known.may_be_in(run) or self._is_known_in(run)

    def _base64_edits(self, text: str, others: list[Edit], search: Search, depth: int) -> list[Edit]:
        """The replacements of base64 that holds secrets, known values or an e-mail address."""
        edits: list[Edit] = []
        for run in base64_runs(text, lambda run: self._known_in_base64(run, search)):
            if any(edit.start < run.end and run.start < edit.end for edit in (*others, *edits)):
                continue
            if not self._is_suspicious(run.text) and not search.known.may_be_in(run.text):
                continue
            inner = search.within(SECRETS_ONLY if run.is_text else CERTAIN)
            found = self._value_edits(run.text, Context(), inner, depth=depth + 1)
            if found:
                kinds = tuple(kind for edit in found for kind in edit.kinds)
                edits.append(Edit(run.start, run.end, run.again(applied(run.text, found)), kinds))
        return edits

    def _find(self, written: str, search: Search, before: str = "") -> tuple[list[Found], bool]:
        """The values in a text, in order and without overlaps, and whether it may hold some in base64.

        Args:
            written: The text.
            search: What is known of its record.
            before: The context of its beginning.
        """
        known = search.known.may_be_in(written) or self._is_known_in(written)
        candidates, has_base64 = self._detected(written, before)
        if not candidates and not known:
            return [], has_base64
        chosen = [(doubt, item) for doubt, item in candidates if search.allows(doubt, item.kind)]
        for percent in ((False, True) if "%" in written else (False,)) if known else ():
            text = Unescaped(written, percent=percent)
            for values in (search.known, self._known):
                chosen += [(KNOWN_ELSEWHERE, item) for item in values.find(text) if not is_made(written, item)]
        return apart(chosen), has_base64 or known

    def _detected(self, written: str, before: str) -> tuple[list[tuple[int, Found]], bool]:
        """What detectors find in a text, with their doubts; it may overlap. And whether there may be text in base64."""
        whole = before + written + (QUOTE if before.endswith(QUOTE) else "")
        digest = _digest(as_bytes(whole))
        if digest in self._seen:
            return self._seen[digest]
        signs = self._detection.signs.detectors(whole)
        lead, last = len(before), len(before) + len(written)
        found = [
            (doubt, item._replace(start=item.start - lead, end=item.end - lead))
            for doubt, item in (self._detection.candidates(whole, signs) if signs else ())
            if lead <= item.start and item.end <= last and not is_made(whole, item)
        ]
        if digest:
            _make_room(self._seen)
            self._seen[digest] = found, self._detection.base64 in signs
        return found, self._detection.base64 in signs


def _digest(raw: bytes) -> bytes:
    """A digest to remember what was searched; empty for what is searched as fast."""
    return blake2b(raw, digest_size=16).digest() if len(raw) >= REMEMBERED else b""


def _make_room(memory: set[bytes] | dict[bytes, Any]) -> None:
    if len(memory) >= MOST_REMEMBERED:
        memory.clear()
