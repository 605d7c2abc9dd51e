"""Builds a `Trace` from what a reader found, and reads the fields that most formats share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tracewheel.core.endings import with_endings
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import may_import
from tracewheel.core.kinds import own_classes
from tracewheel.core.types import Trace, content_hash
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.fields import NAMES, take_fields, utc_time
from tracewheel.traces.readers.messages import as_json_text, broken_calls, check_messages, without_strays
from tracewheel.traces.readers.reader import Place, RawTrace
from tracewheel.traces.readers.tools import infer_tools

STRAY_RESULTS = "results_without_a_call"
TIMES = ("timestamp", "created_at", "createdAt", "created", "time")


def _check_environment(environment: Any) -> None:
    """What a log says of its environment is data: its verifier may be built in, or one that the user named.

    Raises:
        InvalidRecord: it has no kind, or names a class that nobody else named.
    """
    if environment is None:
        return
    if not isinstance(environment, dict) or not isinstance(environment.get("kind"), str):
        raise InvalidRecord("environment unreadable", "'environment' is to be an object with a 'kind'")
    verifier = environment.get("verifier")
    try:
        own = [name for name in own_classes(verifier) if not may_import(name)] if isinstance(verifier, str) else []
    except (ConfigError, RecursionError) as error:
        raise InvalidRecord("verifier unreadable", f"'environment.verifier': {error}") from error
    if own:
        raise InvalidRecord(
            "verifier not named", f"'environment.verifier' names {own[0]!r:.80}, which the profile does not name"
        )


def build_trace(format: str, place: Place, found: RawTrace) -> Trace:
    """Check the messages, infer tools where calls have no schemas, and make an id where the log gives none.

    `info` counts the calls whose arguments became JSON text here (`arguments_normalised`), those whose arguments are no JSON
    object (`broken_calls`), and results of no call, which are left out (`results_without_a_call`). A turn that was cut, or
    failed, has the mark of `endings`.

    Raises:
        InvalidRecord: the messages do not hold together, or the environment is none.
    """
    _check_environment(found.environment)
    with_text, normalised = as_json_text(found.messages)
    tied, strays = without_strays(with_text)
    messages = check_messages(with_endings(tied, found.info), has_start=found.environment is not None)
    notes = {"arguments_normalised": normalised, "broken_calls": broken_calls(messages), STRAY_RESULTS: strays}
    found = _completed(found, messages)
    inferred = [] if found.tools else infer_tools(messages)
    return Trace(
        id=found.id or made_id(messages, found.environment, found.session, found.user),
        messages=messages,
        tools=found.tools or inferred,
        environment=found.environment,
        session=found.session,
        user=found.user,
        created=found.created,
        model=found.model,
        outcome=found.outcome,
        source_file=place.file,
        source_line=place.line,
        format=format,
        task=found.task,
        tools_inferred=bool(inferred),
        tokens=found.tokens,
        info={key: value for key, value in found.info.items() if value not in (None, {}, [], "")}
        | {key: count for key, count in notes.items() if count},
    )


def _completed(found: RawTrace, messages: list[dict[str, Any]]) -> RawTrace:
    """With the fields that the reader left among `info`, and the time in UTC; a time that cannot be read stays in `info`."""
    missing = {name for name in NAMES if getattr(found, name) is None}
    fields, info = take_fields(found.info, missing) if found.info else ({}, found.info)
    created = fields.pop("created", None)
    if found.created is not None:
        created = utc_time(found.created)
        if created is None:
            info = {**info, "created": found.created}
    elif created is None:
        created = next((time for name in TIMES if (time := utc_time(messages[0].get(name))) is not None), None)
    return replace(found, **fields, created=created, info=info)


def made_id(messages: list[dict[str, Any]], environment: Any, session: str | None, user: str | None) -> str:
    """An id derived from the content, for a trace that has none in the log."""
    identity = {"messages": messages, "environment": environment, "session": session, "user": user}
    return f"trace-{content_hash(identity)}"


def checked_tokens(value: Any) -> dict[str, Any] | None:
    """Logged tokens: `token_ids`, and `action_mask` and `logprobs` of the same length (None if not logged).

    Raises:
        InvalidRecord: their lengths or types do not match.
    """
    if value is None:
        return None
    names = ("token_ids", "logprobs", "action_mask")
    parts = {name: value.get(name) for name in names} if isinstance(value, dict) else {}
    lengths = {len(part) for part in parts.values() if isinstance(part, list)}
    if not isinstance(parts.get("token_ids"), list) or len(lengths) != 1:
        raise InvalidRecord("tokens unreadable", f"{', '.join(names)} are to be lists of the same length")
    for name in names:
        part = parts[name] if parts[name] is not None else []
        numbers = int | float if name == "logprobs" else int
        if not isinstance(part, list) or not all(isinstance(number, numbers) for number in part):
            raise InvalidRecord("tokens unreadable", f"'{name}' is to be a list of numbers")
    return parts
