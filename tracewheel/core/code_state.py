"""The state of the code that runs: commit, what differs from it, and the packages that are installed."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tracewheel.core.fingerprint import PACKAGE

LONGEST_DIFF = 8 << 20
GIT_SECONDS = 20


def code_state(folder: Path | None = None) -> dict[str, Any] | None:
    """The commit of a folder's repository, and what differs from it; None outside a repository, or where git does not know it.

    Args:
        folder: By default the one that holds the package.

    Returns:
        `commit`, `branch`, `changed` (whether tracked files differ), `untracked` (Python files of the folder that git does not
        know), and `remote` (without credentials).
    """
    folder = folder or PACKAGE.parent
    commit = git(folder, "rev-parse", "HEAD")
    if commit is None or not git(folder, "ls-files", "--", "."):
        return None
    return {
        "commit": commit.decode().strip(),
        "branch": _line(git(folder, "symbolic-ref", "--short", "HEAD")),
        "changed": bool(git(folder, "status", "--porcelain", "--untracked-files=no")),
        "untracked": _names(git(folder, "ls-files", "--others", "--exclude-standard", "--", "*.py")),
        "remote": without_credentials(_line(git(folder, "config", "--get", "remote.origin.url"))),
    }


def dirty_diff(folder: Path | None = None) -> bytes:
    """What tracked files of the repository hold beyond the commit, as `git apply` takes it; cut short beyond `LONGEST_DIFF`."""
    folder = folder or PACKAGE.parent
    diff = git(folder, "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD") or b""
    if len(diff) <= LONGEST_DIFF:
        return diff
    changed = git(folder, "diff", "--stat=200", "--no-color", "--no-ext-diff", "HEAD") or b""
    return f"# {len(diff)} bytes of changes are too many to keep; the files:\n".encode() + changed


def installed_packages() -> dict[str, str]:
    """Every installed distribution and its version, by name; one that was installed from an address names it."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name and name.lower() not in found:
            found[name.lower()] = f"{name}{_pinned(distribution)}"
    return dict(sorted(found.items()))


def lock_text(packages: Iterable[str]) -> str:
    """The packages as a requirements file."""
    return "".join(f"{line}\n" for line in packages)


def without_credentials(url: str | None) -> str | None:
    """An address without user, password and query; an address in the form of scp stays as it is."""
    if not url or "://" not in url:
        return url
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        place = f"[{host}]" if ":" in host else host
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return None
    return urlunsplit((parts.scheme, f"{place}{port}", parts.path, "", ""))


def git(folder: Path, *arguments: str) -> bytes | None:
    """What git says in a folder; None where it fails, or is missing."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _pinned(distribution: importlib.metadata.Distribution) -> str:
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        origin = {}
    address = without_credentials(origin.get("url")) if isinstance(origin, dict) else None
    if not address or address.startswith("file:"):  # a folder of this machine says nothing elsewhere
        return f"=={distribution.version}"
    commit = (origin.get("vcs_info") or {}).get("commit_id")
    return f" @ {origin['vcs_info']['vcs']}+{address}@{commit}" if commit else f" @ {address}"


def _line(said: bytes | None) -> str | None:
    return said.decode(errors="replace").strip() or None if said else None


def _names(said: bytes | None) -> list[str]:
    return sorted((said or b"").decode(errors="replace").splitlines())
