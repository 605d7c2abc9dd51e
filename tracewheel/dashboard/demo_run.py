"""The small run folder that is shipped with the package, so that anybody sees the dashboard in ten seconds."""

from __future__ import annotations

import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).parent / "demo_run.tar.xz"
NAME = "demo"


def unpack_demo(folder: Path) -> Path:
    """Unpack the shipped runs (two trainings, the second from the champion of the first; no weights).

    Args:
        folder: Where to; it need not exist.

    Returns:
        The work folder with the runs.
    """
    work = folder / NAME
    work.mkdir(parents=True, exist_ok=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(work, filter="data")
    return work
