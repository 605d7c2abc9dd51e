"""`tracewheel data explain`: one record as it was read, beside the original; nothing is written."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Block, Card, Command, Grid, InputError

if TYPE_CHECKING:
    from tracewheel import IngestConfig

LONGEST, LINES, SHORT = 240, 80, 100
UNREAD_SHOWN, PROSE = 20, 80


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a log file, or FILE:LINE")
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="a profile that says how logs are read")
    parser.add_argument("--record", type=int, metavar="N", help="which record of the file (default: the first)")
    parser.add_argument("--format", metavar="FORMAT", help="as of ingest")
    parser.add_argument("--reader", dest="readers", action="append", default=[], metavar="READER", help="as of ingest")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override one setting")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Explain the record that the command line names.

    Raises:
        InputError: there is no such file or record, or an option does not fit.
    """
    from tracewheel_logs.explain import explain_record

    path, line = Path(options.file), None
    place = re.fullmatch(r"(.+):(\d+)", options.file)
    if place and not path.exists():
        path, line = Path(place[1]), int(place[2])
    if line is not None and options.record is not None:
        raise InputError(f"{options.file}: give a line or --record, not both")
    if options.record is not None and options.record < 1:
        raise InputError(f"--record {options.record}: records count from 1")
    return explain_record(_config(options), path, record=options.record, line=line)


def _config(options: argparse.Namespace) -> IngestConfig:
    """The settings of ingest: a profile's, or those of the command line."""
    if options.profile and (options.format or options.readers):
        raise InputError(f"{options.profile}: a profile says itself how logs are read; give no --format and no --reader")
    if options.profile:
        from tracewheel import resolve_config

        return resolve_config(options.profile, options.overrides, None).ingest
    from tracewheel import load_ingest_config

    return load_ingest_config((), options.format, options.overrides, options.readers)


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """The record as it was read, beside the original."""
    from tracewheel_logs.explain import FIELDS

    original = _pretty(result["original"])
    place = f"Record {result['number']} of {result['file']}, line {result['line']}"
    trace = result["trace"]
    if trace is None:
        rows = [("reason", result["reason"]), ("detail", _one_line(result["detail"]))]
        says = result["advice"] or result["detail"]
        return Card(f"{place}: in quarantine", rows, [Block("The original", original)], says, "warning")
    rows = [("format", trace["format"])]
    for name in FIELDS:
        if (value := trace[name]) not in (None, {}, ""):
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            source = f"   ← {', '.join(result['read'][name][:3])}" if name in result["read"] else ""
            rows.append((name, f"{_one_line(shown)}{source}"))
    rows.append(("tools", f"{len(trace['tools'])}{', inferred from the calls' if trace['tools_inferred'] else ''}"))
    if trace["info"]:
        rows.append(("kept in info", ", ".join(trace["info"])))
    rows.append(("would be redacted", ", ".join(f"{kind} {count}" for kind, count in result["redacted"].items()) or "none"))
    beside = ["\n".join(_conversation(trace["messages"])), "\n".join(original)]
    parts: list[Grid | Block] = [Grid(("as it was read, redacted", "the original"), [beside], figures=False)]
    look_at, tone = "everything in the record is in the trace", "good"
    if unread := sorted(result["unread"].items(), key=lambda item: -len(item[1])):  # prose is worse lost than numbers
        lines = [f"{path}: {_one_line(value)}" for path, value in unread[:UNREAD_SHOWN]]
        more = len(unread) - UNREAD_SHOWN
        parts.append(Block("In the record and not in the trace", [*lines, *([f"and {more} more"] if more > 0 else [])]))
        look_at = f"{len(unread)} fields are not in the trace; ingest.fields can map them (docs/traces.md)"
        tone = "warning" if len(unread[0][1]) >= PROSE else "good"
    if not result["asked"]:
        elsewhere = "where it stands outside the messages, name it as `prompt` of a mapping (docs/traces.md)"
        rest = f"; {look_at}" if unread else ""
        look_at, tone = f"incomplete, without a user's message: {elsewhere}{rest}", "warning"
    return Card(f"{place}: read as {trace['format']}", rows, parts, look_at, tone, [_next(result["file"], options)])


def _next(file: str, options: argparse.Namespace) -> str:
    """The command that reads the whole file as this record was read."""
    how = [part for reader in options.readers for part in ("--reader", reader)]
    how += [part for given in options.overrides for part in ("--set", given)]
    how += ["--format", options.format] if options.format else []
    return shlex.join(["tracewheel", "ingest", options.profile or file, *how, "--out", "data/ingested"])


def _conversation(messages: list[dict[str, Any]]) -> list[str]:
    """Each message, its calls and replies, in lines."""
    lines = []
    for number, message in enumerate(messages, start=1):
        content = message.get("content")
        text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
        reply = f" to {message['tool_call_id']}" if message.get("tool_call_id") else ""
        lines.append(f"{number} {message['role']}{reply}: {_cut(text)}".rstrip())
        for call in message.get("tool_calls") or []:
            function = call["function"]
            lines.append(f"    → {function['name']}({_cut(str(function['arguments']))})   {call['id']}")
        rest = [name for name in message if name not in ("role", "content", "tool_calls", "tool_call_id")]
        lines += [f"    {name}: {_cut(json.dumps(message[name], ensure_ascii=False))}" for name in rest if message[name]]
    return _few(lines)


def _pretty(original: list[Any]) -> list[str]:
    """The record as indented JSON, long texts cut."""
    lines: list[str] = []
    for value in original:
        text = value if isinstance(value, str) else json.dumps(_shortened(value), indent=1, ensure_ascii=False)
        lines += text.splitlines()
        if len(lines) > LINES:
            break
    return _few(lines)


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    return value


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def _few(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LINES else [*lines[:LINES], f"… {len(lines) - LINES} more lines; --json shows all"]


COMMAND = Command(
    "data explain", "one record of a log as it is read, beside the original; writes nothing", add_options, run, card
)
