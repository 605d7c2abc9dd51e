"""`tracewheel collect`: receives what instrumented agents send by OpenTelemetry, as a log that ingest reads."""

from __future__ import annotations

import secrets
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from tracewheel import Command, InputError

PORT, SHORTEST_KEY = 4318, 16
FOLDER = Path("serving") / "logs"  # in the work folder, with the conversations of `tracewheel serve`


def options(parser: ArgumentParser) -> None:
    parser.add_argument("config", metavar="PROFILE", help="its work folder and ingest.redaction count")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="A.B=VALUE", help="override a setting")
    parser.add_argument("--run-dir", metavar="DIR", help="instead of the profile's work_dir")
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="where to listen (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=PORT, help=f"default {PORT}; 0 takes a free one")
    parser.add_argument("--key", help="what agents must show, at least 16 characters (default: one is made and printed)")
    parser.add_argument("--log", metavar="DIR", help=f"where to log (default: {FOLDER} in the work folder)")


def run(options: Namespace) -> dict[str, Any]:
    """Receive until a signal comes; what was answered is on the disk.

    Raises:
        ConfigError: the profile is invalid.
        InputError: the key is too short, or the port is taken.
    """
    if options.key is not None and (len(options.key) < SHORTEST_KEY or not options.key.isascii()):
        raise InputError(f"--key: at least {SHORTEST_KEY} ASCII characters; without the option one is made")
    from tracewheel import AppServer, ConversationLog, Redactor, resolve_config
    from tracewheel_sources.receiver import Receiver

    config = resolve_config(options.config, options.overrides, options.run_dir)
    key = options.key or f"tw-{secrets.token_urlsafe(24)}"
    folder = Path(options.log or Path(config.work_dir) / FOLDER)
    log = ConversationLog(folder, "otlp")
    receiver = Receiver(log, Redactor(config.ingest.redaction), key)
    try:
        with AppServer(receiver.app(), options.host, options.port) as server:
            _say(
                f"OTEL_EXPORTER_OTLP_ENDPOINT={server.url()}\nOTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20{key}\n"
                f"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\nLogs in {folder}"
            )
            while True:
                time.sleep(0.2)
    finally:
        log.close()
        _say(f"{receiver.kept} spans and records logged in {folder}; {receiver.dropped} that tell of no agent were dropped")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


COMMAND = Command("collect", "receive agents' spans and log records by OpenTelemetry, as a log", options, run)
