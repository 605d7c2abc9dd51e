"""What a command prints on standard output when it ends: its result or its error, as JSON or for people."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

from flows.console.look import Card, rows_of, show_card, written


def print_result(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Print a result as JSON, or as people see it: by its "show", or by the command's card."""
    with _reader_may_be_gone():
        if options.json:
            print(json.dumps({name: value for name, value in result.items() if name != "show"}, default=str))
        elif isinstance(text := result.get("show"), str):
            sys.stdout.write(text)
        elif callable(text):
            text()
        else:
            show_card(card_of(options, result))


def card_of(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """The card of a command's result: its own, the command's, or its figures."""
    if card := result.get("show"):
        return cast(Card, card)
    command = options.command
    if command.card:
        return cast(Card, command.card(options, result))
    if "out" in result:
        return written(command.name, result)
    return Card(command.name, rows_of(result))


def print_error(message: str, kind: str, exit_code: int) -> None:
    """Print an error as the JSON object that stands in place of a result."""
    with _reader_may_be_gone():
        print(json.dumps({"error": message, "kind": kind, "exit_code": exit_code}))


@contextlib.contextmanager
def _reader_may_be_gone() -> Iterator[None]:
    """As in `tracewheel ... --json | head -1`: the rest is dropped, and the exit code still says how the command ended."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as gone:
        if isinstance(gone, SystemExit) and not isinstance(gone.__context__, BrokenPipeError):
            raise  # rich's console makes the former the latter
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is still buffered goes there at the interpreter's end
        os.close(nowhere)
