"""Tells people how unattended runs end: a POST of JSON to each webhook of `schedule.notify` that asks for it.

What is to be told is written to `untold.json` of the work folder first and leaves it once it is delivered; what could not be
delivered waits for the next end or start. An address is a secret: the file has its digest, and nothing here prints it.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tracewheel.config import RetrainConfig
from tracewheel.config.operations import HELD_EVENT, Happening
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.files import read_json
from tracewheel.core.locks import hold_beside
from tracewheel.core.store import write_whole
from tracewheel.core.types import content_hash

UNTOLD_FILE = "untold.json"
MOST = 100  # a webhook that is gone must not fill the disk; the oldest go
POST_SECONDS = 3.0
STATES: dict[str, Happening] = {
    "Failed": "failed",
    "TimedOut": "failed",
    "Crashed": "crashed",
    "Stopped": "stopped",
    "Refused": "refused",
    "AwaitingApproval": "awaiting",
    "Promoted": "promoted",
    "Skipped": "skipped",
}


def tell_end(config: RetrainConfig, run: str, state: str, message: str) -> None:
    """Tell that a run has ended in this state of Prefect, and what an earlier end could not deliver."""
    text = f"retrain/{config.name}: {state}: {message}"
    told = {"text": text, "event": f"prefect.flow-run.{state}", "run": run, "state": state, "message": message}
    _tell(config, STATES.get(state), told)


def tell_held(config: RetrainConfig, message: str) -> None:
    """Tell that a batch of logs is held until a person decides."""
    text = f"retrain/{config.name}: {HELD_EVENT}: {message}"
    _tell(config, "held", {"text": text, "event": HELD_EVENT, "run": "", "state": "", "message": message})


def _tell(config: RetrainConfig, happening: Happening | None, told: dict[str, Any]) -> None:
    path = Path(config.work_dir) / UNTOLD_FILE
    addresses = {}
    for notify in config.schedule.notify:
        try:
            addresses[content_hash(notify.address())] = notify
        except ConfigError as error:
            _say(str(error))
    if not addresses:
        return
    try:
        with hold_beside(path):
            new = [{"to": to, "deployment": config.name, **told} for to, one in addresses.items() if happening in one.on]
            waiting = [*(read_json(path) if path.is_file() else ()), *new][-MOST:]
            if waiting:
                write_whole(path, json.dumps(waiting))
            for body in list(waiting):
                to = body["to"]
                if to not in addresses or _posted(addresses[to].address(), {name: body[name] for name in body if name != "to"}):
                    waiting.remove(body)
                    write_whole(path, json.dumps(waiting))
    except (OSError, DataError) as error:  # who is told must not decide how a run ends
        _say(f"nobody was told how the run ended: {error}")


def _posted(address: str, body: dict[str, Any]) -> bool:
    request = urllib.request.Request(
        address, json.dumps(body).encode(), headers={"Content-Type": "application/json", "User-Agent": "tracewheel"}
    )
    try:
        with urllib.request.urlopen(request, timeout=POST_SECONDS):
            return True
    except (OSError, ValueError) as error:  # ValueError: an answer that is no HTTP
        _say(f"a webhook of schedule.notify does not answer ({type(error).__name__}); the next end tells it again")
        return False


def _say(text: str) -> None:
    print(f"tracewheel: {text}", file=sys.stderr, flush=True)
