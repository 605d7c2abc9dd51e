"""The fields of records: what their names mean, their values as text, numbers, lists and objects, and times in UTC."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from tracewheel.traces.quarantine import InvalidRecord

USUAL = re.compile(r"[12]\d{3}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z")
NUMBER = re.compile(r"\d{9,20}(?:\.\d+)?")
FRACTION = re.compile(r"(\.\d{6})\d+")
UNITS = ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3), (10**20, 1))  # numbers below the first are this many nanoseconds
OLDEST, LATEST = 1990, 2100
ZONES = re.compile(r"\s*(?:UTC|GMT|Z)$", re.IGNORECASE)


def utc_time(value: Any) -> str | None:
    """A time as ISO 8601 text in UTC; None if it cannot be read.

    Read are ISO 8601 (a time without a zone counts as UTC), dates of mails and HTTP, and numbers since 1970 in seconds,
    milliseconds, microseconds or nanoseconds, which their size tells apart. A text that is UTC already stays as it is.
    Dates such as 04/08/2025 are not read: the log does not say which number is the month.
    """
    if isinstance(value, str):
        if USUAL.fullmatch(value) and _iso(value):
            return value
        value = value.strip()
        moment = _since_1970(value) if NUMBER.fullmatch(value) else _iso(value) or _mail(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        moment = _since_1970(value)
    elif isinstance(value, dict):
        return _of_database(value)
    else:
        moment = None
    if moment is None or not OLDEST <= moment.year < LATEST:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _since_1970(value: Any) -> datetime | None:
    number = float(value)
    for limit, nanoseconds in UNITS:
        if 10**8 <= number < limit:
            whole = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None
            micros = whole * nanoseconds // 1000 if whole is not None else round(number * nanoseconds / 1000)
            return datetime.fromtimestamp(micros // 10**6, UTC).replace(microsecond=micros % 10**6)
    return None


def _iso(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(FRACTION.sub(r"\1", ZONES.sub("+00:00", text).replace("/", "-")))
    except ValueError:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (OverflowError, ValueError):
        return None


def _mail(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _of_database(value: dict[str, Any]) -> str | None:
    """MongoDB's `$date`, and Firestore's and Protobuf's seconds and nanoseconds."""
    if len(value) == 1 and "$date" in value:
        inner = value["$date"]
        return utc_time(inner.get("$numberLong") if isinstance(inner, dict) else inner)
    seconds = next((value[key] for key in ("seconds", "_seconds") if isinstance(value.get(key), int)), None)
    if seconds is None or len(value) > 2:
        return None
    nanos = next((value[key] for key in ("nanos", "nanoseconds", "_nanoseconds") if isinstance(value.get(key), int)), 0)
    return utc_time(seconds * 10**9 + nanos)


# The first of these that has a value counts. Case, `_` and `-` make no difference: `userId` is `user_id`.
NAMES = {
    "outcome": (
        "reward", "outcome", "success", "resolved", "is_resolved", "solved", "passed", "is_correct", "correct", "correctness",
        "task_success", "is_success", "score",
    ),
    "user": ("user", "user_id", "end_user", "end_user_id", "customer_id", "account_id"),
    "session": ("session", "session_id", "conversation_id", "thread_id", "chat_id", "conversation"),
    "created": (
        "created", "created_at", "create_time", "creation_time", "timestamp", "start_time", "started_at", "time", "datetime",
        "date",
    ),
    "model": ("model", "model_name", "model_id", "model_name_or_path"),
    "task": ("task", "task_id", "instance_id", "problem_id", "scenario_id"),
    "id": ("id", "trace_id", "traj_id", "trajectory_id", "run_id", "uuid"),
}  # fmt: skip
HOLDERS = ("metadata", "meta", "info", "extra", "result", "attributes")
TEXTS = ("id", "session", "user", "model", "task")
SCALED = {"score"}  # names whose scale only the log's owner knows: an outcome only from 0 to 1
# Not "completed" or "error": a run that ended is not a success, and one that broke is not a failure.
OUTCOME_WORDS = {
    **dict.fromkeys(("yes", "true", "pass", "passed", "correct", "success"), 1.0),
    **dict.fromkeys(("no", "false", "fail", "failed", "incorrect", "failure"), 0.0),
    **dict.fromkeys(("resolved", "solved", "succeeded", "successful"), 1.0),
    **dict.fromkeys(("unresolved", "unsolved"), 0.0),
}


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


FIELD_OF = {_plain(name): (field, rank) for field, names in NAMES.items() for rank, name in enumerate(names)}
HOLDING = {_plain(name) for name in HOLDERS}


def _is_on_scale(name: str, read: Any) -> bool:
    return name not in SCALED or 0 <= read <= 1


def field_value(field: str, value: Any) -> Any:
    """A logged value as a trace's field; None if it is none, or a trace has no such field.

    Texts may be numbers. An outcome is a finite number, a boolean or a word such as pass, fail or resolved. A time is one
    that `utc_time` reads.
    """
    if field == "created":
        return utc_time(value)
    if field == "outcome":
        return outcome_value(value)
    if isinstance(value, str) and field in NAMES:
        return value or None
    return str(value) if field in NAMES and isinstance(value, int | float) and not isinstance(value, bool) else None


def outcome_value(value: Any) -> float | None:
    """A logged outcome as a number; None if it is none."""
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    if text in OUTCOME_WORDS:
        return OUTCOME_WORDS[text]
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def take_fields(info: Mapping[str, Any], missing: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Find fields by their names among what a reader kept: at the top, or in an object such as `metadata`.

    Args:
        info: What the reader did not read itself.
        missing: The fields to find.

    Returns:
        The fields found, and `info` without them.
    """
    found: dict[str, tuple[int, int, tuple[str, ...], Any]] = {}

    def look(holder: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for name, value in holder.items():
            plain = _plain(name)
            field, rank = FIELD_OF.get(plain, ("", 0))
            if field in missing and (read := field_value(field, value)) is not None and _is_on_scale(plain, read):
                entry = (len(path), rank, (*path, name), read)
                if field not in found or entry[:2] < found[field][:2]:
                    found[field] = entry
            elif not path and plain in HOLDING and isinstance(value, dict):
                look(value, (name,))

    look(info, ())
    if not found:
        return {}, dict(info)
    rest = dict(info)
    for _, _, path, _ in found.values():
        if len(path) == 1:
            rest.pop(path[0], None)
        elif isinstance(rest.get(path[0]), dict):
            rest[path[0]] = {name: value for name, value in rest[path[0]].items() if name != path[1]}
    return {field: entry[3] for field, entry in found.items()}, rest


def message_list(record: dict[str, Any], key: str = "messages") -> list[Any]:
    """The messages of a record.

    Raises:
        InvalidRecord: there are none.
    """
    messages = record.get(key)
    if not isinstance(messages, list) or not messages:
        raise InvalidRecord("no messages", f"'{key}' is to be a list with at least one message")
    return messages


def text_field(record: dict[str, Any], *keys: str) -> str | None:
    """The first of these fields that is present, as text; ids and times may be numbers.

    Raises:
        InvalidRecord: it is neither text nor a number.
    """
    for key in keys:
        value = record.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if value is not None:
            raise InvalidRecord("field unreadable", f"'{key}' is to be text")
    return None


def reward_field(record: dict[str, Any], *keys: str) -> float | None:
    """The first of these fields that is present, as a reward. None means unscored, not 0.

    Raises:
        InvalidRecord: it is not a number.
    """
    for key in keys:
        value = record.get(key)
        if value is None:
            continue
        if not isinstance(value, int | float):
            raise InvalidRecord("reward is not a number", f"'{key}' is {value!r:.40}")
        return float(value)
    return None


def object_field(record: dict[str, Any], key: str) -> dict[str, Any]:
    """A field's object; an empty one when the field is missing or not an object."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def list_field(record: dict[str, Any], key: str) -> list[Any]:
    """A field's list; an empty one when the field is missing or not a list."""
    value = record.get(key)
    return value if isinstance(value, list) else []


def nanoseconds(value: Any) -> int:
    """A logged time in nanoseconds since 1970. The log has a number, its text, [seconds, nanoseconds], or ISO 8601."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return int(value[0]) * 1_000_000_000 + int(value[1])
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1_000_000) * 1000
        except (ValueError, OverflowError):
            return 0
    if isinstance(value, str | int | float) and not isinstance(value, bool) and value:
        number = float(value)
        for largest, factor in ((1e11, 1e9), (1e14, 1e6), (1e17, 1e3)):
            if abs(number) < largest:
                return int(number * factor)
        return int(value) if abs(number) < 2**63 else 0
    return 0
