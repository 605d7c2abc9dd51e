"""Clients whose updates are not used until somebody releases them, in `quarantine.json` of the federation's folder."""

from __future__ import annotations

from pathlib import Path

from tracewheel import DataError, read_json, write_json

FILE = "quarantine.json"


def held(out: Path) -> dict[str, str]:
    """Why each quarantined client is, by name."""
    file = out / FILE
    return dict(read_json(file)) if file.is_file() else {}


def hold(out: Path, client: str, reason: str) -> None:
    """Quarantine a client."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / FILE, dict(sorted({**held(out), client: reason}.items())))


def release(out: Path, client: str) -> str:
    """Use a client's updates again; returns why they were not used.

    Raises:
        DataError: it is not quarantined.
    """
    now = held(out)
    if client not in now:
        raise DataError(f"{client}: is not quarantined in {out}; quarantined: {', '.join(now) or 'nobody'}")
    write_json(out / FILE, {name: reason for name, reason in now.items() if name != client})
    return now[client]
