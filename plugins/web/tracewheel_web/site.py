"""The server of a site: started here or already there, prepared and asked by its two hooks."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import weakref
from typing import Any

from tracewheel import BridgeFailure, parse_json

HEADER, VARIABLE = "X-Tracewheel-Hook", "TRACEWHEEL_HOOK"
START_SECONDS, POLL_SECONDS, SAID = 30.0, 0.05, 400
MOST_BYTES = 8_000_000
# Ends the program and all that it started as soon as the pipe closes, whatever ended us.
KEEPER = '( "$@"; kill -9 0 ) & read -r _; kill -9 0'


class Site:
    """A site that runs. Its hooks are asked with a secret, which no page can know.

    Args:
        command: What starts it, with `{port}` for its port; empty for a site that runs.
        url: Where a site that runs is.
        seconds: How long a hook may take.

    Raises:
        BridgeFailure: it does not start.
    """

    def __init__(self, command: tuple[str, ...], url: str, seconds: float) -> None:
        self._seconds = seconds
        self.origin = url
        self._secret = os.environ.get(VARIABLE, "")
        self._end = lambda: None
        if command:
            self._start(command)

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self._process is None or self._process.poll() is None

    _process: subprocess.Popen[str] | None = None

    def ask(self, path: str, given: Any = None) -> Any:
        """What a hook answers: `POST` where something is given, else `GET`.

        Raises:
            BridgeFailure: it does not answer, or not with JSON.
        """
        body = None if given is None else json.dumps(given).encode()
        headers = {HEADER: self._secret, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.origin}{path}", body, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=self._seconds) as answer:
                content = answer.read(MOST_BYTES + 1)
                if len(content) > MOST_BYTES:
                    raise ValueError(f"more than {MOST_BYTES:,} bytes")
                return parse_json(content.decode()) if content else None
        except (OSError, ValueError) as error:
            raise BridgeFailure(f"site: {path}: {error}{self._said()}") from error

    def close(self) -> None:
        """End it, if it was started here."""
        self._end()

    def _start(self, command: tuple[str, ...]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.origin, self._secret = f"http://127.0.0.1:{port}", secrets.token_hex(16)
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (it lives as long as this)
        parts = [part.replace("{port}", str(port)) for part in command]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", KEEPER, "sh", *parts],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=os.environ | {VARIABLE: self._secret},
            text=True,
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _kill, self._process)
        until = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
                return
            if not self.lives or time.monotonic() > until:
                said = self._said()
                self.close()
                raise BridgeFailure(f"site: {' '.join(parts)} does not listen at 127.0.0.1:{port}{said}")
            time.sleep(POLL_SECONDS)

    def _said(self) -> str:
        if self._process is None:
            return ""
        self._errors.seek(0)
        text = self._errors.read()[-SAID:].strip()
        return f"; its error output ends: {text}" if text else ""


class Sites:
    """The sites of a process, each for one episode at a time: of a command as many as are wanted, of a URL one."""

    def __init__(self, command: tuple[str, ...], url: str, seconds: float) -> None:
        self._given = (command, url, seconds)
        self._lock = threading.Lock()
        self._idle: list[Site] = [] if command else [Site(*self._given)]

    def take(self) -> Site:
        """A site that is free, or a new one.

        Raises:
            BridgeFailure: it does not start, or the one at the URL has an episode.
        """
        with self._lock:
            while self._idle:
                site = self._idle.pop()
                if site.lives:
                    return site
                site.close()
        if self._given[1]:
            raise BridgeFailure(f"site: {self._given[1]} has an episode already, and keeps one state")
        return Site(*self._given)

    def give_back(self, site: Site, *, broken: bool = False) -> None:
        """Take it back after an episode; one that we started and that failed is ended."""
        with self._lock:
            if broken and self._given[0]:
                site.close()
            else:
                self._idle.append(site)

    def close(self) -> None:
        """End those that are free."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
