"""Langfuse, cloud or one's own: its observations (API v2) and scores (API v3); of servers before version 4, by the older API.

`langfuse:[https://HOST][?environment=NAME&since=2026-10-01&settle=30]`. The variables LANGFUSE_PUBLIC_KEY and
LANGFUSE_SECRET_KEY hold the keys, LANGFUSE_BASE_URL the address where none is given. A trace is fetched as a whole, once
nothing has happened in it for `settle` minutes; a score as soon as it is there.

The API: https://langfuse.com/docs/api-and-data-platform/features/observations-api
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tracewheel import ConfigError, InfrastructureError, list_field, nanoseconds, object_field, text_field
from tracewheel_sources.addresses import number_of, read_address
from tracewheel_sources.asking import Api, NoSuchPath

CLOUD = "https://cloud.langfuse.com"
KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
FIELDS = "core,basic,time,io,metadata,model,usage,trace_context"
OBSERVATIONS, SCORES = "/api/public/v2/observations", "/api/public/v3/scores"
OLD_TRACES, OLD_SCORES = "/api/public/traces", "/api/public/v2/scores"
WHOLE: dict[str, str | int] = {"expandMetadata": "attributes"}  # others are cut after 200 characters
OF_TRACE = {"sessionId": "sessionId", "userId": "userId", "traceName": "name", "tags": "tags", "release": "release"}
PAGE, SCORES_PAGE = 200, 100
SETTLE = 30.0  # minutes
AGAIN = timedelta(hours=2)  # how much later than it began an observation may arrive
LONGEST = timedelta(days=1)  # a trace that goes on for longer is fetched as it is
MOST_PAGES = 100_000
Row = dict[str, Any]


class LangfuseSource:
    """A project of Langfuse.

    Args:
        address: What follows `langfuse:`.

    Raises:
        ConfigError: the address is wrong, or a key is missing.
    """

    def __init__(self, address: str) -> None:
        place, self._options = read_address("langfuse", address, ("environment", "since", "settle"))
        base = place or os.environ.get("LANGFUSE_BASE_URL") or os.environ.get("LANGFUSE_HOST") or CLOUD
        if not base.startswith(("https://", "http://")):
            raise ConfigError(f"langfuse:{address}: give the address of the server, as in langfuse:{CLOUD}, or none")
        keys = [os.environ.get(name, "") for name in KEYS]
        if not all(keys):
            raise ConfigError(f"langfuse: set {' and '.join(KEYS)}, the keys of the project")
        self._settle = timedelta(minutes=number_of("langfuse", self._options, "settle", SETTLE))
        if "since" in self._options and nanoseconds(self._options["since"]) == 0:
            raise ConfigError(f"langfuse: option 'since' is a time, as in 2026-10-01, not {self._options['since']!r}")
        self._api = Api(base, (keys[0], keys[1]), " and ".join(KEYS))

    def fetch(self, cursor: Any, folder: Path) -> Iterator[Any]:
        """Write settled traces and new scores; one commit.

        Raises:
            ConfigError: the server refuses the keys, or has no API v2.
            InfrastructureError: it does not answer.
        """
        try:
            yield self._fetch(cursor or {}, folder, datetime.now(UTC))
        finally:
            self._api.close()

    def _fetch(self, cursor: dict[str, Any], folder: Path, now: datetime) -> dict[str, Any]:
        number, begin = int(cursor.get("number", 0)) + 1, _iso(now - AGAIN)
        traces = _Traces(set(cursor.get("written", ())))
        waiting = folder / ".waiting"
        with waiting.open("w", encoding="utf-8") as stream:
            for row in self._rows(OBSERVATIONS, "StartTime", PAGE, cursor.get("observations"), now, fields=FIELDS):
                if traces.take(row):
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        settled = traces.settled(now - self._settle, now - LONGEST)
        if settled:
            file = folder / f"observations-{number:06d}.jsonl"
            with waiting.open(encoding="utf-8") as stream, file.open("w", encoding="utf-8") as out:
                out.writelines(line for line in stream if json.loads(line)["traceId"] in settled)
        waiting.unlink()
        known, recent = cursor.get("known", {}), {}
        scores = folder / f"scores-{number:06d}.jsonl"
        with scores.open("w", encoding="utf-8") as out:
            for row in self._rows(SCORES, "Timestamp", SCORES_PAGE, cursor.get("scores"), now, fields="details,subject"):
                name, version = str(row.get("id")), text_field(row, "updatedAt", "timestamp")
                if str(row.get("timestamp")) >= begin:
                    recent[name] = version
                if name not in known or known[name] != version:
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")
        if not scores.stat().st_size:
            scores.unlink()
        oldest = traces.oldest_waiting(settled, now - AGAIN)
        return {
            "number": number,
            "observations": _iso(oldest),
            "written": sorted(traces.recent(oldest, settled)),
            "scores": begin,
            "known": recent,
        }

    def _rows(self, path: str, column: str, size: int, begin: str | None, end: datetime, *, fields: str) -> Iterator[Row]:
        """All rows from a time on; of a server that does not have the newer API yet, by the older one."""
        asked: dict[str, str | int] = {"limit": size, f"to{column}": _iso(end)}
        if begin or "since" in self._options:
            asked[f"from{column}"] = begin or _iso(datetime.fromtimestamp(nanoseconds(self._options["since"]) / 1e9, UTC))
        if "environment" in self._options:
            asked["environment"] = self._options["environment"]
        try:
            yield from self._by_cursor(path, {**asked, "fields": fields} | (WHOLE if path == OBSERVATIONS else {}))
        except NoSuchPath:
            if path == SCORES:
                yield from self._by_page(OLD_SCORES, asked)
                return
            renamed = {name.replace("StartTime", "Timestamp"): value for name, value in asked.items()} | {"limit": SCORES_PAGE}
            for about in self._by_page(OLD_TRACES, renamed):
                trace = self._api.get(f"{OLD_TRACES}/{quote(str(about.get('id')), safe='')}", {})
                told = {name: trace.get(old) for name, old in OF_TRACE.items()}
                yield from ({**told, **row} for row in list_field(trace, "observations") if isinstance(row, dict))

    def _by_cursor(self, path: str, asked: dict[str, str | int]) -> Iterator[Row]:
        for _ in range(MOST_PAGES):
            page, meta = self._page(path, asked)
            yield from page
            following = meta.get("cursor")
            if not following:
                return
            if following == asked.get("cursor"):
                break
            asked["cursor"] = str(following)
        raise InfrastructureError(f"langfuse: {path} goes from page to page without an end")

    def _by_page(self, path: str, asked: dict[str, str | int]) -> Iterator[Row]:
        for number in range(1, MOST_PAGES):
            page, meta = self._page(path, {**asked, "page": number})
            yield from page
            pages = meta.get("totalPages")
            if not page or not isinstance(pages, int) or number >= pages:
                return

    def _page(self, path: str, asked: dict[str, str | int]) -> tuple[list[Row], Row]:
        answer = self._api.get(path, asked)
        if not isinstance(answer.get("data"), list):
            raise InfrastructureError(f"langfuse: {path} answers without a list 'data'")
        return [row for row in answer["data"] if isinstance(row, dict)], object_field(answer, "meta")


class _Traces:
    """The traces that observations are of: when each began, and when something last happened in it.

    Args:
        written: Those that were fetched before.
    """

    def __init__(self, written: set[str]) -> None:
        self._written = written
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._begun: dict[str, int] = {}  # the latest beginning of an observation

    def take(self, row: Row) -> bool:
        """Note an observation; returns whether its trace is new."""
        trace_id, start = row.get("traceId"), nanoseconds(row.get("startTime"))
        if not isinstance(trace_id, str) or not trace_id:
            return False
        end = max(start, nanoseconds(row.get("endTime")))
        self._first[trace_id] = min(start, self._first.get(trace_id, start))
        self._begun[trace_id] = max(start, self._begun.get(trace_id, start))
        self._last[trace_id] = max(end, self._last.get(trace_id, end))
        return trace_id not in self._written

    def settled(self, before: datetime, begun: datetime) -> set[str]:
        """The new traces in which nothing has happened since a time, or that began long ago."""
        new = self._last.keys() - self._written
        old = {name for name in new if self._first[name] < _nanoseconds(begun)}
        return old | {name for name in new if self._last[name] < _nanoseconds(before)}

    def oldest_waiting(self, settled: set[str], latest: datetime) -> datetime:
        """When the oldest trace that waits began; `latest` if it began later, or none waits."""
        waiting = [start for name, start in self._first.items() if name not in settled and name not in self._written]
        return datetime.fromtimestamp(min([*waiting, _nanoseconds(latest)]) / 1e9, UTC)

    def recent(self, since: datetime, settled: set[str]) -> set[str]:
        """The traces that were fetched and will be seen again by who asks from a time on."""
        limit = _nanoseconds(since) - 10**9
        return {name for name in (settled | self._written) & self._begun.keys() if self._begun[name] >= limit}


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
