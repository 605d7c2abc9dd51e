"""`tracewheel ingest --explain FILE`: one record as it was read, beside the original; nothing is written."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import InputError

if TYPE_CHECKING:
    from tracewheel.config import IngestConfig
    from tracewheel.traces.explain import Explained

LONGEST, LINES, WIDE = 240, 80, 100
FIELDS = ("id", "task", "session", "user", "created", "model", "outcome", "environment", "tokens")
UNREAD_SHOWN, PROSE = 20, 80
ASKED_ELSEWHERE = "where it stands outside the messages, name it as `prompt` of a mapping (docs/traces.md)"


def explain(options: argparse.Namespace) -> dict[str, Any]:
    """Explain the record that the command line names.

    Raises:
        InputError: there is no such file or record, or an option does not fit.
    """
    from tracewheel.traces.explain import explain_record

    if options.out or options.full or options.dry_run:
        raise InputError("--explain writes nothing: leave out --out, --full and --dry-run")
    path, line = Path(options.explain), None
    place = re.fullmatch(r"(.+):(\d+)", options.explain)
    if place and not path.exists():
        path, line = Path(place[1]), int(place[2])
    if line is not None and options.record is not None:
        raise InputError(f"--explain {options.explain}: give a line or --record, not both")
    if options.record is not None and options.record < 1:
        raise InputError(f"--record {options.record}: records count from 1")
    found = explain_record(_config(options), path, record=options.record, line=line)
    return {**found.to_record(), "show": lambda: show_explained(found, options)}


def _config(options: argparse.Namespace) -> IngestConfig:
    """The settings of ingest: a profile's, if one is given, or those of the command line."""
    profiles = [path for path in options.paths if path.endswith((".yaml", ".yml"))]
    if len(options.paths) > len(profiles) or len(profiles) > 1:
        raise InputError("--explain FILE explains a record of that file; give no other PATH than a profile")
    if profiles:
        from flows.setup import resolve_config

        return resolve_config(profiles[0], options.overrides, options.run_dir).ingest
    from tracewheel.config.loading import load_ingest_config

    return load_ingest_config((), options.format, options.overrides, options.readers)


def show_explained(found: Explained, options: argparse.Namespace) -> None:
    """Print the record as it was read, beside the original where the terminal is wide enough."""
    from rich.table import Table
    from rich.text import Text

    from flows.console.encoding import clean
    from flows.console.look import Block, Card, counted, one_line, result_console, say, show_card
    from tracewheel.traces.counts import is_asked

    console = result_console()
    original = Text(clean("\n".join(_pretty(found.original))), overflow="fold")
    place = f"Record {found.number} of {found.file}, line {found.line}"
    if found.trace is None:
        show_card(Card(f"{place}: in quarantine", [("reason", found.reason), ("detail", one_line(found.detail))]))
        console.print(Text("The original", style="bold"))
        console.print(original)
        say(console, found.advice or found.detail, "warning")
        return
    trace = found.trace
    rows = [("format", trace.format)]
    for name in FIELDS:
        value = getattr(trace, name)
        if value not in (None, {}, ""):
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            source = f"   ← {', '.join(found.read[name][:3])}" if name in found.read else ""
            rows.append((name, f"{one_line(shown, 100)}{source}"))
    rows.append(("tools", f"{len(trace.tools)}{', inferred from the calls' if trace.tools_inferred else ''}"))
    if trace.info:
        rows.append(("kept in info", one_line(", ".join(trace.info), 200)))
    rows.append(("would be redacted", counted(found.redacted)))
    show_card(Card(f"{place}: read as {trace.format}", rows))
    conversation = Text(clean("\n".join(_conversation(trace.messages))), overflow="fold")
    if console.width >= WIDE:
        beside = Table(expand=True)
        beside.add_column("as it was read, redacted", ratio=1, overflow="fold")
        beside.add_column("the original", ratio=1, overflow="fold")
        beside.add_row(conversation, original)
        console.print(beside)
    else:
        for heading, text in (("As it was read, redacted", conversation), ("The original", original)):
            console.print(Text(heading, style="bold"))
            console.print(text)
    look_at, tone = "everything in the record is in the trace", "good"
    if found.unread:
        longest = sorted(found.unread.items(), key=lambda item: -len(item[1]))  # prose is worse lost than numbers
        lines = [f"{path}: {one_line(value, 80)}" for path, value in longest[:UNREAD_SHOWN]]
        more = len(found.unread) - UNREAD_SHOWN
        part = Block("In the record and not in the trace", [*lines, *([f"and {more} more"] if more > 0 else [])])
        show_card(Card("", parts=[part]))
        look_at = f"{len(found.unread)} fields are not in the trace; ingest.fields can map them (docs/traces.md)"
        tone = "warning" if len(longest[0][1]) >= PROSE else "good"
    if not is_asked(trace):
        rest = f"; {look_at}" if found.unread else ""
        look_at, tone = f"incomplete, without a user's message: {ASKED_ELSEWHERE}{rest}", "warning"
    say(console, look_at, tone, [_next(found.file, options)])


def _next(file: str, options: argparse.Namespace) -> str:
    """The command that reads the whole file as this record was read."""
    how = [part for reader in options.readers or () for part in ("--reader", reader)]
    how += [part for given in options.overrides or () for part in ("--set", given)]
    how += ["--format", options.format] if options.format else []
    return shlex.join(["tracewheel", "ingest", *(options.paths or [file]), *how, "--out", "data/ingested"])


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


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def _few(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LINES else [*lines[:LINES], f"… {len(lines) - LINES} more lines; --json shows all"]
